//! The run: starts the threads, brings everything to a standstill now and then, and prints the
//! result.

use std::{alloc::System, sync::atomic::Ordering::SeqCst, thread, time::Duration};

use anyhow::anyhow;
use clap::ValueEnum;
use fastrand::Rng;
use purgatory_benches::{grouped, name};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::{
    Args,
    books::{Books, Ending, Wrong},
    driver::{Fault, Shared, Stop, break_things},
    inject::JumpingClock,
};

/// At a standstill open operations count as lost when none has ended for this long.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
/// The number of threads that park and complete.
const DRIVERS: usize = 2;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND_NS: u64 = 1_000_000_000;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of bytes by which idle memory may grow. The levels of a wheel and its pages are
/// created on first use, the fourth level not before 262 s, so some are created after the warm-up.
const SLACK: u64 = 1 << 20;

/// Returns the number of bytes that are allocated now.
fn live_bytes() -> u64 {
    let stats = ALLOCATOR.stats();
    stats
        .bytes_allocated
        .saturating_sub(stats.bytes_deallocated) as u64
}

/// Bytes at the standstills, where everything has ended and the passing world is gone. What remains
/// is the lasting world, empty, and the soak itself. That must not grow after the warm-up by more
/// than [`SLACK`], after any number of operations.
#[derive(Clone, Debug, Default)]
struct Idle {
    /// At the end of the warm-up.
    base: Option<u64>,
    /// At the latest standstill after that.
    latest: Option<u64>,
    grew: bool,
}

impl Idle {
    /// Records the bytes at a standstill.
    fn note(&mut self, bytes: u64, warm: bool) {
        match self.base {
            Some(base) => {
                self.latest = Some(bytes);
                self.grew |= bytes > base + SLACK;
            }
            // The warm-up ends with the first standstill at which it is over.
            None if warm => self.base = Some(bytes),
            None => {}
        }
    }
}

/// Runs the soak, and prints its table; true when nothing was wrong.
pub(crate) fn run(args: &Args, seed: u64, stop: &Stop) -> anyhow::Result<bool> {
    let mut random = Rng::with_seed(seed);
    let books = Books::new(JumpingClock::new(), args.plant);
    let shared = &Shared::new(books, stop)?;
    let fault_seed = random.u64(..);
    let mut watch = Watch {
        args,
        shared,
        idle: Idle::default(),
        standstills: 0,
    };

    // This thread watches, beside one that makes faults and the drivers. All end with the first.
    thread::scope(|scope| {
        let breaks = scope.spawn(move || stopping(stop, || break_things(shared, fault_seed)));
        let watched = stopping(stop, || {
            for _ in 0..DRIVERS {
                let seed = random.u64(..);
                scope.spawn(move || stopping(stop, || shared.drive(args.rate, seed)));
            }
            watch.watch(&mut random)
        });
        breaks
            .join()
            .map_err(|_| anyhow!("the thread that makes faults panicked"))??;
        watched
    })?;

    // The last standstill checks what has happened since the one before.
    if watch.is_right() {
        watch.standstill(&mut random)?;
    }
    println!("{}", watch.table(seed));
    Ok(watch.is_right())
}

/// Runs one thread's part, and stops the run when it ends, also by a panic.
fn stopping<R>(stop: &Stop, part: impl FnOnce() -> R) -> R {
    struct SetOnDrop<'a>(&'a Stop);
    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.set();
        }
    }
    let _set_on_drop = SetOnDrop(stop);
    part()
}

/// The first thread's part: standstills, progress, and the result.
struct Watch<'a> {
    args: &'a Args,
    shared: &'a Shared,
    idle: Idle,
    standstills: u64,
}

