//! One run: a generator parks requests at a rate, and a thread completes them at their latency.

use std::{sync::Arc, thread, time::Duration, vec::Drain};

use anyhow::ensure;
use purgatory_benches::{
    delays::{Delays, Heap},
    process_cpu_ns,
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use timer_core::Clock;

use crate::{
    Args,
    waits::{Books, Ending, First, Ours, Request, TimerKind, Waits},
    workload::{Samples, Workload},
};

/// The generator sleeps only when it is this far ahead. Arrivals closer than that come together, as
/// in Kafka's test, which counts in milliseconds.
const AHEAD_NS: u64 = 1_000_000;
/// Requests count as lost when none has ended for this long.
const PATIENCE_NS: u64 = 20_000_000_000;
/// The seed of the samples.
const SEED: u64 = 1;

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Requests per second, from the first to the last ending less the timeout.
    pub(crate) rate: f64,
    /// Processor time of the process per request, the generator's share included.
    pub(crate) cpu_us: f64,
    /// The 99th percentiles of lateness.
    pub(crate) completed_late_ms: f64,
    pub(crate) expired_late_ms: f64,
}

pub(crate) fn run(args: &Args, workload: &Workload, timer: TimerKind) -> anyhow::Result<Measured> {
    let mut random = StdRng::seed_from_u64(SEED);
    // All requests of a run watch the same keys.
    let keys = (0..args.keys)
        .map(|_| random.random_range(0..args.key_space_size))
        .collect();
    // Leaked, as every request refers to them.
    let books: &Books = Box::leak(Box::new(Books::new()));
    let num = args.num(workload.rate);
    match timer {
        TimerKind::Wheel => drive(Ours::new(keys)?, books, workload, num),
        TimerKind::First => drive(First::new(keys, books.clock)?, books, workload, num),
    }
}

fn drive<W: Waits>(
    waits: W,
    books: &'static Books,
    workload: &Workload,
    num: u64,
) -> anyhow::Result<Measured> {
    // A delay queue completes each request at its latency.
    let waits = Arc::new(waits);
    let completes = waits.clone();
    let complete = move |tickets: Drain<'_, _>| completes.complete(tickets);
    let delays = Delays::<Heap<W::Ticket>>::start(books.clock, complete)?;

    // Park all requests, each at its arrival.
    let samples = workload.samples(SEED)?;
    let cpu_before_ns = process_cpu_ns();
    let base_ns = books.clock.now_ns();
    let above_timeout = generate(&*waits, &delays, books, samples, workload.timeout, num);
    let generated_ns = books.clock.now_ns() - base_ns;

    // Wait until all have ended; dropping the delay queue waits for the last completion.
    drop(delays);
    all_ended(books, num)?;
    let elapsed_ns = books.clock.now_ns() - base_ns;
    drop(waits);
    let cpu_ns = process_cpu_ns() - cpu_before_ns;

    // Each must have ended once, and what is slower than its timeout must have expired.
    let ended = books.ended();
    let expired = books.ended_as(Ending::Expired);
    ensure!(
        ended == num,
        "{ended} ended of {num} requests: some ended twice"
    );
    ensure!(
        expired >= above_timeout,
        "{expired} expired, and {above_timeout} should have"
    );

    // The last timeout is no load, unless the generator itself took longer.
    let timeout_ns = workload.timeout.as_nanos() as u64;
    let loaded_ns = elapsed_ns.saturating_sub(timeout_ns).max(generated_ns);
    Ok(Measured {
        rate: num as f64 / loaded_ns as f64 * 1e9,
        cpu_us: cpu_ns as f64 / num as f64 / 1e3,
        completed_late_ms: books.late_ms(Ending::Completed),
        expired_late_ms: books.late_ms(Ending::Expired),
    })
}

/// Parks requests, each at its arrival, and has those completed in time that take less than the
/// timeout. Returns how many take longer, and will expire.
fn generate<W: Waits>(
    waits: &W,
    delays: &Delays<Heap<W::Ticket>>,
    books: &'static Books,
    mut samples: Samples,
    timeout: Duration,
    num: u64,
) -> u64 {
    let mut above_timeout = 0;
    let base_ns = books.clock.now_ns();
    for _ in 0..num {
        // Not earlier than its arrival; later if the generator is behind.
        let began_ns = pause_until(base_ns + samples.arrival_ns(), books);
        let latency = samples.latency();
        let ticket = waits.park(Request {
            books,
            began_ns,
            latency,
            timeout,
        });
        // The slower ones are left to their timeout.
        if latency < timeout {
            delays.add(began_ns + latency.as_nanos() as u64, ticket);
        } else {
            above_timeout += 1;
        }
    }
    above_timeout
}

/// Waits until every request has ended.
fn all_ended(books: &Books, num: u64) -> anyhow::Result<()> {
    let mut ended = books.ended();
    let mut since_ns = books.clock.now_ns();
    while ended < num {
        thread::park_timeout(Duration::from_millis(1));
        // Be patient as long as something ends.
        let now_ns = books.clock.now_ns();
        let ended_now = books.ended();
        if ended_now > ended {
            ended = ended_now;
            since_ns = now_ns;
        }
        ensure!(
            now_ns - since_ns < PATIENCE_NS,
            "{ended} ended of {num} requests: some were lost"
        );
    }
    Ok(())
}

/// Sleeps until shortly before a moment; returns the time now.
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
