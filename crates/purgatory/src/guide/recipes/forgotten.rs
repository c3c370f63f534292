//! A purgatory that reports the keys that had no event though their condition came true.

use std::sync::mpsc;

use purgatory::{
    BoxedOperation, Purgatory, WatchKey,
    timer_core::{BuildError, Timer},
};

pub fn reporting_missed_events<K: WatchKey>(
    timer: &impl Timer,
    missed_keys: mpsc::Sender<Vec<K>>,
) -> Result<Purgatory<K, BoxedOperation>, BuildError> {
    Purgatory::builder("fetch")
        .timer(timer)
        .check_at_expiry(move |missed| {
            let _ = missed_keys.send(missed.keys.clone());
        })
        .build()
}
