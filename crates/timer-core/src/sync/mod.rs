//! Locks, atomics and thread-locals: `parking_lot` (a feature) and `std`, or under `cfg(loom)`
//! those of loom, which walks every interleaving of a few steps.
//!
//! All code that loom checks takes these from here, so the code that is checked is the code that
//! ships. At a failpoint a model makes the code go wrong, to show that the model would notice.
//!
//! | Name | In builds | In models | For |
//! |---|---|---|---|
//! | [`Mutex`] | `parking_lot`'s, or std's | loom's | data that a model has to see |
//! | [`Unwatched`] | as `Mutex` | std's | data that no model has to see, where it has to be fast |
//! | [`plain::Mutex`] | std's | std's | data that no model has to see, elsewhere; in statics |
//! | [`HandedBack`] | std's | std's | the value in an error; never locked |
//! | [`Late`] | std's `OnceLock` | the same, behind a `Mutex` if a model asks | a value that is made on first use |
//!
//! It also has a count of work under way ([`Latch`]) and reference counts for many threads
//! ([`Shares`]).

use std::{
    iter,
    ops::Deref,
    sync::{Arc, Condvar, OnceLock, PoisonError},
    time::Duration,
};

#[cfg(loom)]
mod model;

#[cfg(not(loom))]
mod real {
    //! `parking_lot`, `std` and crossbeam: what ships.

    pub use crossbeam_utils::sync::{Parker, Unparker};
    #[cfg(feature = "parking_lot")]
    pub use parking_lot::{Mutex, MutexGuard};
    pub use std::{
        sync::{
            OnceLock as Late,
            atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        },
        thread::JoinHandle,
        thread_local,
    };
    #[cfg(not(feature = "parking_lot"))]
    pub use {crate::sync::plain::Mutex, std::sync::MutexGuard};

    /// Returns true: values that can be made late are. Most models make them at once.
    pub(crate) const fn is_late() -> bool {
        true
    }

    /// Returns false: no fault is planted in a build that ships.
    #[inline(always)]
    pub const fn is_planted(_fault: &str) -> bool {
        false
    }

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

    /// Returns a small number for this thread: threads are counted up from 0 as they first ask.
    #[inline]
    pub fn thread_slot() -> usize {
        SLOT.try_with(|slot| *slot).unwrap_or(0)
    }
}

#[cfg(loom)]
pub use self::model::*;
#[cfg(not(loom))]
pub use self::real::*;

/// A lock for data that no model has to see, on a path that has to be fast.
#[cfg(loom)]
pub use self::plain::Mutex as Unwatched;
#[cfg(not(loom))]
pub use self::real::Mutex as Unwatched;

/// Evaluates to true when the running model has planted this fault.
#[doc(hidden)]
#[macro_export]
macro_rules! failpoint {
    ($fault:ident) => {
        $crate::driver::sync::is_planted(stringify!($fault))
    };
}

pub(crate) use failpoint;

/// A lock for data that no model has to see, off every path that has to be fast.
pub mod plain {
    use std::sync::{self, MutexGuard, PoisonError};

    /// std's mutex behind parking_lot's interface: a panic of its holder does not poison it.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// Makes a new mutex.
        pub const fn new(value: T) -> Self {
            Mutex(sync::Mutex::new(value))
        }

        /// Locks.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Returns the value.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// A value that an error hands back: `Sync` for every value that is `Send`. Never locked.
pub type HandedBack<T> = plain::Mutex<T>;

/// A value behind several reference counts, in cache lines far apart, each for some of the threads.
/// So threads that clone and drop references do not write to the same memory. A share is made when
/// a thread first asks for it.
#[derive(Debug)]
pub struct Shares<T> {
    value: T,
    shares: Box<[OnceLock<Share<T>>]>,
}

/// A reference to a value in [`Shares`].
pub type Share<T> = Arc<Spaced<T>>;

/// A value with padding behind it: the reference counts of two shares, which lie before their
/// values, are at least 128 bytes apart. Aligned to 128 bytes, each share would take 256.
#[derive(Debug)]
pub struct Spaced<T> {
    value: T,
    _room: [u64; 13],
}

impl<T> Deref for Spaced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> Shares<T> {
    /// Keeps the value for `count` shares, a power of two. No share is made yet.
    pub fn new(value: T, count: usize) -> Self {
        Shares {
            value,
            shares: iter::repeat_with(OnceLock::new).take(count).collect(),
        }
    }

    /// Returns the calling thread's share.
    pub fn of_this_thread(&self) -> &Share<T> {
        let share = &self.shares[thread_slot() & (self.shares.len() - 1)];
        match share.get() {
            Some(made) => made,
            None => self.make(share),
        }
    }

    /// Makes a share.
    #[cold]
    fn make<'a>(&self, share: &'a OnceLock<Share<T>>) -> &'a Share<T> {
        share.get_or_init(|| {
            Arc::new(Spaced {
                value: self.value.clone(),
                _room: [0; 13],
            })
        })
    }

    /// Returns the value.
    pub fn value(&self) -> &T {
        &self.value
    }
}

/// Counts the work under way, for a thread that waits until it is over.
#[derive(Debug, Default)]
pub struct Latch(OnceLock<Arc<LatchCount>>);

/// One piece of work under way.
#[derive(Debug)]
pub struct UnderWay(Arc<LatchCount>);

/// The count of a latch, made when the first work begins.
#[derive(Debug, Default)]
struct LatchCount {
    under_way: plain::Mutex<usize>,
    over: Condvar,
}

impl Latch {
    /// Counts one more under way, until the returned value is dropped.
    pub fn begin(&self) -> UnderWay {
        let count = self.0.get_or_init(Arc::default);
        *count.under_way.lock() += 1;
        UnderWay(count.clone())
    }

    /// Waits until nothing is under way, for at most `limit`; returns how many pieces of work still
    /// are.
    pub fn wait(&self, limit: Duration) -> usize {
        let Some(count) = self.0.get() else {
            return 0; // no work has begun
        };
        // Woken by the end of each piece of work.
        let under_way = count.under_way.lock();
        let waited = count
            .over
            .wait_timeout_while(under_way, limit, |under_way| *under_way > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.under_way.lock() -= 1;
        self.0.over.notify_all();
    }
}
