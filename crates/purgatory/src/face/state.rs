//! A monitor's inside: the state under its lock, who waits under which key, and conditions on the
//! state.

use std::{
    collections::HashMap,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64 as Count, Ordering::Relaxed},
    },
    thread,
};

use smallvec::SmallVec;
use timer_core::driver::contain;

use crate::{
    face::{boxed::BoxedOperation, purgatory::Purgatory, wait::Condition},
    sync::{AtomicU64, KeyHasher, Mutex, MutexGuard, Ordering, thread_local},
    words::watches::WatchKey,
};

pub(super) struct Shared<K, S>
where
    K: WatchKey + Send,
{
    pub(super) purgatory: Purgatory<K, BoxedOperation>,
    state: Mutex<S>,
    /// The thread whose closure has the state locked; 0 for none.
    inside: AtomicU64,
    /// Waits under each key. A wait is counted before its first check, so that a change which that
    /// check does not see is followed by an event that does see the wait.
    waits: Mutex<HashMap<K, usize, KeyHasher>>,
}

thread_local! {
    /// A number for this thread, never 0.
    static THREAD: u64 = {
        static THREADS: Count = Count::new(1);
        THREADS.fetch_add(1, Relaxed)
    };
}

/// The state, locked for a closure.
pub(super) struct Inside<'a, S> {
    state: MutexGuard<'a, S>,
    inside: &'a AtomicU64,
}

impl<S> Deref for Inside<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> DerefMut for Inside<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

impl<S> Drop for Inside<'_, S> {
    fn drop(&mut self) {
        self.inside.store(0, Ordering::Relaxed); // before the lock is let go
    }
}

impl<K, S> Shared<K, S>
where
    K: WatchKey + Send,
{
    pub(super) fn new(purgatory: Purgatory<K, BoxedOperation>, state: S) -> Arc<Self> {
        let (inside, waits) = (AtomicU64::new(0), Mutex::new(HashMap::default()));
        Arc::new(Shared { purgatory, state: Mutex::new(state), inside, waits })
    }

    /// Panics where the state would be waited for by the thread that has it.
    pub(super) fn must_be_outside(&self, call: &str) -> u64 {
        let thread = THREAD.with(|number| *number);
        // Only this thread writes its own number there.
        if self.inside.load(Ordering::Relaxed) == thread {
            panic!("{call} inside a closure of the same monitor");
        }
        thread
    }

    pub(super) fn enter(&self, call: &str) -> Inside<'_, S> {
        let thread = self.must_be_outside(call);
        let state = self.state.lock();
        self.inside.store(thread, Ordering::Relaxed);
        Inside { state, inside: &self.inside }
    }

    /// Runs a closure on the state; its panic is for later, when its events have been raised.
    pub(super) fn change<R>(
        &self,
        call: &str,
        change: impl FnOnce(&mut S) -> R,
    ) -> thread::Result<R> {
        let mut inside = self.enter(call);
        catch_unwind(AssertUnwindSafe(|| change(&mut inside)))
    }

    pub(super) fn update<R>(&self, call: &str, change: impl FnOnce(&mut S) -> R) -> R {
        let _announced = self.purgatory.announce();
        let changed = self.change(call, change);
        self.raise(self.keys_with_waits());
        changed.unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub(super) fn keys_with_waits(&self) -> Vec<K> {
        self.waits.lock().keys().cloned().collect()
    }

    pub(super) fn raise(&self, keys: impl IntoIterator<Item = K>) -> usize {
        keys.into_iter().map(|key| self.purgatory.check_and_complete(&key)).sum()
    }
}

/// A wait's condition on the state.
pub(super) struct Looks<K, S, C>
where
    K: WatchKey + Send,
{
    /// It does not keep the monitor open.
    shared: Weak<Shared<K, S>>,
    condition: C,
    /// To be raised when the condition has changed the state.
    changes: Box<[K]>,
    counted: SmallVec<[K; 1]>,
}

impl<K, S, C> Looks<K, S, C>
where
    K: WatchKey + Send,
{
    pub(super) fn new(shared: &Arc<Shared<K, S>>, keys: &[K], changes: &[K], condition: C) -> Self {
        let (changes, counted) = (changes.into(), SmallVec::with_capacity(keys.len()));
        let mut looks = Looks { shared: Arc::downgrade(shared), condition, changes, counted };
        for key in keys {
            let key = key.clone();
            *shared.waits.lock().entry(key.clone()).or_default() += 1;
            looks.counted.push(key);
        }
        looks
    }
}

impl<K, S, T, C> Condition<T> for Looks<K, S, C>
where
    K: WatchKey + Send,
    S: Send + 'static,
    C: FnMut(&mut S) -> Option<T> + Send + 'static,
{
    fn check(&mut self) -> Option<T> {
        let shared = self.shared.upgrade()?; // without: it is being cancelled
        let _announced = (!self.changes.is_empty()).then(|| shared.purgatory.announce());
        let looked = shared.change("a condition checked", &mut self.condition);
        if !matches!(looked, Ok(None)) {
            for key in &self.changes {
                // A key that panics must not lose what the condition took, nor the other events.
                let raise = || _ = shared.purgatory.check_and_complete(key);
                shared.purgatory.core.report_if(contain(raise));
            }
        }
        looked.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<K, S, C> Drop for Looks<K, S, C>
where
    K: WatchKey + Send,
{
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        for key in self.counted.drain(..) {
            // A key's Hash or Eq may panic, and this may run while another panic is under way.
            let _ = contain(|| drop(shared.wait_over(key)));
        }
    }
}

impl<K, S> Shared<K, S>
where
    K: WatchKey + Send,
{
    /// A wait under the key is over. What is left of the key is dropped with nothing locked.
    fn wait_over(&self, key: K) -> (K, Option<K>) {
        let mut waits = self.waits.lock();
        let gone = match waits.get_mut(&key) {
            Some(count) if *count > 1 => {
                *count -= 1;
                None
            }
            _ => waits.remove_entry(&key).map(|(key, _)| key),
        };
        if waits.capacity() > 64 && waits.len() < waits.capacity() / 8 {
            waits.shrink_to_fit(); // a peak is given back
        }
        drop(waits);
        (key, gone)
    }
}
