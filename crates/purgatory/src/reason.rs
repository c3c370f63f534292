//! The reason why a call cancelled an operation: a text and, optionally, a value of any type.

use std::{
    any::{Any, type_name},
    borrow::Cow,
    fmt, ptr,
    sync::Arc,
};

/// The reason that a call gives for a cancel: a text, and optionally a value of any type, such as a
/// protocol's error code. It is in [`CancelReason::Requested`](crate::CancelReason::Requested).
///
/// Every cancel also takes a `&'static str` or a `String` as its reason. [`with`](Self::with) makes
/// a reason with a value. Clones share text and value.
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

/// As small as a `&str`: each end moves an outcome, and most have no reason.
#[derive(Clone)]
enum Parts {
    Text(&'static str),
    Made(Arc<Made>),
}

/// A text that was made at run time, or that has a value.
struct Made {
    text: Cow<'static, str>,
    typed: Option<Typed>,
}

/// A value, with the name of its type.
struct Typed {
    type_name: &'static str,
    value: Box<dyn Any + Send + Sync>,
}

impl Reason {
    /// Makes a reason of a text that is known at compile time.
    pub const fn text(text: &'static str) -> Self {
        Reason(Parts::Text(text))
    }

    /// Makes a reason of a text and a value. Two allocations.
    pub fn with<T: Any + Send + Sync>(text: impl Into<Cow<'static, str>>, value: T) -> Self {
        let typed = Typed {
            type_name: type_name::<T>(),
            value: Box::new(value),
        };
        Self::made(text.into(), Some(typed))
    }

    fn made(text: Cow<'static, str>, typed: Option<Typed>) -> Self {
        Reason(Parts::Made(Arc::new(Made { text, typed })))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Parts::Text(text) => text,
            Parts::Made(made) => &made.text,
        }
    }

    /// Returns the value, if there is one of this type.
    pub fn value<T: Any>(&self) -> Option<&T> {
        self.typed()?.value.downcast_ref()
    }

    fn typed(&self) -> Option<&Typed> {
        match &self.0 {
            Parts::Text(_) => None,
            Parts::Made(made) => made.typed.as_ref(),
        }
    }
}

/// Makes a reason of a text: a `&'static str`, a `String` or a `Cow` of both.
impl<T: Into<Cow<'static, str>>> From<T> for Reason {
    fn from(text: T) -> Self {
        match text.into() {
            Cow::Borrowed(text) => Reason::text(text),
            made => Reason::made(made, None),
        }
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        match (self.typed(), other.typed()) {
            (None, None) => self.as_str() == other.as_str(),
            // The same value has the same text.
            (Some(typed), Some(of_other)) => ptr::eq(typed, of_other),
            _ => false,
        }
    }
}

impl Eq for Reason {}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)?;
        if let Some(typed) = self.typed() {
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
    use crate::{error::WaitError, operation::Outcome};

    /// Each thread that ends an operation moves an outcome.
    #[test]
    fn reasons_and_outcomes_are_small() {
        let text = size_of::<&str>();
        assert_eq!(size_of::<Reason>(), text);
        assert_eq!(size_of::<Outcome>(), text + size_of::<usize>());
        assert_eq!(size_of::<WaitError>(), size_of::<Outcome>());
    }
}