impl Watch<'_> {
    fn watch(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let args = self.args;
        let books = &self.shared.books;
        let stop = &self.shared.stop;
        let seconds_max = args.seconds.unwrap_or(u64::MAX);
        let begun_ns = books.clock.real_ns();
        let mut second = 0;
        while !stop.is_set() && second < seconds_max {
            // Sleep until the next full second.
            second += 1;
            let next_ns = begun_ns + second * SECOND_NS;
            let ahead_ns = next_ns.saturating_sub(books.clock.real_ns());
            stop.pause(Duration::from_nanos(ahead_ns));

            if second % args.standstill() == 0 {
                self.standstill(random)?;
            }
            if args.progress > 0 && second % args.progress == 0 {
                let parked = grouped(books.operations());
                let open = grouped(books.pending());
                let live = live_bytes() >> 20;
                eprintln!("{second:>6} s: {parked} operations, {open} open, {live} MiB live");
            }
        }
        Ok(())
    }

    /// Ends everything while no other thread moves, then checks the books and the memory.
    fn standstill(&mut self, random: &mut Rng) -> anyhow::Result<()> {
        let shared = self.shared;
        let _standstill = shared.gate.write();

        // End the operations of both worlds, and the passing world itself.
        shared.lasting.end_all();
        let passing = shared.passing.write().take();
        shared.close(passing, random);
        self.wait_until_ended();

        // An operation that is open now is lost, and nothing may remain in the lasting world.
        shared.books.close();
        if let Err(remains) = shared.lasting.check_empty() {
            shared.books.note(Wrong::Other, 1, &format!("{remains:#}"));
        }

        // Join the workers of closed worlds, which hold memory.
        for closed in shared.closed.lock().drain(..) {
            closed.stall.join();
        }

        // Compare the memory. The warm-up is a quarter of the run, or ten minutes, and two
        // standstills.
        self.standstills += 1;
        let quarter = self.args.seconds.map_or(u64::MAX, |seconds| seconds / 4);
        let warm = shared.books.clock.real_ns() / SECOND_NS >= quarter.min(600);
        self.idle.note(live_bytes(), warm && self.standstills > 2);

        // Go on with a new passing world, unless something was wrong.
        shared.replace_passing()?;
        if !self.is_right() {
            shared.stop.set();
        }
        Ok(())
    }

    /// Waits until nothing is under way, or nothing has ended for a while.
    fn wait_until_ended(&self) {
        let shared = self.shared;
        let clock = &shared.books.clock;
        let mut since_ns = clock.real_ns();
        let mut before = u64::MAX;
        loop {
            // Futures, closed worlds, and operations without an outcome.
            let collected = shared.collect();
            let closing = shared
                .closed
                .lock()
                .iter()
                .filter(|closed| !closed.is_over())
                .count();
            let pending = shared.books.pending() + closing as u64;
            let now_ns = clock.real_ns();

            // Be patient as long as something ends.
            if pending < before {
                before = pending;
                since_ns = now_ns;
            }
            if collected && pending == 0 || now_ns - since_ns > PATIENCE_NS {
                return;
            }
            thread::park_timeout(MILLISECOND);
        }
    }

    /// Returns whether nothing was wrong so far.
    fn is_right(&self) -> bool {
        self.shared.books.faults().counts == [0; 4] && !self.idle.grew
    }

    /// Formats the table of the run. Its last line gives the faults, or says that there was none.
    fn table(&self, seed: u64) -> String {
        let books = &self.shared.books;
        let Idle { base, latest, grew } = &self.idle;

        // Operations by ending, then faults by kind.
        let count = |name: String, count: u64| format!("{name} {}", grouped(count));
        let endings = Ending::value_variants().iter().zip(books.endings());
        let ended: Vec<_> = endings.map(|(ending, n)| count(name(ending), n)).collect();
        let kinds = Fault::value_variants().iter().zip(&self.shared.faults);
        let made: Vec<_> = kinds
            .map(|(fault, n)| count(name(fault), n.load(SeqCst)))
            .collect();

        let seconds = books.clock.real_ns() as f64 / 1e9;
        let operations = grouped(books.operations());
        let rate = grouped((books.operations() as f64 / seconds) as u64);
        let standstills = self.standstills;
        let bytes = |idle: &Option<u64>| idle.map_or("no standstill".to_owned(), grouped);
        let warm = bytes(base);
        let end = bytes(latest);
        let mut lines = vec![
            format!("ended: {}", ended.join(", ")),
            format!("seed {seed}, {seconds:.1} s, {rate} a second, {standstills} standstills"),
            format!("faults: {}", made.join(", ")),
            format!("idle memory, bytes: {warm} when warm, {end} at the end"),
        ];

        // The first faults in words, then the verdict.
        let faults = books.faults();
        lines.extend(faults.described);
        let [lost, doubled, early, other] = faults.counts;
        let verdict = if self.is_right() { "ok" } else { "FAILED" };
        let memory = match (grew, latest) {
            (true, _) => "memory GREW",
            (false, None) => "memory not judged: no standstill after the warm-up",
            (false, _) => "memory flat",
        };
        lines.push(format!(
            "{verdict}: {operations} operations, lost {lost}, doubled {doubled}, early {early}, \
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
        // The warm-up does not count.
        idle.note(9 << 20, false);
        idle.note(1 << 20, true);
        idle.note((1 << 20) + SLACK, true);
        assert!(!idle.grew);
        idle.note((1 << 20) + SLACK + 1, true);
        assert!(idle.grew);
    }
}
