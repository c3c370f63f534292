//! A panic of somebody else's code goes no further than here.

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

/// Drops what is the user's one after the other: a panic in one drop does not meet that of another.
pub fn drop_each<T>(all: impl IntoIterator<Item = T>) {
    for one in all {
        let _ = contain(|| drop(one));
    }
}

/// What is the user's, and may panic as it is dropped: while a panic is under way that one is
/// contained, for two at once would end the process.
#[derive(Debug)]
pub struct Apart<T>(Option<T>);

impl<T> Apart<T> {
    /// Keeps a value.
    #[inline]
    pub fn new(value: T) -> Self {
        Apart(Some(value))
    }

    /// The value.
    ///
    /// # Panics
    /// Never: it is there until it is taken.
    #[inline]
    pub fn get(&self) -> &T {
        self.0.as_ref().expect("there until it is taken")
    }

    /// The value, to be changed.
    ///
    /// # Panics
    /// Never, as [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("there until it is taken")
    }

    /// Gives the value out.
    ///
    /// # Panics
    /// Never, as [`get`](Self::get).
    #[inline]
    pub fn take(mut self) -> T {
        self.0.take().expect("there until it is taken")
    }
}

impl<T> Drop for Apart<T> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>()
            && let Some(value) = self.0.take()
        {
            drop_apart(value);
        }
    }
}

#[cold]
fn drop_apart<T>(value: T) {
    if std::thread::panicking() {
        drop_each([value]);
    } else {
        drop(value);
    }
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
