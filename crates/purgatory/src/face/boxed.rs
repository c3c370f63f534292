//! Operations without a type of their own: several kinds in one purgatory ([`BoxedOperation`]), and
//! a pair of closures instead of a struct ([`when`]).

use std::fmt;

use timer_core::driver::Apart;

use crate::words::operation::{DelayedOperation, Outcome};

/// Any operation, boxed: for a purgatory in which several kinds wait, futures and blocking waits
/// among them.
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
/// requests.try_complete_else_watch(produce.into(), &["orders-0"], timeout)?;
/// assert_eq!(requests.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BoxedOperation {
    operation: Box<dyn Erased + Send>,
}

/// `DelayedOperation` with a callback that a box can make.
trait Erased {
    fn try_complete(&mut self) -> bool;
    fn on_complete(self: Box<Self>, outcome: Outcome);
}

impl<O: DelayedOperation> Erased for O {
    fn try_complete(&mut self) -> bool {
        DelayedOperation::try_complete(self)
    }

    fn on_complete(self: Box<Self>, outcome: Outcome) {
        DelayedOperation::on_complete(*self, outcome);
    }
}

impl BoxedOperation {
    /// Boxes an operation.
    pub fn new(operation: impl DelayedOperation + Send) -> Self {
        BoxedOperation { operation: Box::new(operation) }
    }
}

impl DelayedOperation for BoxedOperation {
    fn try_complete(&mut self) -> bool {
        self.operation.try_complete()
    }

    fn on_complete(self, outcome: Outcome) {
        self.operation.on_complete(outcome);
    }
}

impl fmt::Debug for BoxedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedOperation").finish_non_exhaustive()
    }
}

/// Any operation, `Send` or not, boxed: for a [`LocalPurgatory`](crate::LocalPurgatory) in which
/// several kinds wait, futures among them.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// use purgatory::{LocalBoxed, LocalPurgatory, Timeout, when};
///
/// let requests: LocalPurgatory<&str, LocalBoxed> = LocalPurgatory::new();
/// let ready = Rc::new(Cell::new(false));
/// let seen = ready.clone();
/// let fetch = when(move || seen.get(), |outcome| println!("fetch: {outcome}"));
/// requests.try_complete_else_watch(fetch.into(), &["orders-0"], Timeout::Never)?;
/// ready.set(true);
/// assert_eq!(requests.check_and_complete(&"orders-0"), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalBoxed {
    operation: Box<dyn Erased>,
}

impl LocalBoxed {
    /// Boxes an operation.
    pub fn new(operation: impl DelayedOperation) -> Self {
        LocalBoxed { operation: Box::new(operation) }
    }
}

impl DelayedOperation for LocalBoxed {
    fn try_complete(&mut self) -> bool {
        self.operation.try_complete()
    }

    fn on_complete(self, outcome: Outcome) {
        self.operation.on_complete(outcome);
    }
}

impl fmt::Debug for LocalBoxed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBoxed").finish_non_exhaustive()
    }
}

/// An operation of two closures, made by [`when`].
#[must_use = "it waits for nothing until it is parked"]
pub struct When<C, F> {
    condition: C,
    then: F,
}

/// An operation without a struct: waits until `condition` is true, then calls `then` with how it
/// ended. It is `Send`, as a [`Purgatory`](crate::Purgatory) wants it, if both closures are.
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
pub fn when<C, F>(condition: C, then: F) -> When<C, F>
where
    C: FnMut() -> bool + 'static,
    F: FnOnce(Outcome) + 'static,
{
    When { condition, then }
}

impl<C, F> DelayedOperation for When<C, F>
where
    C: FnMut() -> bool + 'static,
    F: FnOnce(Outcome) + 'static,
{
    fn try_complete(&mut self) -> bool {
        (self.condition)()
    }

    fn on_complete(self, outcome: Outcome) {
        let When { condition, then } = self;
        let _condition = Apart::new(condition);
        then(outcome);
    }
}

impl<C, F> From<When<C, F>> for BoxedOperation
where
    When<C, F>: DelayedOperation + Send,
{
    fn from(operation: When<C, F>) -> Self {
        BoxedOperation::new(operation)
    }
}

impl<C, F> From<When<C, F>> for LocalBoxed
where
    When<C, F>: DelayedOperation,
{
    fn from(operation: When<C, F>) -> Self {
        LocalBoxed::new(operation)
    }
}

impl<C, F> fmt::Debug for When<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("When").finish_non_exhaustive()
    }
}
