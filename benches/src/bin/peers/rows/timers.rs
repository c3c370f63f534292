//! Rows of timers that do not fire.
//!
//! `schedule-cancel-…` and `random-replace-1m`: the cost of a timeout that is cancelled or moved,
//! on one thread and on two. It includes the clock read that a delay needs. The pending timers
//! belong to the threads that work, and are due in one to two hours. At the end each is cancelled,
//! and must still be pending.
//!
//! `bytes-per-timer`: heap in use while a million timers are pending, divided by their number. A
//! caller's handle is not counted, unless it is the timer. Ours includes a pointer of 16 bytes to
//! the task; the peers, except tokio, include a payload of 8 bytes.

use std::{sync::Barrier, time::Duration};

use anyhow::ensure;
use fastrand::Rng;
use timer_core::{Clock, SystemClock};

use super::row::Run;
use crate::{
    heap::counted,
    sink::Sink,
    timers::{Timer, timers},
};

/// The timeout that is cancelled at once.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The work of threads on a timer.
#[derive(Clone, Copy, Debug)]
struct Churn {
    threads: usize,
    /// Pending timers of all threads together.
    pending: usize,
    /// Whether to replace a pending timer, instead of scheduling a timeout and cancelling it.
    replace: bool,
    operations: usize,
}

/// Returns a random delay of one to two hours.
pub(super) fn far(random: &mut Rng) -> Duration {
    Duration::from_micros(random.u64(3_600_000_000..7_200_000_000))
}

/// Runs `work` on this many threads; each passes its number.
pub(super) fn on_threads<R: Send>(threads: usize, work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        // Start all threads before the first is joined.
        let threads: Vec<_> = (0..threads as u64)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it schedules"))
            .collect()
    })
}

/// Measures nanoseconds per operation of the slowest thread.
fn churn<T: Timer>(of: Churn) -> anyhow::Result<f64> {
    let sink = Sink::leaked(0);
    let timer = T::start(sink)?;
    let together = Barrier::new(of.threads);
    let spent = on_threads(of.threads, |thread| member(&timer, of, thread, &together));
    let spent: Vec<f64> = spent.into_iter().collect::<anyhow::Result<_>>()?;
    // All were cancelled, so nothing is pending and nothing has fired.
    let pending = timer.pending().unwrap_or(0);
    let fired = sink.count();
    ensure!(
        pending == 0,
        "{pending} are pending after all were cancelled"
    );
    ensure!(fired == 0, "{fired} fired that were an hour away");
    Ok(spent.into_iter().fold(0.0, f64::max))
}

/// Fills the timer, works on it together with the other threads, and empties it.
fn member<T: Timer>(timer: &T, of: Churn, thread: u64, together: &Barrier) -> anyhow::Result<f64> {
    let mut random = Rng::with_seed(thread);
    let clock = SystemClock::new();
    let mut local = timer.local();

    // Fill it with this thread's share.
    let share = of.pending / of.threads;
    let fill = |_| T::schedule(&mut local, far(&mut random));
    let mut pending: Vec<_> = (0..share).map(fill).collect();

    // Do everything twice: the first half warms up, the second is measured on all threads at once.
    let mut begin_ns = 0;
    let mut cancelled = 0;
    for operation in 0..2 * of.operations {
        if operation == of.operations {
            together.wait();
            begin_ns = clock.now_ns();
        }
        let was_pending = if of.replace {
            let place = random.usize(0..share);
            T::replace(&mut local, &mut pending[place], far(&mut random))
        } else {
            T::schedule_cancel(&mut local, TIMEOUT)
        };
        cancelled += usize::from(was_pending);
    }
    let spent_ns = clock.now_ns() - begin_ns;

    // Empty it: every timer must have been pending until it was cancelled.
    cancelled += cancel_all::<T>(&mut local, pending);
    let all = share + 2 * of.operations;
    ensure!(
        cancelled == all,
        "{}: {cancelled} of {all} were cancelled",
        T::NAME
    );
    Ok(spent_ns as f64 / of.operations as f64)
}

/// Cancels timers; returns how many of them were pending.
fn cancel_all<T: Timer>(local: &mut T::Local<'_>, timers: Vec<T::Handle>) -> usize {
    let mut cancelled = 0;
    for timer in timers {
        cancelled += usize::from(T::cancel(local, timer));
    }
    cancelled
}

pub(super) fn schedule(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    // The row's name states its work.
    let threads = if id.contains("-2t") { 2 } else { 1 };
    let pending = match id.rsplit('-').next() {
        Some("100k") => run.sizes.hundred_k,
        Some("1m") => run.sizes.one_m,
        _ => 0,
    };
    let of = Churn {
        threads,
        pending,
        replace: id.contains("replace"),
        operations: run.sizes.operations,
    };
    for _ in 0..run.sizes.rounds {
        run.each(id, "ns", &timers!(churn), of)?;
    }
    Ok(())
}

/// Measures bytes of heap per pending timer.
fn bytes_each<T: Timer>(timers: usize) -> anyhow::Result<f64> {
    let timer = T::start(Sink::leaked(0))?;
    let mut local = timer.local();
    let mut random = Rng::with_seed(1);
    let mut handles = Vec::with_capacity(timers);
    let counted = counted(|| {
        for _ in 0..timers {
            let delay = Duration::from_millis(random.u64(3_600_000..7_200_000));
            handles.push(T::schedule(&mut local, delay));
        }
    });

    // All must still be pending.
    let cancelled = cancel_all::<T>(&mut local, handles);
    ensure!(cancelled == timers, "{}: a pending timer is gone", T::NAME);
    Ok(counted.bytes / timers as f64)
}

pub(super) fn bytes(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    run.each(id, "bytes", &timers!(bytes_each), run.sizes.one_m)
}

/// Tests of the self-checks: every row detects a timer that does nothing right.
#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A timer that cancels nothing and fires twice, at once.
    pub(in crate::rows) struct Broken(&'static Sink);

    impl Timer for Broken {
        const NAME: &'static str = "broken";
        type Handle = ();
        type Local<'a> = &'static Sink;

        fn start(sink: &'static Sink) -> anyhow::Result<Self> {
            Ok(Broken(sink))
        }

        fn local(&self) -> &'static Sink {
            self.0
        }

        fn schedule(_: &mut &'static Sink, _: Duration) {}

        fn schedule_firing(sink: &mut &'static Sink, _: Duration, due_ns: u64) {
            sink.fired(due_ns);
            sink.fired(due_ns);
        }

        fn cancel(_: &mut &'static Sink, (): ()) -> bool {
            false
        }

        fn pending(&self) -> Option<usize> {
            None
        }
    }

    #[test]
    fn timer_that_is_not_cancelled_is_noticed() {
        // It loses a new timeout, a replaced timer, or a pending one.
        for (pending, replace, operations) in [(0, false, 8), (1, true, 8), (1, false, 0)] {
            let of = Churn {
                threads: 1,
                pending,
                replace,
                operations,
            };
            assert!(churn::<Broken>(of).is_err());
        }
        assert!(bytes_each::<Broken>(1).is_err());
    }
}
