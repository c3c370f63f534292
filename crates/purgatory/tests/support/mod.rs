//! Helpers of many tests: operations that wait for a shared condition and record how they ended, a
//! purgatory on a manual timer, a park. Helpers for polls and for a late executor come from
//! `timer-core`'s tests. `use crate::support::*` also brings the names that most tests need.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "each test file uses its part"
)]

#[path = "../../../timer-core/tests/support/mod.rs"]
mod timers;

use std::{
    borrow::Borrow,
    fmt::{self, Debug, Formatter},
    hash::{Hash, Hasher},
    sync::atomic::AtomicI64,
};

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
pub use purgatory::{
    BoxedOperation, Builder, CancelReason, DelayedOperation, InEpoch, IntoWatches, Lease, Monitor,
    OperationId,
    Outcome::{self, Completed, Expired},
    Parked, Permits, Purgatory, ReachResult, Reason, Refused, ReplicaSets, Replies, ReplyScope,
    ReplyStream, Rule, Timeout, Times, WaitError, WaitFuture, Waits, WatchKey, Watches, Watermarks,
    when,
};

pub use timers::*;

pub const NEVER: Timeout = Timeout::Never;
pub const SHUTDOWN: Outcome = Outcome::Cancelled(CancelReason::Shutdown);
pub const DROPPED: Outcome = Outcome::Cancelled(CancelReason::Dropped);
pub const PANICKED: Outcome = Outcome::Cancelled(CancelReason::Panicked);

/// The outcome of an operation that a test cancels for this reason.
pub fn requested(reason: &'static str) -> Outcome {
    Outcome::Cancelled(CancelReason::Requested(reason.into()))
}

/// The reason for which a wait is cancelled when its epoch is over.
pub fn epoch_over(epoch: u64, present: u64) -> CancelReason {
    CancelReason::EpochOver { epoch, present }
}

/// The refusal of a call that names another epoch than the present one.
pub fn other_epoch(named: u64, present: u64) -> WaitError {
    WaitError::OtherEpoch { named, present }
}

/// Creates a purgatory of [`Op`]s on a manual timer.
pub fn waiting() -> (ManualTimer, Waiting) {
    by_hand()
}

/// Creates a purgatory on a manual timer.
pub fn by_hand<K, O>() -> (ManualTimer, Purgatory<K, O>)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    by_hand_with(|builder| builder)
}

/// Creates a purgatory as [`by_hand`] does, with these settings.
pub fn by_hand_with<K, O>(
    build: impl FnOnce(Builder<Purgatory<K, O>>) -> Builder<Purgatory<K, O>>,
) -> (ManualTimer, Purgatory<K, O>)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    let timer = ManualTimer::new();
    let purgatory = build(Purgatory::builder("test").timer(&timer))
        .build()
        .unwrap();
    (timer, purgatory)
}

/// Creates watermarks on a manual timer, with their waits for inspection.
pub fn watermarks<K: WatchKey>() -> (ManualTimer, Waits<K>, Watermarks<K>) {
    watermarks_with(|builder| builder)
}

/// Creates watermarks as [`watermarks`] does, with these settings.
pub fn watermarks_with<K: WatchKey>(
    build: impl FnOnce(Builder<Watermarks<K>>) -> Builder<Watermarks<K>>,
) -> (ManualTimer, Waits<K>, Watermarks<K>) {
    let timer = ManualTimer::new();
    let builder = Watermarks::builder("test").timer(&timer);
    let watermarks = build(builder).build().unwrap();
    (timer, watermarks.waits(), watermarks)
}

/// Creates replies on a manual timer, with their waits for inspection.
pub fn replies<V: Send + 'static>() -> (ManualTimer, Waits<u32>, Replies<u32, V>) {
    let timer = ManualTimer::new();
    let replies = Replies::on(&timer, "test").unwrap();
    (timer, replies.waits(), replies)
}

/// Checks that no wait and no key is left, and that each wait has ended once.
#[track_caller]
pub fn assert_nothing_waits<K>(waits: &Waits<K>) {
    let stats = waits.stats();
    assert_eq!((waits.len(), waits.keys(), stats.watched), (0, 0, 0));
    let ended = stats.completed + stats.expired + stats.cancelled;
    assert_eq!(stats.parked_total, ended);
    assert_eq!(stats.callbacks_waiting, 0);
}

/// Lets the tasks of expired waits be woken, since a shutdown does not wait for them, then does as
/// [`assert_nothing_waits`] does.
#[track_caller]
pub fn assert_all_ended<K>(waits: &Waits<K>) {
    while waits.stats().callbacks_waiting > 0 {
        thread::yield_now(); // for ever, if one were lost
    }
    assert_nothing_waits(waits);
}

/// Parks an operation that has to wait, and panics if it does not.
pub trait Park<K, O> {
    fn try_park(
        &self,
        operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Option<OperationId>;

    #[track_caller]
    fn park<'a>(
        &self,
        operation: impl Into<O>,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
    ) -> OperationId
    where
        K: 'a,
    {
        self.try_park(operation.into(), watches.into_watches(), timeout.into())
            .expect("it waits")
    }
}

