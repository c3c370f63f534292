//! Why a call cancelled an operation: a text, and optionally a value of the program's.

use std::{
    any::{Any, type_name},
    borrow::Cow,
    fmt,
    sync::Arc,
};

/// The reason that a call gives for a cancel: a text, and optionally a value of any type, such as a
/// protocol's error code. It is in [`CancelReason::Requested`](crate::CancelReason::Requested).
///
/// Every cancel takes a `&'static str` or a `String` for it. With a value,
/// [`with`](Self::with) makes one. Clones share the value.
///
/// Two reasons are equal if their texts are equal and they share their value or have none: values
/// are not compared. `Display` writes the text; `Debug` adds the type of the value.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use purgatory::{Outcome, Purgatory, Reason, when};
///
/// /// The transactions that wait for each other.
/// struct Deadlock { chain: Vec<u64> }
///
/// let locks = Purgatory::new("locks")?;
/// let (sender, outcomes) = mpsc::channel();
/// let waiter = when(|| false, move |outcome| sender.send(outcome).unwrap());
/// locks.try_complete_else_watch(waiter, &["row"], Duration::from_secs(30))?;
/// locks.cancel_for_key(&"row", Reason::with("deadlock", Deadlock { chain: vec![1, 2, 1] }));
///
/// let Outcome::Cancelled(reason) = outcomes.recv()? else { panic!("it was cancelled") };
/// assert_eq!(reason.to_string(), "deadlock");
/// let deadlock: &Deadlock = reason.value().expect("it came with the reason");
/// assert_eq!(deadlock.chain, [1, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reason(Parts);

/// The reason takes no more bytes than the text alone.
#[derive(Clone)]
enum Parts {
    Text(Cow<'static, str>),
    Typed(Arc<Typed<dyn Any + Send + Sync>>),
}

/// A text with a value.
struct Typed<T: ?Sized> {
    text: Cow<'static, str>,
    type_name: &'static str,
    value: T,
}

impl Reason {
    /// Makes a reason of a text that is known at compile time.
    pub const fn text(text: &'static str) -> Self {
        Reason(Parts::Text(Cow::Borrowed(text)))
    }

    /// Makes a reason of a text and a value. One allocation.
    pub fn with<T: Any + Send + Sync>(text: impl Into<Cow<'static, str>>, value: T) -> Self {
        Reason(Parts::Typed(Arc::new(Typed {
            text: text.into(),
            type_name: type_name::<T>(),
            value,
        })))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Parts::Text(text) => text,
            Parts::Typed(typed) => &typed.text,
        }
    }

    /// Returns the value, if there is one of this type.
    pub fn value<T: Any>(&self) -> Option<&T> {
        match &self.0 {
            Parts::Text(_) => None,
            Parts::Typed(typed) => typed.value.downcast_ref(),
        }
    }
}

/// Makes a reason of a text: a `&'static str`, a `String` or a `Cow` of both.
impl<T: Into<Cow<'static, str>>> From<T> for Reason {
    fn from(text: T) -> Self {
        Reason(Parts::Text(text.into()))
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Parts::Text(text), Parts::Text(of_other)) => text == of_other,
            // The same value has the same text.
            (Parts::Typed(typed), Parts::Typed(of_other)) => Arc::ptr_eq(typed, of_other),
            _ => false,
        }
    }
}

impl Eq for Reason {}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)?;
        if let Parts::Typed(typed) = &self.0 {
            write!(f, " with {}", typed.type_name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Outcome;

    /// Each thread that ends an operation moves an outcome.
    #[test]
    fn reasons_and_outcomes_are_small() {
        assert_eq!(size_of::<Reason>(), size_of::<String>());
        assert_eq!(
            size_of::<Outcome>(),
            size_of::<String>() + size_of::<usize>()
        );
    }
}
