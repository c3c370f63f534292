//! User code under a shard's lock: a closure that is shown an operation where it lies. A call from
//! inside it would wait for that lock, and panics in debug builds instead.

use std::cell::Cell;

use crate::sync::thread_local;

thread_local! {
    /// A closure of the user's runs under a shard's lock.
    static UNDER_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// A closure of the user's that runs under a shard's lock on this thread, until this is dropped.
#[must_use = "dropped at once, the closure counts as over"]
pub(crate) struct UnderLock;

impl UnderLock {
    pub(crate) fn enter() -> UnderLock {
        let _ = UNDER_LOCK.try_with(|under_lock| under_lock.set(true));
        UnderLock
    }
}

impl Drop for UnderLock {
    fn drop(&mut self) {
        let _ = UNDER_LOCK.try_with(|under_lock| under_lock.set(false));
    }
}

/// Panics in debug builds if a closure of this thread has a shard locked, since the caller may wait
/// for that lock. Free in release builds.
#[inline(always)]
pub(crate) fn must_be_unlocked() {
    if cfg!(debug_assertions) {
        let under_lock = UNDER_LOCK.try_with(Cell::get);
        assert!(
            !under_lock.unwrap_or(false),
            "a purgatory is called inside a closure of `with` or `for_each`"
        );
    }
}
