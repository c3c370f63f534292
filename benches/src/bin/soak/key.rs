//! Keys whose code panics: a fuse for each thread, which burns down with every `Hash`, `Eq` and
//! `Clone`.

use std::{
    cell::Cell,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// What operations wait for, in every purgatory here.
#[derive(Debug)]
pub(crate) struct Key(pub(crate) u64);

thread_local! {
    /// The panic comes when it reaches 0; at 0 there is none to come.
    static FUSE: Cell<u32> = const { Cell::new(0) };
}

/// The panic of a key.
struct Planted;

fn burn() {
    let left = FUSE.get();
    if left > 0 {
        FUSE.set(left - 1);
        if left == 1 {
            resume_unwind(Box::new(Planted));
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        burn();
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        burn();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        burn();
        Key(self.0)
    }
}

/// Runs `work` with a fuse that lasts for so many calls of a key's code, 0 for none. `None` when
/// it panicked in one.
pub(crate) fn with_fuse<R>(calls: u32, work: impl FnOnce() -> R) -> Option<R> {
    if calls == 0 {
        return Some(work());
    }
    FUSE.set(calls);
    let result = catch_unwind(AssertUnwindSafe(work));
    FUSE.set(0);
    match result {
        Ok(result) => Some(result),
        Err(panic) if panic.is::<Planted>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs `work`, in which no key panics: a callback, which parks something of its own.
pub(crate) fn without_fuse<R>(work: impl FnOnce() -> R) -> R {
    let calls = FUSE.replace(0);
    let result = work();
    FUSE.set(calls);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuse_burns_down_once() {
        let key = Key(1);
        assert!(with_fuse(2, || (key.clone(), without_fuse(|| key.clone()))).is_some());
        assert!(with_fuse(2, || (key.clone(), key.clone())).is_none());
        assert_eq!(key.clone(), key);
    }
}
