//! A timer's counts, and what it reports.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use timer_core::{ManualTimer, SystemTimer, TickLength, Timer, TimerStats, WheelSize};

use crate::support::{HOUR, MS};

/// Pending, fired, cancelled, cascaded.
fn counts(stats: &TimerStats) -> [u64; 4] {
    [stats.pending, stats.fired, stats.cancelled, stats.cascaded]
}

#[test]
fn tasks_are_counted_from_start_to_end() {
    let timer = ManualTimer::with(TickLength::default(), WheelSize::KAFKA);
    let handles = [5, 30, 450].map(|ms| timer.schedule(ms * MS, || ()).unwrap());
    assert_eq!((counts(&timer.stats()), timer.len()), ([3, 0, 0, 0], 3));
    assert!(timer.is_pending(handles[1]) && timer.cancel(handles[1]));
    assert!(!timer.cancel(handles[1]) && !timer.is_pending(handles[1]));
    assert_eq!(counts(&timer.stats()), [2, 0, 1, 0]);
    timer.advance(435 * MS); // hands the last one down: its bucket begins at 440 ms
    assert_eq!(counts(&timer.stats()), [1, 1, 1, 1]);
    timer.advance(15 * MS);
    assert_eq!(counts(&timer.stats()), [0, 2, 1, 1]);
    assert!(!timer.is_pending(handles[0]) && !timer.cancel(handles[0])); // it has fired
    assert_eq!(timer.stats().cancelled, 1);
}

#[test]
fn a_system_timer_counts_its_rounds() {
    let timer = SystemTimer::builder().name("rounds").build().unwrap();
    let (send, fired) = mpsc::channel();
    let cancelled = timer.schedule(HOUR, || ()).unwrap();
    timer.cancel(cancelled);
    for _ in 0..3 {
        let send = send.clone();
        timer.schedule(MS, move || send.send(()).unwrap()).unwrap();
        fired.recv().unwrap();
    }
    timer.shutdown(Duration::MAX); // the reaper is done counting
    let stats = timer.stats();
    assert_eq!(
        (stats.fired, stats.pending, stats.executor_queue),
        (3, 0, Some(0))
    );
    assert_eq!((stats.cancelled, stats.turns.count()), (1, 3));
    assert!(stats.spurious_wake_ups < stats.wake_ups);
    assert_eq!(timer.name(), "rounds");
}

#[test]
fn cancels_do_not_go_down_while_wheels_go() {
    let timer = SystemTimer::builder().shards(1).build().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let goes = scope.spawn(|| {
            for _ in 0..20_000 {
                let wheels = timer.with_handler(|(): ()| ());
                let handle = wheels.schedule(HOUR, ()).unwrap();
                assert!(wheels.cancel(handle).is_some());
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut before = 0;
        while !over.load(Ordering::Relaxed) {
            let cancelled = timer.stats().cancelled;
            assert!(cancelled >= before, "{cancelled} after {before}");
            before = cancelled;
        }
        goes.join().unwrap(); // ThreadSanitizer does not see the end of a scope
    });
    timer.shutdown(Duration::MAX); // the reaper may be dropping the last wheel
    assert_eq!(timer.stats().cancelled, 20_000);
}