impl<K: WatchKey + Send, O: DelayedOperation + Send> Park<K, O> for Purgatory<K, O> {
    fn try_park(
        &self,
        operation: O,
        watches: Watches<'_, K>,
        timeout: Timeout,
    ) -> Option<OperationId> {
        self.try_complete_else_watch(operation, watches, timeout)
            .unwrap()
    }
}

/// Returns the reason why the operation is refused, and the operation.
#[track_caller]
pub fn refused<'a, K, O>(
    purgatory: &Purgatory<K, O>,
    operation: O,
    watches: impl IntoWatches<'a, K>,
) -> (WaitError, O)
where
    K: WatchKey + Send + 'a,
    O: DelayedOperation + Send,
{
    let refused = purgatory
        .try_complete_else_watch(operation, watches, MINUTE)
        .unwrap_err();
    (refused.reason.clone(), refused.into_inner())
}

/// Checks that no operation and no watch is left, and that each parked operation has ended once.
#[track_caller]
pub fn assert_empty<K, O>(purgatory: &Purgatory<K, O>)
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    assert_eq!(purgatory.len(), 0);
    assert_eq!(purgatory.watched(), 0);
    assert_eq!(purgatory.keys(), 0);
    let stats = purgatory.stats();
    assert_eq!(
        stats.parked_total,
        stats.completed + stats.expired + stats.cancelled + stats.taken
    );
}

/// Holds a future for its own condition.
pub type Slot = Arc<Mutex<Option<WaitFuture<()>>>>;

/// Waits under these keys; the condition gets its own future, once that exists.
pub fn wait_with_itself<K: WatchKey + Send>(
    waits: &Purgatory<K>,
    keys: &[K],
    mut condition: impl FnMut(&mut Option<WaitFuture<()>>) -> bool + Send + 'static,
) -> Slot {
    let slot = Slot::default();
    let own = slot.clone();
    let condition = move || {
        let mut future = own.lock().unwrap();
        future.is_some() && condition(&mut future)
    };
    let future = waits.wait(keys, MINUTE, condition);
    *slot.lock().unwrap() = Some(future);
    slot
}

/// A test's handle to an operation: makes its condition true, and tells how it ended.
#[derive(Clone, Default)]
pub struct Probe {
    ready: Arc<AtomicBool>,
    checks: Arc<AtomicUsize>,
    endings: Arc<Mutex<Vec<Outcome>>>,
}

impl Probe {
    pub fn new() -> Self {
        Probe::default()
    }

    /// Makes the condition true.
    pub fn make_ready(&self) {
        self.ready.store(true, SeqCst);
    }

    pub fn checks(&self) -> usize {
        self.checks.load(SeqCst)
    }

    /// Returns the outcomes that the operation's callback got: exactly one, if all is well.
    pub fn endings(&self) -> Vec<Outcome> {
        self.endings.lock().unwrap().clone()
    }

    pub fn ended(&self) -> bool {
        !self.endings().is_empty()
    }

    /// Parks an operation under these watches, and returns its probe.
    #[track_caller]
    pub fn parked<'a, K, O>(
        purgatory: &Purgatory<K, O>,
        watches: impl IntoWatches<'a, K>,
        timeout: impl Into<Timeout>,
    ) -> Probe
    where
        K: WatchKey + Send + 'a,
        O: DelayedOperation + From<Op> + Send,
    {
        let probe = Probe::new();
        purgatory.park(probe.operation(), watches, timeout);
        probe
    }

    /// Creates an operation that waits until `make_ready`.
    pub fn operation(&self) -> Op {
        Op {
            probe: self.clone(),
            on_check: None,
            then: None,
        }
    }
}

/// An operation with a test's actions in its check and callback.
pub struct Op {
    probe: Probe,
    on_check: Option<Box<dyn FnMut() + Send>>,
    then: Option<Box<dyn FnOnce(Outcome) + Send>>,
}

impl Op {
    /// Adds an action to each check.
    pub fn on_check(mut self, act: impl FnMut() + Send + 'static) -> Self {
        self.on_check = Some(Box::new(act));
        self
    }

    /// Adds an action to the callback.
    pub fn then(mut self, act: impl FnOnce(Outcome) + Send + 'static) -> Self {
        self.then = Some(Box::new(act));
        self
    }
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.probe.checks.fetch_add(1, SeqCst);
        if let Some(act) = &mut self.on_check {
            act();
        }
        self.probe.ready.load(SeqCst)
    }

    fn on_complete(self, outcome: Outcome) {
        self.probe.endings.lock().unwrap().push(outcome.clone());
        if let Some(then) = self.then {
            then(outcome);
        }
    }
}

impl From<Op> for BoxedOperation {
    fn from(operation: Op) -> Self {
        BoxedOperation::new(operation)
    }
}

