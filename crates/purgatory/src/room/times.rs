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
}

impl Times {
    pub(crate) fn add(&mut self, other: &Times) {
        self.completed.add(&other.completed);
        self.expired.add(&other.expired);
        self.cancelled.add(&other.cancelled);
        self.lateness.add(&other.lateness);
    }
}

/// The part of the timing that one room does.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    /// Completions that are still timed one by one.
    exact: u32,
    /// Completions since the last one that was timed.
    untimed: u32,
    /// How long that one waited.
    last_ns: u64,
    times: Times,
}

impl Timed {
    /// Counts an ending: for how many it stands, if it is to be timed. Others may end before its
    /// time is recorded, so what it stands for is settled here.
    #[inline]
    pub(crate) fn stands_for(&mut self, outcome: &Outcome) -> Option<u32> {
        if !matches!(outcome, Outcome::Completed) {
            return Some(1);
        }
        if self.exact > 0 {
            self.exact -= 1;
            return Some(1);
        }
        self.untimed += 1;
        (self.untimed == STRIDE).then(|| std::mem::take(&mut self.untimed))
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
                self.times.completed.record_many(waited_ns, u64::from(stands_for));
                self.last_ns = waited_ns;
            }
            Outcome::Cancelled(_) => self.times.cancelled.record(waited_ns),
            Outcome::Expired => {
                self.times.expired.record(waited_ns);
                self.times.lateness.record(late_ns);
            }
        }
    }

    /// What was counted so far; starts to time one by one again, as one of so many rooms.
    pub(crate) fn look(&mut self, rooms: usize) -> &Times {
        self.times.completed.record_many(self.last_ns, u64::from(self.untimed));
        self.untimed = 0;
        self.exact = EXACT.div_ceil(rooms as u32);
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation ends in one lock hold, and its time is recorded in another.
    #[test]
    fn each_completion_is_counted_whatever_departs_before_its_time_is_recorded() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut timed = Timed::default();
        let (mut departed, mut unrecorded) = (0, Vec::new());
        for _ in 0..20_000 {
            match random.u32(..10_000) {
                0..10 => _ = timed.look(1),
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
        assert_eq!(timed.look(1).completed.count(), departed);
    }

    /// A look must not cost a room's thousand in each of many rooms.
    #[test]
    fn the_rooms_share_what_is_timed_one_by_one() {
        for (rooms, exact) in [(1, 1000), (8, 125), (128, 8), (1024, 1)] {
            let mut timed = Timed::default();
            timed.look(rooms);
            let one_by_one = (0..exact).all(|_| timed.stands_for(&Outcome::Completed) == Some(1));
            assert!(one_by_one && timed.stands_for(&Outcome::Completed).is_none(), "{rooms} rooms");
        }
    }
}
