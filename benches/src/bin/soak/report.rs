//! What a run came to, as a table.

use std::sync::atomic::Ordering::SeqCst;

use purgatory_benches::grouped;

use crate::{
    books::{Ending, Endings, Kind},
    faults::Fault,
    memory::Memory,
    run::{Measured, Watch},
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

impl Measured<'_> {
    /// The whole table.
    pub(crate) fn table(&self, rate_asked: u64) -> String {
        let Measured { watch, ring, faults } = self;
        let books = &watch.books;
        let seconds = books.clock.real_ns() as f64 / 1e9;
        let rate = books.operations() as f64 / seconds;
        let mut lines = outcomes(&books.endings());
        lines.push(String::new());
        let mut line = |what: &str, value: String| lines.push(format!("{what:<34} {value}"));
        line("seed", watch.seed.to_string());
        line("time, s", format!("{seconds:.1}"));
        let reached = format!("{} of {}", grouped(rate as u64), grouped(rate_asked));
        line("operations a second", reached);
        let given_up = ring.given_up.load(SeqCst);
        if given_up > 0 {
            line("  not parked, for want of time", grouped(given_up));
        }
        line("open at once", grouped(watch.open_max));
        line("values that only a hook was left for", grouped(books.unclaimed()));
        for ((.., name), count) in Fault::ALL.iter().zip(faults.counts()) {
            line(name, grouped(count));
        }
        line("jobs held by a stalled executor", grouped(faults.held.load(SeqCst)));
        line("threads that lived for a moment", grouped(ring.visitors.load(SeqCst)));
        line("standstills", grouped(watch.standstills));
        let late_ms = |share| watch.lateness_all.value_at_quantile(share) as f64 / 1e6;
        let late = [0.5, 0.99, 1.0].map(|share| format!("{:.2}", late_ms(share)));
        line("expired late, ms: p50, p99, max", late.join(", "));
        let memory = |memory: Option<Memory>| match memory {
            Some(Memory { live_bytes, allocations, .. }) => {
                format!("{} bytes in {} allocations", grouped(live_bytes), grouped(allocations))
            }
            None => "no standstill".to_owned(),
        };
        line("idle memory after the warm-up", memory(watch.memory.base));
        line("idle memory at the end", memory(watch.memory.idle));
        let most = |of: fn(&Sample) -> u64| {
            let most = watch.series.samples().iter().map(of).max().unwrap_or(0);
            format!("{:.1}", mib(most))
        };
        line("live memory, MiB at most", most(|sample| sample.live_bytes));
        line("resident memory, MiB at most", most(|sample| sample.rss_bytes));
        lines.push(String::new());
        lines.extend(books.wrong().1);
        lines.extend(watch.memory.grew.iter().take(10).cloned());
        lines.push(verdict(watch));
        lines.join("\n")
    }
}

/// Kinds of operations by how they ended.
fn outcomes(endings: &Endings) -> Vec<String> {
    let head: String = Ending::ALL.iter().map(|(_, name)| format!("{name:>13}")).collect();
    let mut lines = vec![format!("{:<16}{head}", "ended as")];
    let mut sums = [0; Ending::ALL.len()];
    let line = |name: &str, counts: &[u64; Ending::ALL.len()]| {
        let cells: String = counts.iter().map(|&n| format!("{:>13}", grouped(n))).collect();
        format!("{name:<16}{cells}")
    };
    for ((_, name), counts) in Kind::ALL.iter().zip(endings) {
        lines.push(line(name, counts));
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    lines.push(line("all", &sums));
    lines
}

/// One line: what was wrong, or that nothing was.
fn verdict(watch: &Watch<'_>) -> String {
    let (wrong, _) = watch.books.wrong();
    let [lost, doubled, early] = [wrong.lost, wrong.doubled, wrong.early].map(grouped);
    let memory = match (watch.memory.grew.is_empty(), watch.memory.judged) {
        (false, _) => "memory GREW",
        (true, 0) => "memory not judged: no standstill after the warm-up",
        (true, _) => "memory flat",
    };
    let right = if watch.is_right() { "ok" } else { "FAILED" };
    let operations = grouped(watch.books.operations());
    format!(
        "{right}: {operations} operations, lost {lost}, doubled {doubled}, early {early}, \
         otherwise wrong {}, {memory}",
        wrong.other
    )
}
