//! Timing: how long operations waited, by room: plain numbers under its lock.
//!
//! An ending that is timed reads the clock, with nothing locked, which alone costs a tenth of
//! parking and completing (and the rest as much again). So nothing is timed before somebody asks,
//! and of what completes between two looks at the times each room times its share of [`EXACT`] one
//! by one, and after that one in [`STRIDE`], which stands for them all. What expires and what is
//! cancelled is always timed by itself.

use timer_core::TimeHistogram;

use crate::words::operation::Outcome;

/// Completions that are timed one by one after a look, over all rooms.
const EXACT: u32 = 1000;

/// After those, one in so many is timed. A prime: batches of completions are of rounder sizes.
const STRIDE: u32 = 17;

/// And of batches of checks one in so many: no count has to agree with theirs.
const BATCH_STRIDE: u32 = 67;

/// From when on an ending is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// For how many endings.
    pub(crate) stands_for: u32,
    pub(crate) parked_us: u64,
    /// In ticks.
    pub(crate) deadline: u64,
}

/// How long operations waited, by how they ended, and how late those were that expired. Counted
/// from the first time that anybody asked for it.
///
/// Each ending is counted, so counts are exact when nothing moves. Of what completes a busy
/// purgatory times only some: between two looks at the times the first 1000 completions are timed
/// one by one, each [room](crate::Builder::rooms) an equal part of them, and from then on each 17th
/// stands for 17. What expires and what is cancelled is always timed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Times {
    /// From being parked to ending as Completed.
    pub completed: TimeHistogram,
    /// From being parked to ending as Expired.
    pub expired: TimeHistogram,
    /// From being parked to ending as Cancelled.
    pub cancelled: TimeHistogram,
    /// From its deadline, rounded up to a tick, until what expired was taken off the wheel.
    pub lateness: TimeHistogram,
    /// Checks for events. Few are timed, and stand for the others: the counts are estimates.
    pub check: TimeHistogram,
    /// From being handed to the executor until a callback, or a last check, began.
    pub callback_delay: TimeHistogram,
}

/// The part of the timing that one room does.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    completions: Sampled,
    /// How long the last one waited that was timed.
    last_ns: u64,
    /// Batches of checks, each of an event.
    batches: Sampled,
    /// Of the last one that was timed: how many checks, and how long each took.
    last_checks: (u64, u64),
    completed: TimeHistogram,
    expired: TimeHistogram,
    cancelled: TimeHistogram,
    lateness: TimeHistogram,
    check: TimeHistogram,
}

/// Of which the first are timed one by one, then one in so many.
#[derive(Debug, Default)]
struct Sampled {
    /// So many are still timed one by one.
    exact: u32,
    /// Since the last one that was timed.
    untimed: u32,
}

impl Sampled {
    /// Counts one: for how many it stands, if it is to be timed.
    #[inline]
    fn stands_for(&mut self, stride: u32) -> Option<u32> {
        if self.exact > 0 {
            self.exact -= 1;
            return Some(1);
        }
        self.untimed += 1;
        (self.untimed == stride).then(|| std::mem::take(&mut self.untimed))
    }
}

impl Timed {
    /// Counts an ending: for how many it stands, if it is to be timed. Others may end before its
    /// time is recorded, so what it stands for is settled here.
    #[inline]
    pub(crate) fn stands_for(&mut self, outcome: &Outcome) -> Option<u32> {
        match outcome {
            Outcome::Completed => self.completions.stands_for(STRIDE),
            _ => Some(1),
        }
    }

    /// Counts a batch of checks: for how many it stands, if it is to be timed.
    #[inline]
    pub(crate) fn batch_stands_for(&mut self) -> Option<u32> {
        self.batches.stands_for(BATCH_STRIDE)
    }

    /// Records a batch of so many checks, which [stands for](Self::batch_stands_for) so many.
    pub(crate) fn checked(&mut self, stands_for: u32, checks: usize, took_ns: u64) {
        let checks = checks as u64;
        let each_ns = took_ns.checked_div(checks).unwrap_or(0);
        self.check.record_many(each_ns, checks * u64::from(stands_for));
        self.last_checks = (checks, each_ns);
    }

