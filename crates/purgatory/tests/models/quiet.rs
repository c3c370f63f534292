//! Panics that are not told one by one: what breaks is told in the end, made small.

use std::{cell::Cell, panic, sync::Once};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Does this without a word of its panics; those of other threads are told as ever.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    QUIET.set(true);
    let result = work();
    QUIET.set(false);
    result
}
