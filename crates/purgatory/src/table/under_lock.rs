//! User code under a shard's lock: a closure that is shown an operation in its place. A call into
//! the purgatory from such a closure would wait for that lock; debug builds panic instead.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use crate::sync::thread_local;

thread_local! {
    /// True while a closure of the user's runs under a shard's lock.
    static UNDER_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// Runs the user's code while a shard is locked. Returns its panic for the caller to resume,
/// unlocked.
pub(crate) fn under_lock<R>(code: impl FnOnce() -> R) -> thread::Result<R> {
    let mark = |is_under| _ = UNDER_LOCK.try_with(|under_lock| under_lock.set(is_under));
    mark(true);
    let result = catch_unwind(AssertUnwindSafe(code));
    mark(false);
    result
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
