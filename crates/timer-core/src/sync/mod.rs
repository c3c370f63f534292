//! Locks, atomics and thread-locals: `parking_lot` (a feature) and `std`, or a model checker's
//! under its `cfg`: `loom` walks every interleaving of a few steps, `shuttle` a random choice of
//! many.
//!
//! Everything in this project that they check takes these from here, so that the code that is
//! checked is the code that ships; with failpoints, at which a model has it go wrong to show that
//! the model would notice. Besides: a count of work under way ([`Latch`]).

use std::{
    sync::{Arc, Condvar, PoisonError},
    time::Duration,
};

#[cfg(any(loom, shuttle))]
mod model;

#[cfg(not(any(loom, shuttle)))]
mod real {
    //! `parking_lot`, `std` and crossbeam: what ships.

    pub use crossbeam_utils::sync::{Parker, Unparker};
    #[cfg(feature = "parking_lot")]
    pub use parking_lot::{Mutex, MutexGuard};
    pub use std::{
        sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        thread::JoinHandle,
        thread_local,
    };
    #[cfg(not(feature = "parking_lot"))]
    pub use {crate::sync::plain::Mutex, std::sync::MutexGuard};

    /// Starts a thread of this name.
    ///
    /// # Errors
    /// The operating system's.
    pub fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
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

    /// No fault is planted in what ships.
    #[inline(always)]
    pub const fn is_planted(_fault: &str) -> bool {
        false
    }
}

#[cfg(any(loom, shuttle))]
pub use self::model::*;
#[cfg(not(any(loom, shuttle)))]
pub use self::real::*;

/// True when the running model has planted this fault; `false` in a build that ships.
#[doc(hidden)]
#[macro_export]
macro_rules! failpoint {
    ($fault:ident) => {
        $crate::driver::sync::is_planted(stringify!($fault))
    };
}

pub(crate) use failpoint;

/// A lock for what no model has to see, nor any path that has to be fast.
pub mod plain {
    use std::sync::{self, MutexGuard, PoisonError, TryLockError};

    /// std's mutex behind parking_lot's interface: a panic of its holder does not poison it.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// A new mutex.
        pub const fn new(value: T) -> Self {
            Mutex(sync::Mutex::new(value))
        }

        /// Locks.
        #[inline]
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Locks, unless it is locked.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }

        /// The value.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Counts the work under way, for a thread that waits until it is over.
#[derive(Clone, Debug, Default)]
pub struct Latch(Arc<(plain::Mutex<usize>, Condvar)>);

/// One thing under way.
#[derive(Debug)]
pub struct UnderWay(Latch);

impl Latch {
    /// One more is under way, until what is returned is dropped.
    pub fn begin(&self) -> UnderWay {
        *self.0.0.lock() += 1;
        UnderWay(self.clone())
    }

    /// Waits until nothing is under way, at most for so long; returns what is then.
    pub fn wait(&self, limit: Duration) -> usize {
        let (count, over) = &*self.0;
        let waited = over.wait_timeout_while(count.lock(), limit, |count| *count > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (count, over) = &*self.0.0;
        *count.lock() -= 1;
        over.notify_all();
    }
}
