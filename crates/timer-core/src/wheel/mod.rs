//! The wheel and its parts. Pure: no clock, no lock, no thread, and no import from another folder.

mod buckets;
pub(crate) mod geometry;
mod in_place;
pub(crate) mod node;
pub(crate) mod pages;
pub(crate) mod timing_wheel;

/// Counts a visited node or level in this crate's tests, which hold complexity claims against it.
#[inline(always)]
fn step() {
    #[cfg(test)]
    tests::count();
}

#[cfg(test)]
pub(crate) use tests::steps_of;

#[cfg(test)]
mod tests {
    //! Steps: operations cost as much as is claimed, counted in nodes and levels that they look at.

    use std::cell::Cell;

    use crate::wheel::{geometry::WheelSize, node::TaskId, timing_wheel::TimingWheel};

    thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// Counts a node or level that is looked at.
    pub(super) fn count() {
        STEPS.with(|steps| steps.set(steps.get() + 1));
    }

    pub(crate) fn steps_of<R>(act: impl FnOnce() -> R) -> (R, u64) {
        let before = STEPS.get();
        let result = act();
        (result, STEPS.get() - before)
    }

    /// Makes a wheel with `pending` tasks over an hour at 1 ms, and the ids of some.
    fn wheel(pending: u64) -> (TimingWheel<u64>, Vec<TaskId>) {
        let mut wheel = TimingWheel::new(WheelSize::default(), 0);
        let mut random = fastrand::Rng::with_seed(pending);
        let mut ids = Vec::new();
        for task in 0..pending {
            let id = wheel
                .insert(1000 + random.u64(0..3_600_000), task)
                .unwrap()
                .id;
            if task % pending.div_ceil(10) == 0 {
                ids.push(id);
            }
        }
        (wheel, ids)
    }

    /// Returns the most steps that schedule, cancel, reschedule and an idle advance take.
    fn most_steps(pending: u64) -> [u64; 4] {
        let (mut wheel, ids) = wheel(pending);
        let mut most = [0; 4];
        for (number, id) in ids.into_iter().enumerate() {
            let number = number as u64;
            let (added, schedule) = steps_of(|| wheel.insert(30_000 * number, 0).unwrap().id);
            let ((), reschedule) = steps_of(|| _ = wheel.reschedule(added, 700_000 + number));
            let (_, cancel) = steps_of(|| wheel.cancel(id).unwrap());
            wheel.cancel(added);
            let (advanced, idle) = steps_of(|| wheel.advance(number, 256, |_| unreachable!()));
            assert_eq!(advanced.fired + advanced.cascaded, 0);
            let steps = [schedule, cancel, reschedule, idle];
            most = std::array::from_fn(|act| most[act].max(steps[act]));
        }
        most
    }

    #[test]
    fn costs_do_not_grow_from_10_to_a_million_pending() {
        let few = most_steps(10);
        for pending in [100, 1000, 10_000, 100_000, 1_000_000] {
            let many = most_steps(pending);
            // One step more for the neighbour that takes a cancelled task's place in its bucket.
            let grown: Vec<_> = few
                .iter()
                .zip(&many)
                .map(|(few, many)| many - many.min(few))
                .collect();
            assert!(
                grown.iter().all(|&grown| grown <= 1),
                "{few:?} with 10, {many:?} with {pending}"
            );
        }
        assert!(
            few.iter().all(|&steps| (1..=16).contains(&steps)),
            "{few:?}"
        );
    }
}
