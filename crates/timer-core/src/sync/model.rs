//! loom's locks, atomics and threads, behind the same names as `real`.

pub use loom::{
    sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    thread_local as lazy_thread_local,
};
use std::{
    cell::{Cell, RefCell},
    sync::{Arc, PoisonError},
    time::Duration,
};

/// std's `thread_local!` for one static, over the model's, which has no `const` initialisers.
#[doc(hidden)]
#[macro_export]
macro_rules! model_thread_local {
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $of:ty = $first:expr;) => {
        $crate::driver::sync::lazy_thread_local! {
            $(#[$attribute])* $visibility static $name: $of = $first;
        }
    };
}
pub use model_thread_local as thread_local;

// The threads of a model run on one thread of the machine, so a plain thread-local is seen by all
// of them.
std::thread_local! {
    static PLANTED: RefCell<Option<String>> = const { RefCell::new(None) };
    static LATE: Cell<bool> = const { Cell::new(false) };
}

/// Plants the fault that a `failpoint!` names, or none, for the models that this thread of the
/// machine runs from here on. They have all shards from the beginning, unless they
/// [ask for late ones](make_late).
pub fn plant(fault: Option<String>) {
    PLANTED.set(fault);
    LATE.set(false);
}

/// Lets the models that this thread of the machine runs, until the next [`plant`], make shards when
/// they are first locked, and mark them on a manual timer at each hold of their lock, as the code
/// that ships does. In other models all shards are there from the beginning, and all are asked,
/// which spares these models most interleavings.
pub fn make_late() {
    LATE.set(true);
}

/// Returns true in the models that [ask for it](make_late).
pub(crate) fn is_late() -> bool {
    LATE.get()
}

/// Returns true when this fault is planted.
pub fn is_planted(fault: &str) -> bool {
    PLANTED.with_borrow(|planted| planted.as_deref() == Some(fault))
}

/// Starts a thread of the model.
///
/// # Errors
/// Never.
pub fn spawn(_: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    Ok(loom::thread::spawn(work))
}

/// crossbeam's parker over the model's lock. No time passes: only an unpark wakes.
#[derive(Debug)]
pub struct Parker(Unparker);

/// Wakes a [`Parker`].
#[derive(Clone, Debug)]
pub struct Unparker(Arc<(Mutex<bool>, loom::sync::Condvar)>);

impl Parker {
    /// Makes a parker without a token.
    #[expect(clippy::new_without_default, reason = "as crossbeam's")]
    pub fn new() -> Self {
        Parker(Unparker(Arc::new((
            Mutex::new(false),
            loom::sync::Condvar::new(),
        ))))
    }

    /// Returns its waker.
    pub fn unparker(&self) -> &Unparker {
        &self.0
    }

    /// Sleeps until the token is there, and takes it.
    pub fn park(&self) {
        let (token, arrived) = &*self.0.0;
        let mut there = token.lock();
        while !*there {
            there = arrived.wait(there).unwrap_or_else(PoisonError::into_inner);
        }
        *there = false;
    }

    /// Parks the thread, as `park` does.
    pub fn park_timeout(&self, _: Duration) {
        self.park();
    }
}

impl Unparker {
    /// Makes the token available.
    pub fn unpark(&self) {
        let (token, arrived) = &*self.0;
        *token.lock() = true;
        arrived.notify_one();
    }
}

/// The model's mutex behind parking_lot's interface.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes a new mutex.
    pub fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks; a panicking holder does not poison.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// std's cell for a value that is made late. The models that [ask for it](make_late) see the value
/// being made, and looked for, with no more order between the two than std's cell gives.
#[derive(Debug)]
pub struct Late<T> {
    /// Locked by threads that make the value.
    gate: Mutex<()>,
    is_made: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> Late<T> {
    /// Makes an empty cell.
    #[expect(clippy::new_without_default, reason = "a part of std's")]
    pub fn new() -> Self {
        Late {
            gate: Mutex::new(()),
            is_made: AtomicBool::new(false),
            value: std::sync::OnceLock::new(),
        }
    }

    /// Returns the value, if it is made.
    pub fn get(&self) -> Option<&T> {
        if is_late() && !self.is_made.load(Ordering::Acquire) {
            return None;
        }
        self.value.get()
    }

    /// Returns the value, which `make` makes if it is not there.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if !is_late() {
            return self.value.get_or_init(make);
        }
        let _gate = self.gate.lock();
        let value = self.value.get_or_init(make);
        self.is_made.store(true, Ordering::Release);
        value
    }
}

/// Returns 0: all threads of a model share a shard, the hardest case.
pub fn thread_slot() -> usize {
    0
}
