//! One run: the generator by itself, then the same with a purgatory.

use std::{fs, sync::Arc, thread, time::Duration};

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use purgatory_benches::process_cpu_ns;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use timer_core::Clock;

use crate::{
    books::{Books, Ending, Request},
    delays::Delays,
    waits::{
        First, Heap, Nothing, TimerKind, Wheel,
        wait::{Key, Waits},
    },
    workload::Workload,
};

/// The generator sleeps only when it is this far ahead; arrivals closer than that come in one go,
/// as in Kafka's test, which counts in milliseconds.
const AHEAD_NS: u64 = 1_000_000;

/// When nothing at all has ended for this long, something is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) num: u64,
    /// The keys that every operation of the run watches.
    pub(crate) keys: Vec<Key>,
    pub(crate) timer: TimerKind,
    pub(crate) purge: usize,
    pub(crate) seed: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Requests a second, from the first to the last ending less the timeout.
    pub(crate) rate: f64,
    /// Processor time of the process for a request, the generator's share not in it.
    pub(crate) cpu_us: f64,
    /// The generator's share, and that of the thread that completes.
    pub(crate) generator_us: f64,
    /// Processors kept busy by the whole.
    pub(crate) cores: f64,
    pub(crate) expired: u64,
    /// Of these the requests whose latency was above the timeout; the others expired because they
    /// were completed too late.
    pub(crate) expired_due: u64,
    pub(crate) num: u64,
    /// Milliseconds: median, 99th percentile, maximum.
    pub(crate) waited: [f64; 3],
    pub(crate) completed_late: [f64; 3],
    pub(crate) expired_late: [f64; 3],
    /// The most memory the process had at once, in MiB, where the system tells.
    pub(crate) peak_mib: Option<f64>,
}

impl Measured {
    pub(crate) fn json(&self) -> Value {
        json!({
            "rate": self.rate, "cpu_us": self.cpu_us, "generator_us": self.generator_us,
            "cores": self.cores, "num": self.num, "expired": self.expired,
            "expired_due": self.expired_due, "waited_ms": self.waited,
            "completed_late_ms": self.completed_late, "expired_late_ms": self.expired_late,
            "peak_mib": self.peak_mib,
        })
    }
}

/// `count` keys out of `space`, drawn once a run.
pub(crate) fn draw_keys(count: usize, space: Key, seed: u64) -> Vec<Key> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(0..space)).collect()
}

pub(crate) fn run(plan: &Plan, progress: &ProgressBar) -> anyhow::Result<Measured> {
    // Half of the requests are enough to tell what the generator costs for each.
    let alone_num = (plan.num / 2).max(1);
    progress.set_length(plan.num + alone_num);
    progress.set_message("the generator by itself");
    let alone = drive(plan, alone_num, progress, |_| Ok(Nothing))?;
    reset_peak();
    progress.set_message("with the purgatory");
    let Plan { keys, purge, .. } = plan;
    let driven = match plan.timer {
        TimerKind::Wheel => drive(plan, plan.num, progress, |_| Wheel::new(keys))?,
        TimerKind::Heap => drive(plan, plan.num, progress, |books| Heap::new(keys, books.clock))?,
        TimerKind::First => {
            drive(plan, plan.num, progress, |books| First::new(keys, *purge, books.clock))?
        }
    };
    let peak_mib = peak_mib();
    let books = driven.books;
    let expired = books.read(Ending::Expired, |page| page.count);
    ensure!(
        books.ended() == plan.num,
        "{} ended of {} requests: some were lost or ended twice",
        books.ended(),
        plan.num
    );
    let expired_due = driven.above_timeout;
    ensure!(expired >= expired_due, "{expired} expired, of {expired_due} that nothing completes");
    check_share(expired_due as f64 / plan.num as f64, plan)?;

    let generator_us = alone.cpu_ns as f64 / alone_num as f64 / 1e3;
    let total_us = driven.cpu_ns as f64 / plan.num as f64 / 1e3;
    let timeout_ns = plan.workload.timeout.as_nanos() as u64;
    let loaded_ns = driven.elapsed_ns.saturating_sub(timeout_ns).max(driven.generated_ns);
    Ok(Measured {
        rate: plan.num as f64 / loaded_ns as f64 * 1e9,
        cpu_us: total_us - generator_us,
        generator_us,
        cores: driven.cpu_ns as f64 / driven.elapsed_ns as f64,
        expired,
        expired_due,
        num: plan.num,
        waited: books.read(Ending::Completed, |page| quantiles_ms(&page.waited)),
        completed_late: books.read(Ending::Completed, |page| quantiles_ms(&page.late)),
        expired_late: books.read(Ending::Expired, |page| quantiles_ms(&page.late)),
        peak_mib,
    })
}

