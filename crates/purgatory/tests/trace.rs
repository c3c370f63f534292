//! The events that a `tracing` subscriber gets. A subscriber cannot do harm.
#![cfg(feature = "tracing")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io;

use support::*;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the events emitted while `work` runs, one line each.
fn told(work: impl FnOnce(&ManualTimer, &Waiting)) -> Vec<String> {
    let log = Log::default();
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || log.clone())
        .with_max_level(tracing::Level::TRACE)
        .without_time()
        .with_ansi(false)
        .with_target(false)
        .finish();
    let (timer, purgatory) = by_hand_with(|builder| builder.max_parked(1));
    tracing::subscriber::with_default(subscriber, || work(&timer, &purgatory));
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let lines = text.lines().map(|line| line.trim_start().to_owned());
    lines.collect()
}

fn park(purgatory: &Waiting, operation: Op, timeout: impl Into<Timeout>) {
    let _ = purgatory.try_complete_else_watch(operation, &["k"], timeout);
}

#[test]
fn refusals_panics_and_shutdown_are_reported() {
    let lines = told(|_, purgatory| {
        park(purgatory, Probe::new().operation(), NEVER);
        park(purgatory, Probe::new().operation(), NEVER);
        purgatory.cancel_for_key(&"k", "asked");
        let panics = Probe::new().operation().on_check(|| panic!("out of ink"));
        park(purgatory, panics, NEVER);
        park(purgatory, Probe::new().operation(), NEVER);
        purgatory.shutdown(MINUTE);
    });
    assert_eq!(
        lines,
        [
            "DEBUG an operation was not parked purgatory=\"test\" reason=the limit of 1 parked operations is reached",
            "ERROR a check or callback panicked purgatory=\"test\" panic=\"out of ink\"",
            "INFO shut down purgatory=\"test\" cancelled=1",
        ]
    );
}

/// A shutdown of permits does not count leases and keys as waits.
#[test]
fn a_shutdown_reports_its_waits_alone() {
    let lines = told(|timer, idle| {
        let rows = Permits::keyed_builder("rows").timer(timer).build().unwrap();
        let lease = rows.lease_for(&1, 1, MINUTE, NEVER).wait_blocking();
        let next = rows.acquire_for(&1, 1, NEVER);
        rows.waits().shutdown(MINUTE);
        assert!(lease.unwrap().is_lost() && next.wait_blocking().is_err());
        for _ in 0..2 {
            idle.shutdown(MINUTE); // reported once
        }
    });
    let told = [("rows", 1), ("test", 0)]
        .map(|(name, count)| format!("INFO shut down purgatory=\"{name}\" cancelled={count}"));
    assert_eq!(lines, told);
}

#[test]
fn slow_callbacks_are_reported_and_quick_ones_not() {
    let lines = told(|timer, purgatory| {
        for took in [99, 100] {
            let passing = timer.clone();
            let then = move |_| passing.pass(took * MS);
            park(purgatory, Probe::new().operation().then(then), MS);
            timer.advance(MS);
        }
    });
    let slow = "WARN a callback kept the executor purgatory=\"test\" seconds=0.1";
    assert_eq!(lines, [slow]);
}

