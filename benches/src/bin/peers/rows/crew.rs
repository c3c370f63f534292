//! A crew: threads that stand ready at one contender while the others have their turns.

use super::row::Run;
use crate::contender::Contender;

/// A crew at the ready.
pub(super) trait Crew {
    /// Has every thread do so many operations; nanoseconds each of the slowest.
    fn work(&mut self, operations: usize) -> anyhow::Result<f64>;

    /// An error when something was lost that was pending, or anything is left.
    fn go_home(self: Box<Self>) -> anyhow::Result<()>;
}

/// All contenders stand ready; a round is a turn of each. There is one crew for each measure of a
/// contender; a second one's time is what the first's is divided by.
pub(super) fn interleaved<H: Copy>(
    id: &str,
    run: &mut Run<'_>,
    contenders: &[Contender<H, Box<dyn Crew>>],
    hires: &[(&str, H)],
    operations: usize,
    floor: impl Fn() -> f64,
) -> anyhow::Result<()> {
    let mut crews: Vec<(&str, Vec<Box<dyn Crew>>)> = Vec::new();
    for one in contenders {
        if run.begins(id, 0, one.name) {
            let hired = hires.iter().map(|(_, hire)| (one.measure)(*hire));
            crews.push((one.name, hired.collect::<Result<_, _>>()?));
        }
    }
    for round in 0..run.sizes.rounds {
        for (name, crews) in &mut crews {
            run.begins(id, round, name);
            let mut first = None;
            for (crew, (suffix, _)) in crews.iter_mut().zip(hires) {
                let ns = crew.work(operations)?;
                let (value, unit) = match first {
                    None => (ns, "ns"),
                    Some(first) => (first / ns, "times one thread's"),
                };
                first.get_or_insert(ns);
                run.add(&format!("{id}{suffix}"), unit, name, value);
            }
        }
        run.floor(id, "ns", floor());
    }
    crews.into_iter().flat_map(|(_, crews)| crews).try_for_each(Crew::go_home)
}
