//! [`Exclusive`]: what is `Sync` because nobody reaches it through a shared reference.

use std::sync::{Mutex, PoisonError};

/// A value that only its owner reaches, so that it is `Sync` when it is `Send`. Nothing is ever
/// locked.
#[derive(Debug, Default)]
pub struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    /// Keeps a value.
    pub fn new(value: T) -> Self {
        Exclusive(Mutex::new(value))
    }

    /// The value, to be changed.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
