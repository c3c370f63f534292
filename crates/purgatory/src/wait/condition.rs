//! The results of conditions: an `Option` of a value, or a `bool`.

/// The result of a condition of [`Purgatory::wait`](crate::Purgatory::wait) or
/// [`Monitor::wait`](crate::Monitor::wait).
///
/// `Some(value)` or `true` ends the wait; after `None` or `false` it goes on.
#[diagnostic::on_unimplemented(
    message = "a condition gives `bool` or `Option`, not `{Self}`",
    label = "`false` or `None` waits on, `true` or `Some(value)` ends the wait"
)]
pub trait IntoAnswer {
    /// The type of the value that the wait yields: `()` for a `bool`.
    type Answer;

    /// Returns the value if the condition holds.
    fn into_answer(self) -> Option<Self::Answer>;
}

impl<T> IntoAnswer for Option<T> {
    type Answer = T;

    fn into_answer(self) -> Option<T> {
        self
    }
}

impl IntoAnswer for bool {
    type Answer = ();

    fn into_answer(self) -> Option<()> {
        if self { Some(()) } else { None }
    }
}

/// A condition, whatever its result.
pub(super) trait Condition: Send + 'static {
    type Value: Send + 'static;

    /// Evaluates the condition.
    fn value(&mut self) -> Option<Self::Value>;
}

impl<C, R> Condition for C
where
    C: FnMut() -> R + Send + 'static,
    R: IntoAnswer<Answer: Send + 'static>,
{
    type Value = R::Answer;

    fn value(&mut self) -> Option<R::Answer> {
        self().into_answer()
    }
}
