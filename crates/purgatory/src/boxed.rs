//! Operations without a type of their own: boxed operations of several kinds in one purgatory
//! ([`BoxedOperation`]), and a pair of closures instead of a struct ([`when`]).

use std::time::Duration;

use crate::operation::{DelayedOperation, Outcome, opaque};

/// Any operation, boxed. One purgatory of these takes several kinds, futures and blocking waits
/// included.
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
/// let requests: Purgatory<&str, BoxedOperation> = Purgatory::new("requests")?;
/// let timeout = Duration::from_secs(1);
/// requests.try_complete_else_watch(BoxedOperation::new(Fetch), &["orders-0"], timeout)?;
/// let produce = when(|| false, |outcome| println!("produce: {outcome}"));
/// requests.try_complete_else_watch(produce, &["orders-0"], timeout)?;
/// assert_eq!(requests.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BoxedOperation {
    operation: Box<dyn Erased>,
}

/// `DelayedOperation` with a callback that a box can call.
trait Erased: Send {
    fn check(&mut self, for_event: bool) -> bool;
    fn completes_by_call(&self) -> bool;
    fn weight(&self) -> u64;
    fn expiring(&mut self, late: &dyn Fn() -> Duration);
    fn on_complete(self: Box<Self>, outcome: Outcome);
}

impl<O: DelayedOperation> Erased for O {
    fn check(&mut self, for_event: bool) -> bool {
        if for_event {
            self.try_complete()
        } else {
            self.check_without_event()
        }
    }

    fn completes_by_call(&self) -> bool {
        DelayedOperation::completes_by_call(self)
    }

    fn weight(&self) -> u64 {
        DelayedOperation::weight(self)
    }

    fn expiring(&mut self, late: &dyn Fn() -> Duration) {
        DelayedOperation::expiring(self, late);
    }

    fn on_complete(self: Box<Self>, outcome: Outcome) {
        DelayedOperation::on_complete(*self, outcome);
    }
}

impl BoxedOperation {
    /// Boxes an operation. The box weighs what the operation weighs.
    pub fn new(operation: impl DelayedOperation) -> Self {
        BoxedOperation {
            operation: Box::new(operation),
        }
    }
}

impl DelayedOperation for BoxedOperation {
    fn try_complete(&mut self) -> bool {
        self.operation.check(true)
    }

    fn check_without_event(&mut self) -> bool {
        self.operation.check(false)
    }

    fn completes_by_call(&self) -> bool {
        self.operation.completes_by_call()
    }

    fn weight(&self) -> u64 {
        self.operation.weight()
    }

    fn expiring(&mut self, late: &dyn Fn() -> Duration) {
        self.operation.expiring(late);
    }

    fn on_complete(self, outcome: Outcome) {
        self.operation.on_complete(outcome);
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
