//! The run: starts the threads, takes a sample each second, brings everything to a standstill now
//! and then, and ends it.

use std::{thread, time::Duration};

use anyhow::anyhow;
use fastrand::Rng;
use hdrhistogram::Histogram;
use purgatory_benches::{status_kib, write};

use crate::{
    Args,
    books::{Books, Wrong},
    clock::JumpingClock,
    driver::Ring,
    faults::Faults,
    memory::{Judge, live_bytes},
    series::{SAMPLES_MAX, Sample, chart, push},
    stop::Stop,
};

/// At a standstill, when nothing has ended for so long, what has not is lost.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND_NS: u64 = 1_000_000_000;

/// Runs it, and prints what it came to. True when nothing was wrong.
pub(crate) fn run(args: &Args, seed: u64, stop: &Stop) -> anyhow::Result<bool> {
    let mut random = Rng::with_seed(seed);
    let books = Books::new(JumpingClock::new(), args.plant)?;
    let (ring, faults) = (Ring::new(&books, stop, args.threads.into())?, Faults::default());
    let (of_visitors, of_faults) = (random.u64(..), random.u64(..));
    let mut watch = Watch {
        args,
        seed,
        ring: &ring,
        faults: &faults,
        memory: Judge::default(),
        standstills: 0,
        lateness_all: books.take_lateness(),
        samples: Vec::with_capacity(SAMPLES_MAX),
        before: (books.clock.real_ns(), 0),
        idle_bytes: None,
    };
    thread::scope(|scope| {
        let (ring, faults) = (&ring, &faults);
        let visits = scope.spawn(move || stopping(stop, || ring.visit(of_visitors)));
        let breaks = scope.spawn(move || stopping(stop, || faults.run(ring, of_faults)));
        let watched = stopping(stop, || {
            for number in 0..usize::from(args.threads) {
                let seed = random.u64(..);
                scope.spawn(move || stopping(stop, || ring.drive(number, args.rate, seed)));
            }
            watch.watch(&mut random)
        });
        visits.join().map_err(|_| anyhow!("a visitor panicked"))?;
        breaks.join().map_err(|_| anyhow!("the thread that makes faults panicked"))??;
        watched
    })?;
    if watch.is_right() {
        watch.standstill(&mut random)?;
        watch.sample();
    }
    println!("{}", watch.table());
    let plot = |file| write(file, &chart(&watch.samples)?);
    args.plot.as_deref().map_or(Ok(()), plot)?;
    Ok(watch.is_right())
}

/// Runs one thread's part. However it ends, all end with it.
fn stopping<R>(stop: &Stop, part: impl FnOnce() -> R) -> R {
    struct Raise<'a>(&'a Stop);
    impl Drop for Raise<'_> {
        fn drop(&mut self) {
            self.0.raise();
        }
    }
    let _raise = Raise(stop);
    part()
}

/// What the first thread sees.
pub(crate) struct Watch<'a> {
    pub(crate) args: &'a Args,
    pub(crate) seed: u64,
    pub(crate) ring: &'a Ring,
    pub(crate) faults: &'a Faults,
    pub(crate) memory: Judge,
    pub(crate) standstills: u64,
    pub(crate) lateness_all: Histogram<u64>,
    samples: Vec<Sample>,
    /// When the last sample was taken, and how many there had been.
    before: (u64, u64),
    idle_bytes: Option<u64>,
}

impl Watch<'_> {
    fn watch(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let (Ring { books, stop, .. }, Args { seconds, progress, .. }) = (self.ring, self.args);
        let (begun_ns, mut second) = (books.clock.real_ns(), 0);
        while !stop.is_raised() && seconds.is_none_or(|seconds| second < seconds) {
            second += 1;
            let next_ns = begun_ns + second * SECOND_NS;
            stop.pause(Duration::from_nanos(next_ns.saturating_sub(books.clock.real_ns())));
            if second % self.args.standstill() == 0 {
                self.standstill(random)?;
            }
            let sample = self.sample();
            if *progress > 0 && second % progress == 0 {
                eprintln!("{}", sample.line(books.operations()));
            }
        }
        Ok(())
    }

    fn sample(&mut self) -> Sample {
        let (books, live_bytes, open) = (&self.ring.books, live_bytes(), self.ring.open());
        let (now_ns, operations) = (books.clock.real_ns(), books.operations());
        let (before_ns, before) = self.before;
        self.before = (now_ns, operations);
        let at_s = now_ns as f64 / 1e9;
        self.memory.live(at_s as u64, live_bytes, open);
        let lateness = books.take_lateness();
        let _ = self.lateness_all.add(&lateness); // as wide
        let ms = |quantile| lateness.value_at_quantile(quantile) as f64 / 1e6;
        let sample = Sample {
            at_s,
            seconds: (now_ns - before_ns) as f64 / 1e9,
            operations: operations - before,
            open,
            live_bytes,
            rss_bytes: status_kib("VmRSS:").unwrap_or(0) * 1024,
            lateness_p50_ms: ms(0.5),
            lateness_max_ms: ms(1.0),
            idle_bytes: self.idle_bytes.take(),
        };
        push(&mut self.samples, sample);
        sample
    }

    /// Everything ends, while nothing else moves; then the books and the memory are looked at.
    fn standstill(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let (ring, faults) = (self.ring, self.faults);
        let _alone = ring.gate.write();
        let lasting = &ring.lasting;
        lasting.end_all();
        let passing = ring.passing.write().take();
        faults.close(passing, random);
        self.wait();
        lasting.account.close(&lasting.name);
        if let Err(left) = lasting.check_empty() {
            ring.books.note(Wrong::Other, 1, &format!("{}: {left:#}", lasting.name));
        }
        faults.settle();
        self.standstills += 1;
        let (bytes, at_s) = (live_bytes(), ring.books.clock.real_ns() / SECOND_NS);
        self.memory.idle(at_s, bytes, self.is_warm(at_s));
        self.idle_bytes = Some(bytes);
        *ring.passing.write() = Some(faults.world(ring)?);
        if !self.is_right() {
            ring.stop.raise();
        }
        Ok(())
    }

    /// Nothing wrong has been seen.
    pub(crate) fn is_right(&self) -> bool {
        self.ring.books.wrong().0 == [0; 4] && self.memory.grew.is_empty()
    }

    /// After a quarter of the run, or ten minutes, and two standstills.
    fn is_warm(&self, at_s: u64) -> bool {
        let quarter = self.args.seconds.map_or(u64::MAX, |seconds| seconds / 4);
        self.standstills > 2 && at_s >= quarter.min(600)
    }

    /// Waits until nothing is under way.
    fn wait(&self) {
        let (ring, faults) = (self.ring, self.faults);
        let (mut since_ns, mut before) = (ring.books.clock.real_ns(), u64::MAX);
        loop {
            let collected = ring.collect();
            let pending = ring.lasting.account.pending() + faults.pending();
            let now_ns = ring.books.clock.real_ns();
            if pending < before {
                (since_ns, before) = (now_ns, pending);
            }
            if collected && pending == 0 || now_ns - since_ns > PATIENCE_NS {
                return;
            }
            thread::park_timeout(MILLISECOND);
        }
    }
}
