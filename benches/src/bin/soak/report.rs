//! What a run came to, as a table.

use purgatory_benches::grouped;

use crate::{
    books::{Ending, Kind},
    faults::Fault,
    memory::Memory,
    run::Measured,
    series::Sample,
};

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// One line while it runs.
pub(crate) fn progress(sample: &Sample, operations: u64) -> String {
    let Sample { at_s, open, live_bytes, rss_bytes, lateness_max_ms, .. } = *sample;
    format!(
        "{at_s:>7.0} s  {:>7} a second  {:>14} operations  {:>7} open  {:>6.1} MiB live  {:>6.1} \
         MiB resident  late {lateness_max_ms:>6.1} ms at most",
        grouped(sample.rate() as u64),
        grouped(operations),
        grouped(open),
        mib(live_bytes),
        mib(rss_bytes),
    )
}

impl Measured {
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// The whole table.
    pub(crate) fn table(&self, rate_asked: u64) -> String {
        let mut lines = self.outcomes();
        lines.push(String::new());
        let mut line = |what: &str, value: String| lines.push(format!("{what:<34} {value}"));
        line("seed", self.seed.to_string());
        line("time, s", format!("{:.1}", self.seconds));
        line(
            "operations a second",
            format!("{} of {}", grouped(self.rate() as u64), grouped(rate_asked)),
        );
        if self.given_up > 0 {
            line("  not parked, for want of time", grouped(self.given_up));
        }
        line("open at once", grouped(self.open_max));
        line("values that only a hook was left for", grouped(self.unclaimed));
        for ((.., name), count) in Fault::ALL.iter().zip(self.faults) {
            line(name, grouped(count));
        }
        line("jobs held by a stalled executor", grouped(self.held_jobs));
        line("threads that lived for a moment", grouped(self.visitors));
        line("standstills", grouped(self.standstills));
        let [p50, p99, max] = self.lateness_ms.map(|ms| format!("{ms:.2}"));
        line("expired late, ms: p50, p99, max", format!("{p50}, {p99}, {max}"));
        let memory = |memory: Option<Memory>| match memory {
            Some(Memory { live_bytes, allocations, .. }) => {
                format!("{} bytes in {} allocations", grouped(live_bytes), grouped(allocations))
            }
            None => "no standstill".to_owned(),
        };
        line("idle memory after the warm-up", memory(self.memory.base));
        line("idle memory at the end", memory(self.memory.idle));
        let most = |of: fn(&Sample) -> u64| {
            let most = self.series.samples().iter().map(of).max().unwrap_or(0);
            format!("{:.1}", mib(most))
        };
        line("live memory, MiB at most", most(|sample| sample.live_bytes));
        line("resident memory, MiB at most", most(|sample| sample.rss_bytes));
        lines.push(String::new());
        lines.extend(self.told.iter().chain(self.memory.grew.iter().take(10)).cloned());
        lines.push(self.verdict());
        lines.join("\n")
    }

    /// Kinds of operations by how they ended.
    fn outcomes(&self) -> Vec<String> {
        let head: String = Ending::ALL.iter().map(|(_, name)| format!("{name:>13}")).collect();
        let mut lines = vec![format!("{:<16}{head}", "ended as")];
        let mut sums = [0; Ending::ALL.len()];
        let line = |name: &str, counts: &[u64; Ending::ALL.len()]| {
            let cells: String = counts.iter().map(|&n| format!("{:>13}", grouped(n))).collect();
            format!("{name:<16}{cells}")
        };
        for ((_, name), counts) in Kind::ALL.iter().zip(&self.endings) {
            lines.push(line(name, counts));
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        lines.push(line("all", &sums));
        lines
    }

    /// One line: what was wrong, or that nothing was.
    fn verdict(&self) -> String {
        let [lost, doubled, early] =
            [self.wrong.lost, self.wrong.doubled, self.wrong.early].map(grouped);
        let memory = match (self.memory.grew.is_empty(), self.memory.judged) {
            (false, _) => "memory GREW",
            (true, 0) => "memory not judged: no standstill after the warm-up",
            (true, _) => "memory flat",
        };
        let right = if self.is_right() { "ok" } else { "FAILED" };
        let operations = grouped(self.operations);
        format!(
            "{right}: {operations} operations, lost {lost}, doubled {doubled}, early {early}, \
             otherwise wrong {}, {memory}",
            self.wrong.other
        )
    }
}
