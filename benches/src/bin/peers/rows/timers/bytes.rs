//! `bytes-per-timer`: heap in use while a million timers are pending, and just above a power of
//! two, divided by their number. What the caller keeps to cancel by is not counted, unless it is
//! the timer.
//!
//! Counted are the allocations of the thread that schedules: contenders that allocate elsewhere are
//! measured by their core, or left out.

use anyhow::ensure;
use fastrand::Rng;

use crate::{
    contender::contenders,
    rows::row::Run,
    sink::Sink,
    timers::{AsyncIo, Core, HashedCore, HashedWheel, OursWheel, Polled, Timer, timers},
};

/// Ours counts 16 bytes of pointer to the task (in `ours-closure` the 16 of the task as well), the
/// wheel and all peers but tokio 8 bytes of payload.
pub(super) fn pending<T: Timer>(timers: usize) -> anyhow::Result<f64> {
    let timer = T::start(Sink::for_none())?;
    let mut local = timer.local();
    let mut random = Rng::with_seed(1);
    let mut handles = Vec::with_capacity(timers);
    let counted = allocation_counter::measure(|| {
        let far = |_| std::time::Duration::from_millis(random.u64(3_600_000..7_200_000));
        handles.extend((0..timers).map(far).map(|delay| T::schedule(&mut local, delay)));
    });
    let there = handles.len();
    let cancelled = handles.into_iter().map(|one| usize::from(T::cancel(&mut local, one)));
    ensure!(cancelled.sum::<usize>() == there, "{}: a pending timer had gone", T::NAME);
    Ok(counted.bytes_current as f64 / timers as f64)
}

fn inserted<C: Core>(timers: usize) -> anyhow::Result<f64> {
    let mut random = Rng::with_seed(1);
    let mut core = C::default();
    let counted = allocation_counter::measure(|| {
        (0..timers as u64).for_each(|id| core.insert(random.u64(3_600_000..7_200_000), id));
    });
    Ok(counted.bytes_current as f64 / timers as f64)
}

pub(crate) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let mut contenders = timers!(pending, with_closure);
    contenders.retain(|one| ![HashedWheel::NAME, Polled::<AsyncIo>::NAME].contains(&one.name));
    contenders.extend(contenders!(inserted, Core: OursWheel, HashedCore));
    let above = (run.sizes.one_m.next_power_of_two() + 1, format!("{id}-above-power-of-two"));
    for (timers, id) in [(run.sizes.one_m, id.to_owned()), above] {
        run.each(&id, "bytes", 0, &contenders, timers)?;
    }
    Ok(())
}
