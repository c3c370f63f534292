//! What a run came to, as a table and as JSON.

use serde_json::{Value, json};

use crate::{
    books::{Ending, Kind},
    faults::Fault,
    memory::Memory,
    run::{Measured, Plan},
    series::Sample,
};

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{} {:03}", grouped(thousands), number % 1000),
    }
}

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
    pub(crate) fn table(&self, plan: &Plan) -> String {
        let mut lines = self.outcomes();
        lines.push(String::new());
        let mut line = |what: &str, value: String| lines.push(format!("{what:<34} {value}"));
        line("seed", plan.seed.to_string());
        line("time, s", format!("{:.1}", self.seconds));
        line(
            "operations a second",
            format!("{} of {}", grouped(self.rate() as u64), grouped(plan.rate)),
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

    pub(crate) fn json(&self, plan: &Plan) -> Value {
        let endings = |counts: &[u64]| -> Value {
            Ending::ALL.iter().zip(counts).map(|((_, name), n)| ((*name).to_owned(), *n)).collect()
        };
        let kinds: Value = Kind::ALL
            .iter()
            .zip(&self.endings)
            .map(|((_, name), counts)| ((*name).to_owned(), endings(counts)))
            .collect();
        let faults = Fault::ALL.iter().zip(self.faults);
        let faults: Value = faults.map(|((.., name), n)| ((*name).to_owned(), n)).collect();
        let memory = |memory: Option<Memory>| {
            memory.map(|it| json!({ "bytes": it.live_bytes, "allocations": it.allocations }))
        };
        json!({
            "seed": plan.seed, "rate_asked": plan.rate, "threads": plan.threads,
            "seconds": self.seconds, "rate": self.rate(), "operations": self.operations,
            "given_up": self.given_up, "ended": kinds, "unclaimed": self.unclaimed,
            "faults": faults, "held_jobs": self.held_jobs, "visitors": self.visitors,
            "standstills": self.standstills, "lateness_ms": self.lateness_ms,
            "open_max": self.open_max, "idle_warm": memory(self.memory.base),
            "idle_end": memory(self.memory.idle), "judged": self.memory.judged, "grew": self.memory.grew,
            "lost": self.wrong.lost, "doubled": self.wrong.doubled, "early": self.wrong.early,
            "otherwise_wrong": self.wrong.other, "told": self.told, "right": self.is_right(),
            "samples": self.series.samples().iter().map(Sample::json).collect::<Vec<_>>(),
        })
    }
}
