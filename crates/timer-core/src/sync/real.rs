//! `parking_lot`, `std` and crossbeam: what ships.

pub use crossbeam_utils::sync::{Parker, Unparker};
pub use parking_lot::{Mutex, MutexGuard};
pub use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    thread::JoinHandle,
    thread_local,
};

/// Starts a thread of this name.
///
/// # Errors
/// The operating system's.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

thread_local! {
    static SLOT: usize = {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREADS.fetch_add(1, Ordering::Relaxed)
    };
}

/// A small number for this thread: counts up from 0 as threads first ask.
#[inline]
pub fn thread_slot() -> usize {
    SLOT.try_with(|slot| *slot).unwrap_or(0)
}
