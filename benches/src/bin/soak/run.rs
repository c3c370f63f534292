//! The run: starts the threads, brings everything to a standstill now and then, and prints the
//! result.

use std::{
    alloc::System,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use anyhow::anyhow;
use clap::ValueEnum;
use fastrand::Rng;
use purgatory_benches::{grouped, name};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::{
    Args,
    books::{Books, Ending, Wrong},
    driver::{Fault, Ring, Stop, break_things},
    inject::JumpingClock,
};

/// At a standstill an open operation is lost once nothing has ended for this long.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
/// Threads that park and complete.
const DRIVERS: usize = 2;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND_NS: u64 = 1_000_000_000;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The bytes by which idle memory may grow. The levels of a wheel and its pages are made when they
/// are first used, the fourth level not before 262 s: some are made after the warm-up.
const SLACK: u64 = 1 << 20;

/// Bytes that are allocated now.
fn live_bytes() -> u64 {
    let stats = ALLOCATOR.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated) as u64
}

/// Bytes at the standstills, where everything has ended and the passing world is gone; what is left
/// is the lasting world, empty, and the soak itself. That must be what it was when the warm-up was
/// over, but for [`SLACK`], however many operations went by.
#[derive(Clone, Debug, Default)]
struct Idle {
    /// At the end of the warm-up.
    base: Option<u64>,
    /// At the latest standstill after that.
    latest: Option<u64>,
    grew: bool,
}

impl Idle {
    fn note(&mut self, bytes: u64, warm: bool) {
        match self.base {
            Some(base) => {
                self.latest = Some(bytes);
                self.grew |= bytes > base + SLACK;
            }
            None if warm => self.base = Some(bytes),
            None => {}
        }
    }
}

/// Runs the soak, and prints its table. True when nothing was wrong.
pub(crate) fn run(args: &Args, seed: u64, stop: &Stop) -> anyhow::Result<bool> {
    let mut random = Rng::with_seed(seed);
    let books = Books::new(JumpingClock::new(), args.plant);
    let ring = &Ring::new(books, stop)?;
    let of_faults = random.u64(..);
    let mut watch = Watch {
        args,
        ring,
        idle: Idle::default(),
        standstills: 0,
    };
    thread::scope(|scope| {
        let breaks = scope.spawn(move || stopping(stop, || break_things(ring, of_faults)));
        let watched = stopping(stop, || {
            for _ in 0..DRIVERS {
                let seed = random.u64(..);
                scope.spawn(move || stopping(stop, || ring.drive(args.rate, seed)));
            }
            watch.watch(&mut random)
        });
        breaks
            .join()
            .map_err(|_| anyhow!("the thread that makes faults panicked"))??;
        watched
    })?;
    if watch.is_right() {
        watch.standstill(&mut random)?;
    }
    println!("{}", watch.table(seed));
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

/// The first thread's view of the run.
struct Watch<'a> {
    args: &'a Args,
    ring: &'a Ring,
    idle: Idle,
    standstills: u64,
}