/// A slow callback on the caller's own thread is not reported.
#[test]
fn slow_callback_of_an_event_is_not_reported() {
    let lines = told(|timer, purgatory| {
        let (passing, probe) = (timer.clone(), Probe::new());
        let then = move |_| passing.pass(SECOND);
        park(purgatory, probe.operation().then(then), MINUTE);
        probe.make_ready();
        assert_eq!(purgatory.check_and_complete(&"k"), 1);
    });
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn missed_event_is_reported() {
    let lines = told(|_, _| {
        let (timer, purgatory): (_, Waiting) =
            by_hand_with(|builder| builder.check_at_expiry(|_| ()));
        for ready in [true, false] {
            let probe = Probe::parked(&purgatory, &["a", "b"], MS);
            if ready {
                probe.make_ready();
            }
            timer.advance(MS);
        }
        std::mem::forget(purgatory); // no line for its end
    });
    let missed = "WARN a condition came true without an event purgatory=\"test\"";
    assert_eq!(lines, [missed]);
}

/// A subscriber that panics at every call.
struct Bomb;

impl tracing::Subscriber for Bomb {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        panic!("in a subscriber")
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_subscriber_that_panics_loses_nothing() {
    let (_timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.max_parked(1));
    let parked = Probe::new();
    tracing::subscriber::with_default(Bomb, || {
        park(&purgatory, parked.operation(), NEVER);
        refused(&purgatory, Probe::new().operation(), &["k"]); // it comes back
        purgatory.shutdown(MINUTE);
    });
    assert!(matches!(parked.endings()[..], [Outcome::Cancelled(_)]));
}

/// The subscriber is told of each callback that panics; the rest of the batch is still called back.
#[test]
fn a_subscriber_that_panics_loses_no_callback() {
    let (_timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder);
    let all: Vec<_> = (0..100).map(|_| Probe::new()).collect();
    for probe in &all {
        let panics = probe.operation().then(|_| panic!("out of ink"));
        park(&purgatory, panics, NEVER);
        probe.make_ready();
    }
    let completed = tracing::subscriber::with_default(Bomb, || purgatory.check_and_complete(&"k"));
    assert_eq!((completed, purgatory.stats().panics), (100, 100));
    assert!(all.iter().all(|probe| probe.endings() == [Completed]));
}

/// Debug builds report a stuck check.
#[cfg(debug_assertions)]
#[test]
fn stuck_check_is_reported_once_with_both_threads() {
    let lines = told(|timer, purgatory| {
        let checking = Stop::armed();
        let parks = purgatory.clone();
        let in_check = checking.clone();
        let stuck = thread::Builder::new().name("parks".to_owned());
        let stuck = stuck.spawn(move || {
            let check = move || in_check.here();
            park(&parks, Probe::new().operation().on_check(check), NEVER);
        });
        checking.meanwhile(|| {
            for passes in [SECOND, MS, MS] {
                timer.advance(passes);
                purgatory.check_and_complete(&"k");
                tracing::info!("looked");
            }
        });
        stuck.unwrap().join().unwrap();
    });
    let here = thread::current().name().unwrap().to_owned();
    let told = format!(
        "WARN a check takes more than a second; does it wait for a lock held while signalling? \
         purgatory=\"test\" on=\"parks\" seen_by=\"{here}\""
    );
    let looked = "INFO looked";
    assert_eq!(lines, [looked, &told, looked, looked]);
}

/// Debug builds report it. The purgatory's own timer does not need the runtime's thread. A callback
/// never blocks.
#[cfg(all(feature = "tokio", debug_assertions, not(loom)))]
#[test]
fn a_blocking_wait_in_a_task_is_told_once() {
    let lines = told(|_, _| {
        let purgatory: purgatory::Purgatory<u8> = purgatory::Purgatory::new("own").unwrap();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.build().unwrap();
        let block = || purgatory.wait(&[1], MS, || false).wait_blocking();
        assert!(block().is_err());
        let quiet: purgatory::Purgatory<u8> = purgatory::Purgatory::new("quiet").unwrap();
        let inside = quiet.clone();
        let callback = move |_| drop(inside.next_event(&[1], NEVER).wait_blocking());
        runtime.block_on(async {
            quiet.park(when(|| false, callback), &[2], NEVER);
            assert_eq!(quiet.complete_for_key(&2), 1);
            for _ in 0..3 {
                assert!(block().is_err());
            }
        });
        std::mem::forget((purgatory, quiet)); // no line for their ends
    });
    let told = "WARN wait_blocking blocks a thread that runs a tokio runtime's tasks; await the \
                future, or use spawn_blocking purgatory=\"own\"";
    assert_eq!(lines, [told]);
}
