//! A purgatory that tells which keys had no event though their condition came true.

use std::{fmt, sync::mpsc};

use purgatory::{
    BoxedOperation, Purgatory, WatchKey,
    timer_core::{BuildError, Timer},
};

pub fn telling<K: WatchKey + fmt::Debug>(
    timer: &impl Timer,
    forgotten: mpsc::Sender<Vec<K>>,
) -> Result<Purgatory<K, BoxedOperation>, BuildError> {
    Purgatory::builder("fetch")
        .timer(timer)
        .on_missed_event(move |missed| _ = forgotten.send(missed.keys.clone()))
        .build()
}