/// The share of latencies above the timeout must be what the distribution says, within what chance
/// allows.
fn check_share(share: f64, plan: &Plan) -> anyhow::Result<()> {
    let expected = plan.workload.expired_share();
    let deviation = (expected * (1.0 - expected) / plan.num as f64).sqrt();
    let off = (share - expected).abs();
    let (share, expected) = (share * 100.0, expected * 100.0);
    ensure!(
        off < 6.0 * deviation + 2.0 / plan.num as f64,
        "{share:.2} % of the latencies are above the timeout; the distribution says {expected:.2} %"
    );
    Ok(())
}

/// What driving the workload through something took.
struct Driven {
    books: &'static Books,
    /// Until the last request was generated, and until the last ended.
    generated_ns: u64,
    elapsed_ns: u64,
    cpu_ns: u64,
    above_timeout: u64,
}

fn drive<W: Waits>(
    plan: &Plan,
    num: u64,
    progress: &ProgressBar,
    make: impl FnOnce(&Books) -> anyhow::Result<W>,
) -> anyhow::Result<Driven> {
    let books = Books::leaked();
    let waits = Arc::new(make(books)?);
    let completes = waits.clone();
    let delays = Delays::start(books.clock, move |tickets| completes.complete(tickets))?;
    let mut samples = plan.workload.samples(plan.seed)?;
    let timeout = plan.workload.timeout;
    let mut above_timeout = 0;

    let cpu_before_ns = process_cpu_ns();
    let base_ns = books.clock.now_ns();
    for number in 0..num {
        let began_ns = pause_until(base_ns + samples.arrival_ns(), books);
        let latency = samples.latency();
        let ticket = waits.park(Request { books, began_ns, latency, timeout });
        if latency < timeout {
            delays.add(began_ns + latency.as_nanos() as u64, ticket);
        } else {
            above_timeout += 1;
        }
        if number % 4096 == 4095 {
            progress.inc(4096);
        }
    }
    let generated_ns = books.clock.now_ns() - base_ns;
    drop(delays); // returns when all were completed
    let expected = if W::EXPIRES { num } else { num - above_timeout };
    let mut seen = (books.ended(), books.clock.now_ns());
    while seen.0 < expected {
        thread::park_timeout(Duration::from_millis(1));
        let (ended, now_ns) = (books.ended(), books.clock.now_ns());
        if ended > seen.0 {
            seen = (ended, now_ns);
        }
        let idle = Duration::from_nanos(now_ns - seen.1);
        ensure!(idle < PATIENCE, "{ended} ended of {num} requests, and no more for {PATIENCE:?}");
    }
    let elapsed_ns = books.clock.now_ns() - base_ns;
    drop(waits);
    let cpu_ns = process_cpu_ns() - cpu_before_ns;
    Ok(Driven { books, generated_ns, elapsed_ns, cpu_ns, above_timeout })
}

/// Waits until a moment that is far enough ahead; returns the present.
fn pause_until(moment_ns: u64, books: &Books) -> u64 {
    loop {
        let now_ns = books.clock.now_ns();
        let ahead_ns = moment_ns.saturating_sub(now_ns);
        if ahead_ns < AHEAD_NS {
            return now_ns;
        }
        thread::park_timeout(Duration::from_nanos(ahead_ns));
    }
}

fn quantiles_ms(histogram: &hdrhistogram::Histogram<u64>) -> [f64; 3] {
    [0.5, 0.99, 1.0].map(|quantile| histogram.value_at_quantile(quantile) as f64 / 1e6)
}

/// Forgets the most memory so far.
fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn peak_mib() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Reads back what [`Measured::json`] wrote.
pub(crate) fn from_json(value: &Value) -> anyhow::Result<Measured> {
    let number = |name: &str| value[name].as_f64().with_context(|| format!("no {name}"));
    let three = |name: &str| {
        let of = |at: usize| value[name][at].as_f64().with_context(|| format!("no {name}"));
        anyhow::Ok([of(0)?, of(1)?, of(2)?])
    };
    Ok(Measured {
        rate: number("rate")?,
        cpu_us: number("cpu_us")?,
        generator_us: number("generator_us")?,
        cores: number("cores")?,
        expired: number("expired")? as u64,
        expired_due: number("expired_due")? as u64,
        num: number("num")? as u64,
        waited: three("waited_ms")?,
        completed_late: three("completed_late_ms")?,
        expired_late: three("expired_late_ms")?,
        peak_mib: value["peak_mib"].as_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_ends_each_request_once() {
        for timer in [TimerKind::Wheel, TimerKind::Heap, TimerKind::First] {
            let timeout = Duration::from_millis(20);
            let workload = Workload { rate: 20_000, p50_ms: 2, p75_ms: 8, timeout };
            let keys = draw_keys(3, 100, 1);
            let plan = Plan { workload, num: 2000, keys, timer, purge: 300, seed: 1 };
            let measured = run(&plan, &ProgressBar::hidden()).unwrap();
            assert_eq!(measured.num, 2000);
            let [p50, p99, max] = measured.waited;
            assert!(0.5 < p50 && p50 < p99 && p99 <= max, "{measured:?}");
            let back = from_json(&measured.json()).unwrap();
            assert_eq!(format!("{back:?}"), format!("{measured:?}"));
        }
    }
}