impl Watch<'_> {
    fn watch(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let (
            Ring { books, stop, .. },
            Args {
                seconds, progress, ..
            },
        ) = (self.ring, self.args);
        let (begun_ns, mut second) = (books.clock.real_ns(), 0);
        while !stop.is_raised() && seconds.is_none_or(|seconds| second < seconds) {
            second += 1;
            let next_ns = begun_ns + second * SECOND_NS;
            stop.pause(Duration::from_nanos(
                next_ns.saturating_sub(books.clock.real_ns()),
            ));
            if second % self.args.standstill() == 0 {
                self.standstill(random)?;
            }
            if *progress > 0 && second % progress == 0 {
                let (parked, open) = (grouped(books.operations()), grouped(books.pending()));
                let live = live_bytes() >> 20;
                eprintln!("{second:>6} s: {parked} operations, {open} open, {live} MiB live");
            }
        }
        Ok(())
    }

    /// Everything ends, while nothing else moves; then the books and the memory are looked at.
    fn standstill(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let ring = self.ring;
        let _alone = ring.gate.write();
        ring.lasting.end_all();
        let passing = ring.passing.write().take();
        ring.close(passing, random);
        self.wait();
        ring.books.close();
        if let Err(left) = ring.lasting.check_empty() {
            ring.books.note(Wrong::Other, 1, &format!("{left:#}"));
        }
        ring.closed
            .lock()
            .drain(..)
            .for_each(|closed| closed.stall.join());
        self.standstills += 1;
        // The warm-up is a quarter of the run, or ten minutes, and two standstills.
        let quarter = self.args.seconds.map_or(u64::MAX, |seconds| seconds / 4);
        let warm = ring.books.clock.real_ns() / SECOND_NS >= quarter.min(600);
        self.idle.note(live_bytes(), warm && self.standstills > 2);
        ring.pass()?;
        if !self.is_right() {
            ring.stop.raise();
        }
        Ok(())
    }

    /// Waits until nothing is under way.
    fn wait(&self) {
        let (ring, clock) = (self.ring, &self.ring.books.clock);
        let (mut since_ns, mut before) = (clock.real_ns(), u64::MAX);
        loop {
            let collected = ring.collect();
            let closing = ring
                .closed
                .lock()
                .iter()
                .filter(|closed| !closed.is_over())
                .count();
            let pending = ring.books.pending() + closing as u64;
            let now_ns = clock.real_ns();
            if pending < before {
                (since_ns, before) = (now_ns, pending);
            }
            if collected && pending == 0 || now_ns - since_ns > PATIENCE_NS {
                return;
            }
            thread::park_timeout(MILLISECOND);
        }
    }

    /// Nothing wrong has been seen.
    fn is_right(&self) -> bool {
        self.ring.books.wrong().0 == [0; 4] && !self.idle.grew
    }

    /// The table of the run; its last line names the faults, or says that there was none.
    fn table(&self, seed: u64) -> String {
        let (books, Idle { base, latest, grew }) = (&self.ring.books, &self.idle);
        let ended = Ending::value_variants().iter().zip(books.endings());
        let ended: Vec<_> = ended
            .map(|(e, count)| format!("{} {}", name(e), grouped(count)))
            .collect();
        let fault = |(fault, count): (&Fault, &AtomicU64)| {
            format!("{} {}", name(fault), count.load(SeqCst))
        };
        let faults: Vec<_> = Fault::value_variants()
            .iter()
            .zip(&self.ring.faults)
            .map(fault)
            .collect();
        let seconds = books.clock.real_ns() as f64 / 1e9;
        let operations = grouped(books.operations());
        let rate = grouped((books.operations() as f64 / seconds) as u64);
        let idle = |bytes: &Option<u64>| bytes.map_or("no standstill".to_owned(), grouped);
        let ([lost, doubled, early, other], told) = books.wrong();
        let right = if self.is_right() { "ok" } else { "FAILED" };
        let memory = match (grew, latest) {
            (true, _) => "memory GREW",
            (false, None) => "memory not judged: no standstill after the warm-up",
            (false, _) => "memory flat",
        };
        let mut lines = vec![
            format!("ended: {}", ended.join(", ")),
            format!(
                "seed {seed}, {seconds:.1} s, {rate} a second, {} standstills",
                self.standstills
            ),
            format!("faults: {}", faults.join(", ")),
            format!(
                "idle memory, bytes: {} when warm, {} at the end",
                idle(base),
                idle(latest)
            ),
        ];
        lines.extend(told);
        lines.push(format!(
            "{right}: {operations} operations, lost {lost}, doubled {doubled}, early {early}, \
             otherwise wrong {other}, {memory}"
        ));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_memory_may_grow_by_the_slack() {
        let mut idle = Idle::default();
        idle.note(9 << 20, false);
        idle.note(1 << 20, true);
        idle.note((1 << 20) + SLACK, true);
        assert!(!idle.grew);
        idle.note((1 << 20) + SLACK + 1, true);
        assert!(idle.grew);
    }
}
