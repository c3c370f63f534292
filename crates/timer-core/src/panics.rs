//! Panics of user code, which go no further than [`contain`].

use std::{
    any::Any,
    mem::forget,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls `work` and contains a panic in it, and one in the drop of that panic's payload.
///
/// # Errors
/// The panic's message, when it was text.
pub fn contain<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    contain_here(work)
}

/// Contains panics as [`contain`] does, but is inlined: for code that nearly every operation runs.
/// A call costs 10 instructions.
///
/// # Errors
/// The panic's message, as with [`contain`].
#[inline(always)]
pub fn contain_here<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(message)
}

#[cold]
fn message(payload: Box<dyn Any + Send>) -> String {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let constant = payload.downcast_ref::<&'static str>().copied();
    let message = owned.or(constant).unwrap_or("no message").to_owned();
    // The payload is the user's: its `Drop` may panic, and so may the payload of that panic.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        forget(second);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload that panics when it is dropped, with another such payload.
    struct Hostile;

    impl Drop for Hostile {
        fn drop(&mut self) {
            std::panic::panic_any(Hostile);
        }
    }

    #[test]
    fn a_payload_that_panics_in_its_drop_is_contained() {
        // A payload that escapes is forgotten, or it would panic in the harness, which then hangs.
        let said = catch_unwind(|| contain(|| std::panic::panic_any(Hostile)));
        let Ok(said) = said.map_err(forget) else {
            panic!("a panic in a payload's drop went further");
        };
        assert_eq!(said, Err::<(), _>("no message".to_owned()));
    }
}
