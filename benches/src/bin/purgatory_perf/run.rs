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
    waits::{Books, Ending, Request, TIMEOUT, Waits},
    workload::{Profile, Samples},
};

/// The number of keys that every request watches, and the number of keys from which they are drawn.
const KEYS: usize = 3;
const KEY_SPACE: u32 = 100;
/// The generator sleeps only when it is this far ahead. Arrivals that are closer come together, as
/// in Kafka's test, which counts in milliseconds.
const AHEAD_NS: u64 = 1_000_000;
/// Requests count as lost if they have not ended this long after the last was parked.
const PATIENCE_NS: u64 = 60_000_000_000;
/// The seed of the samples.
const SEED: u64 = 1;

/// The load of a run.
pub(crate) struct Load {
    pub(crate) profile: Profile,
    /// Requests per second; 0 for as many as the generator manages.
    pub(crate) rate: u64,
    pub(crate) requests: u64,
}

/// The result of a run.
pub(crate) struct Measured {
    /// Requests per second, from the first arrival to the last ending, less the timeout.
    pub(crate) rate: f64,
    /// Processor time of the process per request, the generator's share included.
    pub(crate) cpu_us: f64,
    /// The 99th percentiles of lateness.
    pub(crate) completed_late_ms: f64,
    pub(crate) expired_late_ms: f64,
}

pub(crate) fn run<W: Waits>(load: &Load) -> anyhow::Result<Measured> {
    // All requests of a run watch the same keys, and refer to the same books, which are leaked.
    let mut random = StdRng::seed_from_u64(SEED);
    let keys = std::array::from_fn::<_, KEYS, _>(|_| random.random_range(0..KEY_SPACE));
    let books: &Books = Box::leak(Box::new(Books::new(keys.to_vec())));

    // A delay queue completes each request at its latency.
    let waits = Arc::new(W::new(books.clock)?);
    let completes = waits.clone();
    let delays = Delays::start(books.clock, move |tickets: Drain<'_, W::Ticket>| {
        for ticket in tickets {
            completes.complete(ticket);
        }
    })?;

    // Park all requests, each at its arrival.
    let samples = Samples::new(load.profile, load.rate, SEED)?;
    let cpu_before_ns = process_cpu_ns();
    let base_ns = books.clock.now_ns();
    let above_timeout = generate(&*waits, &delays, books, samples, load.requests);
    let generated_ns = books.clock.now_ns() - base_ns;

    // Wait until all have ended; dropping the delay queue waits for the last completion.
    drop(delays);
    while books.ended() < load.requests {
        thread::park_timeout(Duration::from_millis(1));
        let waited_ns = books.clock.now_ns() - base_ns - generated_ns;
        ensure!(waited_ns < PATIENCE_NS, "some requests were lost");
    }
    let elapsed_ns = books.clock.now_ns() - base_ns;
    drop(waits);
    let cpu_ns = process_cpu_ns() - cpu_before_ns;

    // Each request must have ended once; those slower than their timeout must have expired.
    let ended = books.ended();
    let expired = books.ended_as(Ending::Expired);
    ensure!(ended == load.requests, "{ended}: some ended twice");
    ensure!(
        expired >= above_timeout,
        "{expired} expired, and {above_timeout} should have"
    );

    // The last timeout is not load, unless the generator itself took longer.
    let timeout_ns = TIMEOUT.as_nanos() as u64;
    let loaded_ns = elapsed_ns.saturating_sub(timeout_ns).max(generated_ns);
    let requests = load.requests as f64;
    Ok(Measured {
        rate: requests / loaded_ns as f64 * 1e9,
        cpu_us: cpu_ns as f64 / requests / 1e3,
        completed_late_ms: books.late_ms(Ending::Completed),
        expired_late_ms: books.late_ms(Ending::Expired),
    })
}

/// Parks requests, each at its arrival. Those that take less than the timeout are completed in
/// time. Returns how many take longer, and will expire.
fn generate<W: Waits>(
    waits: &W,
    delays: &Delays<Heap<W::Ticket>>,
    books: &'static Books,
    mut samples: Samples,
    requests: u64,
) -> u64 {
    let mut above_timeout = 0;
    let base_ns = books.clock.now_ns();
    for _ in 0..requests {
        // Not earlier than its arrival, but later if the generator is behind.
        let began_ns = pause_until(base_ns + samples.arrival_ns(), books);
        let latency = samples.latency();
        let ticket = waits.park(Request {
            books,
            began_ns,
            latency,
        });
        // Slower requests are left to their timeout.
        if latency < TIMEOUT {
            delays.add(began_ns + latency.as_nanos() as u64, ticket);
        } else {
            above_timeout += 1;
        }
    }
    above_timeout
}

/// Sleeps until shortly before a moment; returns the present time.
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
