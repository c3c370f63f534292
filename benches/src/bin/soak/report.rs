//! What a run came to, as a table.

use std::sync::atomic::Ordering::SeqCst;

use clap::ValueEnum;
use purgatory_benches::{grouped, name};

use crate::{
    books::{Ending, Endings, Kind},
    faults::Fault,
    run::Watch,
};

impl Watch<'_> {
    /// The whole table.
    pub(crate) fn table(&self) -> String {
        let books = &self.ring.books;
        let seconds = books.clock.real_ns() as f64 / 1e9;
        let rate = grouped((books.operations() as f64 / seconds) as u64);
        let mut lines = outcomes(&books.endings());
        let mut line = |what: &str, value: String| lines.push(format!("{what:<34} {value}"));
        line("seed", self.seed.to_string());
        line("time, s", format!("{seconds:.1}"));
        line("operations a second", format!("{rate} of {}", grouped(self.args.rate)));
        for (fault, count) in Fault::value_variants().iter().zip(&self.faults.counts) {
            line(&format!("fault: {}", name(fault)), grouped(count.load(SeqCst)));
        }
        line("threads that lived for a moment", grouped(self.ring.visitors.load(SeqCst)));
        line("standstills", grouped(self.standstills));
        let late_ms = |share| self.lateness_all.value_at_quantile(share) as f64 / 1e6;
        let late = [0.5, 0.99, 1.0].map(|share| format!("{:.2}", late_ms(share)));
        line("expired late, ms: p50, p99, max", late.join(", "));
        let idle = |bytes: Option<u64>| bytes.map_or("no standstill".to_owned(), grouped);
        line("idle memory after warm-up, bytes", idle(self.memory.base));
        line("idle memory at the end, bytes", idle(self.memory.idle));
        lines.extend(books.wrong().1);
        lines.extend(self.memory.grew.iter().take(10).cloned());
        lines.push(self.verdict());
        lines.join("\n")
    }

    /// One line: what was wrong, or that nothing was.
    fn verdict(&self) -> String {
        let books = &self.ring.books;
        let [lost, doubled, early, other] = books.wrong().0.map(grouped);
        let memory = match (self.memory.grew.is_empty(), self.memory.judged) {
            (false, _) => "memory GREW",
            (true, 0) => "memory not judged: no standstill after the warm-up",
            (true, _) => "memory flat",
        };
        let right = if self.is_right() { "ok" } else { "FAILED" };
        format!(
            "{right}: {} operations, lost {lost}, doubled {doubled}, early {early}, otherwise \
             wrong {other}, {memory}",
            grouped(books.operations())
        )
    }
}

/// Kinds of operations by how they ended.
fn outcomes(endings: &Endings) -> Vec<String> {
    let line = |name: &str, cells: Vec<String>| {
        format!("{name:<16}{}", cells.iter().map(|cell| format!("{cell:>13}")).collect::<String>())
    };
    let counts = |of: &[u64]| of.iter().map(|&count| grouped(count)).collect();
    let mut lines = vec![line("ended", Ending::value_variants().iter().map(name).collect())];
    let mut all = [0; Ending::Unparked as usize + 1];
    for (kind, ended) in Kind::value_variants().iter().zip(endings) {
        lines.push(line(&name(kind), counts(ended)));
        all.iter_mut().zip(ended).for_each(|(all, count)| *all += count);
    }
    lines.push(line("all", counts(&all)));
    lines
}
