//! The run: starts the threads, takes a sample each second, brings everything to a standstill now
//! and then, and ends it.

use std::{sync::Arc, thread, time::Duration};

use anyhow::anyhow;
use fastrand::Rng;
use hdrhistogram::Histogram;

use crate::{
    Args,
    books::{Books, Wrong},
    clock::JumpingClock,
    driver::Ring,
    faults::Faults,
    memory::{Judge, Memory},
    series::{Sample, Series},
    stop::Stop,
};

/// At a standstill, when nothing has ended for so long, what has not is lost.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND_NS: u64 = 1_000_000_000;

/// What it came to.
pub(crate) struct Measured<'a> {
    pub(crate) watch: Watch<'a>,
    pub(crate) ring: Ring,
    pub(crate) faults: Faults,
}

/// Runs it; `progress` is told of each sample.
pub(crate) fn run<'a>(
    args: &'a Args,
    seed: u64,
    stop: &Stop,
    mut progress: impl FnMut(&Sample, &Books),
) -> anyhow::Result<Measured<'a>> {
    let mut random = Rng::with_seed(seed);
    let clock = JumpingClock::new();
    let books = Books::new(clock, args.plant)?;
    let ring = Ring::new(&books, stop, args.threads.into())?;
    let faults = Faults::default();
    let mut watch = Watch::new(args, seed, books.clone())?;
    let (of_visitors, of_faults) = (random.u64(..), random.u64(..));
    thread::scope(|scope| {
        let (ring, faults) = (&ring, &faults);
        let visits = scope.spawn(move || stopping(stop, || ring.visit(of_visitors)));
        let breaks = scope.spawn(move || stopping(stop, || faults.run(ring, of_faults)));
        let watched = stopping(stop, || {
            for number in 0..usize::from(args.threads) {
                let seed = random.u64(..);
                let drive = move || stopping(stop, || ring.drive(number, args.rate, seed));
                let driver = thread::Builder::new().name(format!("driver {number}"));
                driver.spawn_scoped(scope, drive)?;
            }
            watch.watch(ring, faults, &mut random, &mut progress)
        });
        visits.join().map_err(|_| anyhow!("a visitor panicked"))??;
        breaks.join().map_err(|_| anyhow!("the thread that makes faults panicked"))??;
        watched
    })?;
    if watch.is_right() {
        watch.standstill(&ring, &faults, &mut random)?;
        progress(&watch.sample(&ring), &books);
    }
    Ok(Measured { watch, ring, faults })
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
    args: &'a Args,
    pub(crate) seed: u64,
    pub(crate) books: Arc<Books>,
    pub(crate) series: Series,
    pub(crate) memory: Judge,
    pub(crate) standstills: u64,
    /// When the last sample was taken, and how many there had been.
    before: (u64, u64),
    idle_bytes: Option<u64>,
    pub(crate) open_max: u64,
    lateness: Histogram<u64>,
    pub(crate) lateness_all: Histogram<u64>,
}

impl<'a> Watch<'a> {
    fn new(args: &'a Args, seed: u64, books: Arc<Books>) -> anyhow::Result<Self> {
        let mut lateness = Histogram::new(2)?;
        books.take_lateness(&mut lateness);
        Ok(Watch {
            args,
            seed,
            series: Series::new(),
            memory: Judge::default(),
            standstills: 0,
            before: (books.clock.real_ns(), 0),
            books,
            idle_bytes: None,
            open_max: 0,
            lateness_all: lateness.clone(),
            lateness,
        })
    }

    fn watch(
        &mut self,
        ring: &Ring,
        faults: &Faults,
        random: &mut Rng,
        progress: &mut impl FnMut(&Sample, &Books),
    ) -> anyhow::Result<()> {
        let (begun_ns, mut second) = (self.books.clock.real_ns(), 0);
        while !ring.stop.is_raised() && self.args.seconds.is_none_or(|seconds| second < seconds) {
            second += 1;
            let next_ns = begun_ns + second * SECOND_NS;
            let wait_ns = next_ns.saturating_sub(self.books.clock.real_ns());
            ring.stop.pause(Duration::from_nanos(wait_ns));
            if second % self.args.standstill() == 0 {
                self.standstill(ring, faults, random)?;
            }
            progress(&self.sample(ring), &self.books);
        }
        Ok(())
    }

    fn sample(&mut self, ring: &Ring) -> Sample {
        let (memory, open) = (Memory::now(), ring.open());
        let (now_ns, operations) = (self.books.clock.real_ns(), self.books.operations());
        let (before_ns, before) = self.before;
        self.before = (now_ns, operations);
        self.open_max = self.open_max.max(open);
        let at_s = now_ns as f64 / 1e9;
        self.memory.live(at_s as u64, memory, open);
        self.books.take_lateness(&mut self.lateness);
        let _ = self.lateness_all.add(&self.lateness); // as wide
        let ms = |quantile| self.lateness.value_at_quantile(quantile) as f64 / 1e6;
        let sample = Sample {
            at_s,
            seconds: (now_ns - before_ns) as f64 / 1e9,
            operations: operations - before,
            open,
            live_bytes: memory.live_bytes,
            rss_bytes: memory.rss_bytes,
            lateness_p50_ms: ms(0.5),
            lateness_max_ms: ms(1.0),
            idle_bytes: self.idle_bytes.take(),
        };
        self.series.push(sample);
        sample
    }

    /// Everything ends, while nothing else moves; then the books and the memory are looked at.
    fn standstill(&mut self, ring: &Ring, faults: &Faults, random: &mut Rng) -> anyhow::Result<()> {
        let _alone = ring.gate.write();
        let lasting = &ring.lasting;
        lasting.end_all();
        let passing = ring.passing.write().take();
        faults.close(passing, random);
        self.wait(ring, faults);
        lasting.account.close(&lasting.name);
        if let Err(left) = lasting.check_empty() {
            self.books.odd(&format!("{}: {left:#}", lasting.name));
        }
        faults.settle();
        let memory = Memory::now();
        self.standstills += 1;
        let at_s = self.books.clock.real_ns() / SECOND_NS;
        self.memory.idle(at_s, memory, self.is_warm());
        self.idle_bytes = Some(memory.live_bytes);
        *ring.passing.write() = Some(faults.world(ring)?);
        if !self.is_right() {
            ring.stop.raise();
        }
        Ok(())
    }

    /// Nothing wrong has been seen.
    pub(crate) fn is_right(&self) -> bool {
        self.books.wrong().0 == Wrong::default() && self.memory.grew.is_empty()
    }

    /// After a quarter of the run, or ten minutes, and two standstills.
    fn is_warm(&self) -> bool {
        let quarter = self.args.seconds.map_or(u64::MAX, |seconds| seconds / 4);
        let now_s = self.books.clock.real_ns() / SECOND_NS;
        self.standstills > 2 && now_s >= quarter.min(600)
    }

    /// Waits until nothing is under way.
    fn wait(&self, ring: &Ring, faults: &Faults) {
        let (mut since_ns, mut before) = (self.books.clock.real_ns(), u64::MAX);
        loop {
            let collected = ring.collect();
            let pending = ring.lasting.account.pending() + faults.pending();
            if collected && pending == 0 && faults.all_closed() {
                return;
            }
            let now_ns = self.books.clock.real_ns();
            if pending < before {
                (since_ns, before) = (now_ns, pending);
            }
            if now_ns - since_ns > PATIENCE_NS {
                return;
            }
            thread::park_timeout(MILLISECOND);
        }
    }
}