/// A recorder that makes its counters, gauges and histograms by these closures. By default they
/// record nothing.
#[cfg(feature = "metrics")]
pub struct Records<'a> {
    /// Gets the key of the counter.
    pub counter: Box<dyn Fn(&Key) -> Counter + 'a>,
    /// Gets the name of the gauge.
    pub gauge: Box<dyn Fn(&str) -> Gauge + 'a>,
    pub histogram: Box<dyn Fn() -> Histogram + 'a>,
}

#[cfg(feature = "metrics")]
impl<'a> Records<'a> {
    pub fn nothing() -> Self {
        Records::acting(|| ())
    }

    /// Creates a recorder that does this for each metric that is registered.
    pub fn acting(act: impl Fn() + Copy + 'a) -> Self {
        Records {
            counter: Box::new(move |_| {
                act();
                Counter::noop()
            }),
            gauge: Box::new(move |_| {
                act();
                Gauge::noop()
            }),
            histogram: Box::new(move || {
                act();
                Histogram::noop()
            }),
        }
    }
}

/// Checks that the unit fits the ending of the metric's name.
#[cfg(feature = "metrics")]
fn assert_unit(name: &KeyName, unit: Option<Unit>) {
    let expected = match name.as_str().ends_with("_seconds") {
        true => Unit::Seconds,
        false => Unit::Count,
    };
    assert_eq!(unit, Some(expected), "{name:?}");
}

#[cfg(feature = "metrics")]
impl metrics::Recorder for Records<'_> {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_unit(&name, unit);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_unit(&name, unit);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_unit(&name, unit);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        (self.counter)(key)
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        (self.gauge)(key.name())
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        (self.histogram)()
    }
}

/// Creates a condition that never holds, and in which a test can stop the thread.
pub fn false_at(stop: &Stop) -> impl FnMut() -> bool + Send + 'static {
    let stop = stop.clone();
    move || {
        stop.here();
        false
    }
}

/// Creates an operation that waits for ever and has an empty callback.
pub fn never() -> BoxedOperation {
    when(|| false, drop)
}

/// A purgatory of [`Op`]s.
pub type Waiting = Purgatory<&'static str, Op>;

/// Memory that several threads allocate. If one thread frees another's, the sum is still right.
#[derive(Default)]
pub struct Memory {
    left: AtomicI64,
    allocated: AtomicU64,
}

impl Memory {
    /// Runs the work, and counts the memory of this thread meanwhile.
    pub fn count(&self, work: impl FnOnce()) {
        let info = allocation_counter::measure(work);
        self.left.fetch_add(info.bytes_current, SeqCst);
        self.allocated.fetch_add(info.bytes_total, SeqCst);
    }

    /// Checks that more than `some` bytes were allocated, and that fewer than `few` are left.
    #[track_caller]
    pub fn assert_is_back(&self, some: u64, few: i64) {
        let left = self.left.load(SeqCst);
        let allocated = self.allocated.load(SeqCst);
        println!("{allocated} bytes were allocated, {left} of them are left");
        assert!(allocated > some && left.abs() < few);
    }
}

/// The method of a [`Hooked`] that calls the hook.
#[derive(Clone, Copy, PartialEq)]
pub enum At {
    Hash,
    Eq,
    Clone,
    Drop,
}

/// A key, member or value whose own methods call a test's hook. It is looked up by its number.
pub struct Hooked {
    pub number: u32,
    hook: Arc<dyn Fn(At) + Send + Sync>,
}

impl Hooked {
    pub fn new(number: u32, hook: impl Fn(At) + Send + Sync + 'static) -> Self {
        let hook = Arc::new(hook);
        Hooked { number, hook }
    }

    pub fn plain(number: u32) -> Self {
        Hooked::new(number, |_| ())
    }

    /// Creates one that keeps this value until its last copy is dropped.
    pub fn holding(number: u32, kept: impl Send + Sync + 'static) -> Self {
        Hooked::new(number, move |_| _ = &kept)
    }

    /// Creates one with this number and the same hook.
    pub fn like(&self, number: u32) -> Self {
        let hook = self.hook.clone();
        Hooked { number, hook }
    }

    /// Returns the number of values with this hook.
    pub fn alive(&self) -> usize {
        Arc::strong_count(&self.hook)
    }
}

impl Borrow<u32> for Hooked {
    fn borrow(&self) -> &u32 {
        &self.number
    }
}

impl Hash for Hooked {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.hook)(At::Hash);
        self.number.hash(hasher);
    }
}

impl PartialEq for Hooked {
    fn eq(&self, other: &Self) -> bool {
        (self.hook)(At::Eq);
        self.number == other.number
    }
}

impl Eq for Hooked {}

impl Clone for Hooked {
    fn clone(&self) -> Self {
        (self.hook)(At::Clone);
        self.like(self.number)
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        (self.hook)(At::Drop);
    }
}

impl Debug for Hooked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// Returns a hook that counts clones, and its counter.
pub fn counting() -> (Arc<AtomicUsize>, impl Fn(At) + Send + Sync) {
    let clones = Arc::new(AtomicUsize::new(0));
    let counted = clones.clone();
    (clones, move |at| {
        counted.fetch_add(usize::from(at == At::Clone), SeqCst);
    })
}
