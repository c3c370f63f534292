//! Operations without a type of their own: boxed operations of several kinds in one purgatory
//! ([`BoxedOperation`]), and a pair of closures instead of a struct ([`when`]).

pub(crate) mod wait;

use std::{any::Any, time::Duration};

use self::wait::WaitOperation;

use crate::operation::{DelayedOperation, Outcome, opaque};

/// Any operation, boxed. A purgatory of boxed operations takes several kinds, including futures and
/// blocking waits.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, when};
///
/// struct Fetch;
/// impl DelayedOperation for Fetch {
///     fn try_complete(&mut self) -> bool { true }
///     fn on_complete(self, outcome: Outcome) { assert_eq!(outcome, Outcome::Completed) }
/// }
///
/// let requests: Purgatory<&str> = Purgatory::new("requests")?;
/// let timeout = Duration::from_secs(1);
/// requests.try_complete_else_watch(BoxedOperation::new(Fetch), &["orders-0"], timeout)?;
/// let produce = when(|| false, |outcome| println!("produce: {outcome}"));
/// requests.try_complete_else_watch(produce, &["orders-0"], timeout)?;
/// assert_eq!(requests.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BoxedOperation {
    boxed: Boxed,
}

enum Boxed {
    Operation(Box<dyn Erased>),
    /// The operation of a wait, which shares its state with a future.
    Wait(WaitOperation),
}

/// `DelayedOperation` with a callback that a box can call.
trait Erased: DelayedOperation {
    fn end(self: Box<Self>, outcome: Outcome);
    fn as_any(&mut self) -> &mut dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<O: DelayedOperation> Erased for O {
    fn end(self: Box<Self>, outcome: Outcome) {
        (*self).on_complete(outcome);
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl BoxedOperation {
    /// Boxes an operation.
    pub fn new(operation: impl DelayedOperation) -> Self {
        BoxedOperation {
            boxed: Boxed::Operation(Box::new(operation)),
        }
    }

    /// Makes the operation of a wait.
    pub(crate) fn wait(wait: WaitOperation) -> Self {
        BoxedOperation {
            boxed: Boxed::Wait(wait),
        }
    }
    /// Returns the operation if it is a `T`, for use with
    /// [`Purgatory::with`](crate::Purgatory::with) and [`for_each`](crate::Purgatory::for_each).
    ///
    /// ```
    /// # use purgatory::{BoxedOperation, DelayedOperation, Outcome};
    /// # struct Fetch { bytes: u64 }
    /// # impl DelayedOperation for Fetch {
    /// #     fn try_complete(&mut self) -> bool { false }
    /// #     fn on_complete(self, _: Outcome) {}
    /// # }
    /// let mut boxed = BoxedOperation::new(Fetch { bytes: 7 });
    /// assert_eq!(boxed.downcast_mut::<Fetch>().map(|fetch| fetch.bytes), Some(7));
    /// assert!(boxed.downcast::<Fetch>().is_ok()); // out of its box
    /// ```
    pub fn downcast_mut<T: DelayedOperation>(&mut self) -> Option<&mut T> {
        match &mut self.boxed {
            Boxed::Operation(operation) => operation.as_any().downcast_mut(),
            Boxed::Wait(_) => None,
        }
    }

    /// Takes the operation out of its box if it is a `T`, as after
    /// [`Purgatory::take`](crate::Purgatory::take).
    ///
    /// # Errors
    /// Hands the box back if the operation is of another type.
    pub fn downcast<T: DelayedOperation>(mut self) -> Result<T, BoxedOperation> {
        if self.downcast_mut::<T>().is_none() {
            return Err(self);
        }
        match self.boxed {
            Boxed::Operation(operation) => match operation.into_any().downcast() {
                Ok(operation) => Ok(*operation),
                Err(_) => unreachable!("its type was compared"),
            },
            Boxed::Wait(_) => Err(self),
        }
    }
}

// Each method forwards to the operation; a method left to its default would not.
#[deny(clippy::missing_trait_methods)]
impl DelayedOperation for BoxedOperation {
    fn try_complete(&mut self) -> bool {
        match &mut self.boxed {
            Boxed::Operation(operation) => operation.try_complete(),
            Boxed::Wait(wait) => wait.check(),
        }
    }

    fn try_complete_with(&mut self, event: &dyn Any) -> bool {
        match &mut self.boxed {
            Boxed::Operation(operation) => operation.try_complete_with(event),
            Boxed::Wait(wait) => wait.check(),
        }
    }

    fn expiring(&mut self, late: &dyn Fn() -> Duration) {
        if let Boxed::Operation(operation) = &mut self.boxed {
            operation.expiring(late);
        }
    }

    fn on_complete(self, outcome: Outcome) {
        match self.boxed {
            Boxed::Operation(operation) => operation.end(outcome),
            Boxed::Wait(wait) => wait.end(&outcome),
        }
    }
}

opaque!([] BoxedOperation);

/// An operation that consists of two closures.
struct Closures<C, F> {
    condition: C,
    then: F,
}

/// Makes an operation of two closures: it waits until `condition` is true, then calls `then` with
/// its outcome.
///
/// ```
/// use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
/// use purgatory::{Outcome, Purgatory, when};
///
/// let ready = Arc::new(AtomicBool::new(false));
/// let seen = ready.clone();
/// let waits = when(move || seen.load(SeqCst), |outcome| assert_eq!(outcome, Outcome::Completed));
///
/// let purgatory = Purgatory::new("closures")?;
/// purgatory.try_complete_else_watch(waits, &["key"], Duration::from_secs(1))?;
/// ready.store(true, SeqCst);
/// assert_eq!(purgatory.check_and_complete(&"key"), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn when(
    condition: impl FnMut() -> bool + Send + 'static,
    then: impl FnOnce(Outcome) + Send + 'static,
) -> BoxedOperation {
    BoxedOperation::new(Closures { condition, then })
}

impl<C, F> DelayedOperation for Closures<C, F>
where
    C: FnMut() -> bool + Send + 'static,
    F: FnOnce(Outcome) + Send + 'static,
{
    fn try_complete(&mut self) -> bool {
        (self.condition)()
    }

    fn on_complete(self, outcome: Outcome) {
        (self.then)(outcome);
    }
}
