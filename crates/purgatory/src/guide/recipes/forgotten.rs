//! A purgatory that tells which keys had no event though their condition came true.

use std::sync::mpsc;

use purgatory::{
    BoxedOperation, Purgatory, WatchKey,
    timer_core::{BuildError, Timer},
};

pub fn telling<K: WatchKey>(
    timer: &impl Timer,
    forgotten: mpsc::Sender<Vec<K>>,
) -> Result<Purgatory<K, BoxedOperation>, BuildError> {
    Purgatory::builder("fetch")
        .timer(timer)
        .check_at_expiry(move |missed| _ = forgotten.send(missed.keys.clone()))
        .build()
}
