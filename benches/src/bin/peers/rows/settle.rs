//! `settle`: the processor time of a test on a `ManualTimer` for each moment at which something
//! happens. A task sleeps again and again, and the test lets time pass with `settle`. The
//! contenders differ in the number of purgatories on the timer, in each of which one operation
//! waits.

use std::time::Duration;

use anyhow::ensure;
use purgatory::{Purgatory, Timeout, when};
use purgatory_benches::process_cpu_ns;
use timer_core::ManualTimer;
use tokio::runtime::Builder;

use super::row::Run;
use crate::{
    contender::{Contender, contenders},
    results::OURS,
};

/// Moments of one round, for each thousand operations of the other rows.
const MOMENTS: usize = 25;

/// A timer with a number of purgatories.
trait Setting {
    const NAME: &'static str;
    const PURGATORIES: usize;
}

struct WithEight;

impl Setting for WithEight {
    const NAME: &'static str = OURS;
    const PURGATORIES: usize = 8;
}

struct WithOne;

impl Setting for WithOne {
    const NAME: &'static str = "one-purgatory";
    const PURGATORIES: usize = 1;
}

struct Alone;

impl Setting for Alone {
    const NAME: &'static str = "timer-alone";
    const PURGATORIES: usize = 0;
}

/// Measures a round of this number of moments; returns nanoseconds for each.
fn settle<S: Setting>(moments: usize) -> anyhow::Result<f64> {
    // 1. Operations wait, one in each purgatory.
    let timer = ManualTimer::new();
    let mut purgatories = Vec::new();
    for number in 0..S::PURGATORIES {
        let purgatory = Purgatory::builder(format!("purgatory-{number}"))
            .timer(&timer)
            .build()?;
        let waits = when(|| false, |_| ());
        _ = purgatory.try_complete_else_watch(waits, &[number], Timeout::Never)?;
        purgatories.push(purgatory);
    }
    // 2. A task sleeps to each moment, while time passes.
    let runtime = Builder::new_current_thread().build()?;
    let step = Duration::from_millis(1);
    let begin_ns = process_cpu_ns();
    let slept = runtime.block_on(async {
        let sleeper = timer.clone();
        let task = tokio::spawn(async move {
            for _ in 0..moments {
                sleeper.sleep(step).await?;
            }
            Ok::<_, timer_core::TimerError>(sleeper.now())
        });
        timer.settle(step * u32::try_from(moments)?).await;
        ensure!(task.is_finished(), "{}: a sleep is not over", S::NAME);
        Ok(task.await??)
    })?;
    let took_ns = process_cpu_ns() - begin_ns;
    // 3. Nothing else has changed.
    ensure!(slept == timer.now(), "{}: time went on", S::NAME);
    let waiting: usize = purgatories.iter().map(Purgatory::len).sum();
    ensure!(waiting == S::PURGATORIES, "{}: {waiting} wait", S::NAME);
    Ok(took_ns as f64 / moments as f64)
}

pub(super) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let contenders: Vec<Contender<usize, f64>> =
        contenders!(settle, Setting: WithEight, WithOne, Alone);
    let moments = run.sizes.operations * MOMENTS / 1000;
    for _ in 0..run.sizes.rounds {
        run.each(id, "ns of CPU", &contenders, moments.max(1))?;
    }
    Ok(())
}
