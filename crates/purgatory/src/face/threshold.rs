//! One value that only rises, and those who wait for it: [`ThresholdPurgatory`].

use std::{borrow::Cow, sync::Arc};

use timer_core::BuildError;

use crate::{
    face::{
        boxed::BoxedOperation,
        purgatory::Purgatory,
        wait::{Condition, WaitFuture},
    },
    sync::{AtomicU64, Ordering},
    words::{
        operation::{DelayedOperation, Outcome, ParkResult, Refused, Timeout},
        watches::Watches,
    },
};

/// Waits for one value that only rises to reach a threshold: a log's high watermark, an applied
/// index, an epoch. What Kafka's raft calls the threshold purgatory.
///
/// It keeps the value, so there is no condition to write and no order of steps to get wrong. Those
/// whose thresholds are reached complete in the order of (threshold, arrival). A handle: clones are
/// the same, and dropping the last one ends what waits as Cancelled.
///
/// Callbacks run as those of any [`Purgatory`]. For its metrics and snapshots keep a clone of the
/// purgatory that it was made [from](Self::from).
///
/// ```
/// use std::time::Duration;
/// use purgatory::ThresholdPurgatory;
///
/// let applied = ThresholdPurgatory::new("applied-index")?;
/// let entry_7 = applied.wait_for(7, Duration::from_secs(1));
/// assert_eq!(applied.complete_up_to(6), 0);
/// assert_eq!(applied.waiting(), 1);
/// assert_eq!(applied.complete_up_to(9), 1);
/// assert_eq!(entry_7.block()?, 9);
/// assert_eq!(applied.wait_for(8, Duration::ZERO).block()?, 9); // reached already
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ThresholdPurgatory {
    purgatory: Purgatory<(), BoxedOperation>,
    value: Arc<AtomicU64>,
}

/// Waits for the value to reach the threshold.
struct Reached {
    value: Arc<AtomicU64>,
    threshold: u64,
}

impl Reached {
    fn now(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }
}

impl Condition<u64> for Reached {
    fn check(&mut self) -> Option<u64> {
        Some(self.now()).filter(|&value| value >= self.threshold)
    }

    fn completed(self) -> Option<u64> {
        Some(self.now())
    }
}

/// The same with a callback.
struct Calls<F> {
    reached: Reached,
    then: F,
}

impl<F: FnOnce(Outcome) + Send + 'static> DelayedOperation for Calls<F> {
    fn try_complete(&mut self) -> bool {
        self.reached.check().is_some()
    }

    fn on_complete(self, outcome: Outcome) {
        (self.then)(outcome);
    }
}

impl From<Purgatory<(), BoxedOperation>> for ThresholdPurgatory {
    /// Over a purgatory that was configured otherwise: a shared timer, an executor, a bound. It is
    /// then the threshold's alone: no second one over it, and no event or rise but through it.
    fn from(purgatory: Purgatory<(), BoxedOperation>) -> Self {
        ThresholdPurgatory { purgatory, value: Arc::new(AtomicU64::new(0)) }
    }
}

impl ThresholdPurgatory {
    /// With a timer of its own; the value is 0.
    ///
    /// # Errors
    /// As [`Purgatory::new`].
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Purgatory::new(name).map(Self::from)
    }

    /// The value. It never falls.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// A future of the value once it is at least `threshold`: the value when it is told, which may
    /// be higher by then. (After [`complete_all`](Self::complete_all) it may be lower.) Cancel
    /// safety: see [`WaitFuture`]. O(log waiting).
    ///
    /// # Errors
    /// The future yields a [`WaitError`](crate::WaitError).
    pub fn wait_for(&self, threshold: u64, timeout: impl Into<Timeout>) -> WaitFuture<u64> {
        let watermark = [((), threshold)];
        self.purgatory.wait_with(
            Watches::up_to(&watermark),
            timeout.into(),
            self.reached(threshold),
            None,
        )
    }

    /// Calls `then` once the value is at least `threshold`, or the wait ended otherwise. O(log
    /// waiting).
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Outcome, ThresholdPurgatory};
    ///
    /// let applied = ThresholdPurgatory::new("applied-index")?;
    /// let (told, outcomes) = mpsc::channel();
    /// applied.park(7, Duration::from_secs(30), move |outcome| told.send(outcome).unwrap())?;
    /// assert_eq!(applied.complete_up_to(7), 1);
    /// assert_eq!(outcomes.recv()?, Outcome::Completed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Purgatory::try_complete_else_watch`].
    pub fn park(
        &self,
        threshold: u64,
        timeout: impl Into<Timeout>,
        then: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<BoxedOperation>> {
        let operation = BoxedOperation::new(Calls { reached: self.reached(threshold), then });
        let watermark = [((), threshold)];
        self.purgatory.try_complete_else_watch(operation, Watches::up_to(&watermark), timeout)
    }

    fn reached(&self, threshold: u64) -> Reached {
        Reached { value: self.value.clone(), threshold }
    }

    /// Raises the value (a lower one changes nothing), and completes those whose thresholds it
    /// reaches; returns how many this call completed. Inside a callback it raises the value,
    /// returns 0, and completes when the outermost call returns. O(completed × log waiting).
    pub fn complete_up_to(&self, value: u64) -> usize {
        let before = self.value.fetch_max(value, Ordering::AcqRel);
        self.purgatory.complete_up_to(&(), value.max(before))
    }

    /// Completes all that wait, whatever they wait for; the value stays. Returns how many this call
    /// completed.
    pub fn complete_all(&self) -> usize {
        self.purgatory.complete_up_to(&(), u64::MAX)
    }

    /// Ends all that wait as Cancelled, with this reason; returns how many this call ended.
    pub fn cancel_all(&self, reason: impl Into<Cow<'static, str>>) -> usize {
        self.purgatory.cancel_for_key(&(), reason)
    }

    /// How many wait. O(1).
    pub fn waiting(&self) -> usize {
        self.purgatory.waiters(&())
    }

    /// Ends all that wait as Cancelled and refuses what comes later. See [`Purgatory::shutdown`].
    pub fn shutdown(&self) {
        self.purgatory.shutdown();
    }
}
