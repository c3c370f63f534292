// A purgatory that reports keys that had no event although their condition came true.

use std::sync::mpsc;

use purgatory::{
    BoxedOperation, Purgatory, WatchKey,
    timer_core::{BuildError, Timer},
};

pub fn reporting_missed_events<K: WatchKey>(
    timer: &Timer,
    missed_keys: mpsc::Sender<Vec<K>>,
) -> Result<Purgatory<K>, BuildError> {
    Purgatory::builder("fetch")
        .timer(timer)
        .check_at_expiry(move |missed| {
            let _ = missed_keys.send(missed.keys.clone());
        })
        .build()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};

    let timer = purgatory::timer_core::ManualTimer::new();
    let (missed_keys, reports) = mpsc::channel();
    let fetches = reporting_missed_events(&timer, missed_keys)?;
    let aborted = Arc::new(AtomicBool::new(false));
    let seen = aborted.clone();
    let fetch = fetches.wait(&["orders-0"], Duration::from_millis(500), move || {
        seen.load(SeqCst).then_some("aborted")
    });
    aborted.store(true, SeqCst); // a transaction's marker was written ...
    fetches.check_and_complete(&"orders-1"); // ... and another partition signalled
    timer.advance(Duration::from_millis(500));
    assert_eq!(fetch.wait_blocking()?, "aborted");
    assert_eq!(reports.try_recv()?, ["orders-0"]);
    Ok(())
}
