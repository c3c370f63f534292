//! One run: the generator by itself, then the same with a purgatory.

use std::{fs, sync::Arc, thread, time::Duration, vec::Drain};

use anyhow::ensure;
use purgatory_benches::{delays::Delays, process_cpu_ns, status_kib};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use timer_core::Clock;

use crate::{
    Args,
    books::{Books, Ending, Request},
    waits::{First, Heap, Nothing, Ours, TimerKind, Waits},
    workload::Workload,
};

/// The generator sleeps only when it is this far ahead; arrivals closer than that come in one go,
/// as in Kafka's test, which counts in milliseconds.
const AHEAD_NS: u64 = 1_000_000;

/// When nothing at all has ended for this long, something is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a run came to.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
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
    pub(crate) waited_ms: [f64; 3],
    pub(crate) completed_late_ms: [f64; 3],
    pub(crate) expired_late_ms: [f64; 3],
    /// The most memory the process had at once, in MiB, where the system tells.
    pub(crate) peak_mib: Option<f64>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Measured> {
    let (workload, num) = (args.workload()?, args.num());
    let mut random = StdRng::seed_from_u64(args.seed);
    // Every request of the run watches these.
    let keys = (0..args.keys).map(|_| random.random_range(0..args.key_space_size)).collect();
    // Half of the requests are enough to tell what the generator costs for each.
    let alone_num = (num / 2).max(1);
    let alone = drive(&workload, alone_num, args.seed, |_| Ok(Nothing))?;
    let _ = fs::write("/proc/self/clear_refs", "5"); // forgets the most memory so far
    let timer = args.timer.unwrap_or(TimerKind::Wheel);
    let driven = match timer {
        TimerKind::Wheel => drive(&workload, num, args.seed, |_| Ours::new(keys)),
        TimerKind::Heap => drive(&workload, num, args.seed, |books| Ours::heap(keys, books.clock)),
        TimerKind::First => {
            drive(&workload, num, args.seed, |books| First::new(keys, args.purge, books.clock))
        }
    }?;
    let peak_mib = status_kib("VmHWM:").map(|kib| kib as f64 / 1024.0);
    let books = driven.books;
    let expired = books.read(Ending::Expired, |page| page.late.len());
    let ended = books.ended();
    ensure!(ended == num, "{ended} ended of {num} requests: some were lost or ended twice");
    let expired_due = driven.above_timeout;
    ensure!(expired >= expired_due, "{expired} expired, of {expired_due} that nothing completes");
    check_share(expired_due as f64 / num as f64, &workload, num)?;

    let generator_us = alone.cpu_ns as f64 / alone_num as f64 / 1e3;
    let total_us = driven.cpu_ns as f64 / num as f64 / 1e3;
    let timeout_ns = workload.timeout.as_nanos() as u64;
    let loaded_ns = driven.elapsed_ns.saturating_sub(timeout_ns).max(driven.generated_ns);
    Ok(Measured {
        rate: num as f64 / loaded_ns as f64 * 1e9,
        cpu_us: total_us - generator_us,
        generator_us,
        cores: driven.cpu_ns as f64 / driven.elapsed_ns as f64,
        expired,
        expired_due,
        num,
        waited_ms: books.read(Ending::Completed, |page| quantiles_ms(&page.waited)),
        completed_late_ms: books.read(Ending::Completed, |page| quantiles_ms(&page.late)),
        expired_late_ms: books.read(Ending::Expired, |page| quantiles_ms(&page.late)),
        peak_mib,
    })
}

/// The share of latencies above the timeout must be what the distribution says, within what chance
/// allows.
fn check_share(share: f64, workload: &Workload, num: u64) -> anyhow::Result<()> {
    let expected = workload.expired_share();
    let deviation = (expected * (1.0 - expected) / num as f64).sqrt();
    let off = (share - expected).abs();
    let (share, expected) = (share * 100.0, expected * 100.0);
    ensure!(
        off < 6.0 * deviation + 2.0 / num as f64,
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
    workload: &Workload,
    num: u64,
    seed: u64,
    make: impl FnOnce(&Books) -> anyhow::Result<W>,
) -> anyhow::Result<Driven> {
    let books = Books::leaked();
    let waits = Arc::new(make(books)?);
    let completes = waits.clone();
    let complete = move |tickets: Drain<'_, _>| completes.complete(tickets);
    let delays = Delays::<Heap<W::Ticket>>::start(books.clock, complete)?;
    let mut samples = workload.samples(seed)?;
    let timeout = workload.timeout;
    let mut above_timeout = 0;

    let cpu_before_ns = process_cpu_ns();
    let base_ns = books.clock.now_ns();
    for _ in 0..num {
        let began_ns = pause_until(base_ns + samples.arrival_ns(), books);
        let latency = samples.latency();
        let ticket = waits.park(Request { books, began_ns, latency, timeout });
        if latency < timeout {
            delays.add(began_ns + latency.as_nanos() as u64, ticket);
        } else {
            above_timeout += 1;
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