    /// Records an ending that [stands for](Self::stands_for) so many, after `waited_us` since it
    /// was parked and `late_ns` since its deadline.
    pub(crate) fn ended(
        &mut self,
        outcome: &Outcome,
        stands_for: u32,
        waited_us: u64,
        late_ns: u64,
    ) {
        let waited_ns = waited_us * 1000;
        match outcome {
            Outcome::Completed => {
                self.completed.record_many(waited_ns, u64::from(stands_for));
                self.last_ns = waited_ns;
            }
            Outcome::Cancelled(_) => self.cancelled.record(waited_ns),
            Outcome::Expired => {
                self.expired.record(waited_ns);
                self.lateness.record(late_ns);
            }
        }
    }

    /// Adds what was counted so far; starts to time one by one again, as one of so many rooms.
    pub(crate) fn look(&mut self, rooms: usize, times: &mut Times) {
        let untimed = std::mem::take(&mut self.completions.untimed);
        self.completed.record_many(self.last_ns, u64::from(untimed));
        let untimed = std::mem::take(&mut self.batches.untimed);
        let (checks, each_ns) = self.last_checks;
        self.check.record_many(each_ns, checks * u64::from(untimed));
        self.completions.exact = EXACT.div_ceil(rooms as u32);
        self.batches.exact = self.completions.exact;
        times.completed.add(&self.completed);
        times.expired.add(&self.expired);
        times.cancelled.add(&self.cancelled);
        times.lateness.add(&self.lateness);
        times.check.add(&self.check);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(timed: &mut Timed, rooms: usize) -> Times {
        let mut times = Times::default();
        timed.look(rooms, &mut times);
        times
    }

    /// An operation ends in one lock hold, and its time is recorded in another.
    #[test]
    fn each_completion_is_counted_whatever_departs_before_its_time_is_recorded() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut timed = Timed::default();
        let (mut departed, mut unrecorded) = (0, Vec::new());
        for _ in 0..20_000 {
            match random.u32(..10_000) {
                0..10 => _ = look(&mut timed, 1),
                10..5000 => {
                    departed += 1;
                    unrecorded.extend(timed.stands_for(&Outcome::Completed));
                }
                _ if unrecorded.is_empty() => {}
                _ => {
                    let any = random.usize(..unrecorded.len());
                    timed.ended(&Outcome::Completed, unrecorded.swap_remove(any), 5, 0);
                }
            }
        }
        unrecorded.drain(..).for_each(|count| timed.ended(&Outcome::Completed, count, 5, 0));
        assert_eq!(look(&mut timed, 1).completed.count(), departed);
    }

    #[test]
    fn checks_of_batches_that_are_not_timed_count_as_the_timed_ones_do() {
        let mut timed = Timed::default();
        look(&mut timed, 1);
        let batches = EXACT + 3 * BATCH_STRIDE + 5;
        let mut recorded = 0;
        for _ in 0..batches {
            if let Some(stands_for) = timed.batch_stands_for() {
                recorded += 1;
                timed.checked(stands_for, 2, 40_000);
            }
        }
        let check = look(&mut timed, 1).check;
        assert_eq!((recorded, check.count()), (EXACT + 3, 2 * u64::from(batches)));
        assert_eq!(check.sum_s(), (batches * 40) as f64 / 1e6); // 20 µs each
    }

    /// A look must not cost a room's thousand in each of many rooms.
    #[test]
    fn the_rooms_share_what_is_timed_one_by_one() {
        for (rooms, exact) in [(1, 1000), (8, 125), (128, 8), (1024, 1)] {
            let mut timed = Timed::default();
            look(&mut timed, rooms);
            let one_by_one = (0..exact).all(|_| timed.stands_for(&Outcome::Completed) == Some(1));
            assert!(one_by_one && timed.stands_for(&Outcome::Completed).is_none(), "{rooms} rooms");
        }
    }
}
