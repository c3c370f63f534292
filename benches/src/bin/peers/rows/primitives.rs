//! `primitives`: what the floors are made of, one by one.

use super::row::Run;
use crate::floor;

pub(crate) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    for round in 0..sizes.rounds {
        run.at(id, "each", round);
        let count = sizes.primitives;
        let wake_up = floor::wake_up(sizes.wake_ups).value_at_quantile(0.5) as f64;
        let measure = run.results.measure(id, "ns");
        measure.add("clock-read", floor::clock_read(count));
        measure.add("lock-pair", floor::lock_pair(count));
        measure.add("allocation", floor::allocation(count));
        measure.add("random-node", floor::random_node(sizes.one_m, count));
        measure.add("run-a-task", floor::run_tasks(count));
        measure.add("wake-up", wake_up);
    }
    Ok(())
}
