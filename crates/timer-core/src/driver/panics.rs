//! A panic of the user's code goes no further than here.

use std::{
    any::Any,
    error::Error,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls `work` and keeps a panic from going further.
///
/// # Errors
/// [`Panicked`] when it did.
pub fn contain(work: impl FnOnce()) -> Result<(), Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked { payload: Some(payload) })
}

/// A panic that was contained. Its payload's own drop is contained, too.
pub struct Panicked {
    payload: Option<Box<dyn Any + Send>>,
}

impl Panicked {
    /// What was said, when it was text.
    pub fn message(&self) -> &str {
        let payload = self.payload.as_deref();
        let owned = payload.and_then(|said| said.downcast_ref::<String>()).map(String::as_str);
        let constant = payload.and_then(|said| said.downcast_ref::<&'static str>()).copied();
        owned.or(constant).unwrap_or("no message")
    }

    /// The payload of the panic, as given to `panic_any`.
    pub fn payload(&self) -> Option<&(dyn Any + Send)> {
        self.payload.as_deref()
    }
}

impl Drop for Panicked {
    fn drop(&mut self) {
        let payload = self.payload.take();
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(again);
        }
    }
}

impl fmt::Debug for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panicked").field(&self.message()).finish()
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message())
    }
}

impl Error for Panicked {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_payload_that_panics_when_dropped_is_contained() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in drop");
            }
        }
        assert!(contain(|| std::panic::panic_any(Bomb)).is_err());
        assert_eq!(contain(|| panic!("a {}", 1)).unwrap_err().to_string(), "panicked: a 1");
    }
}
