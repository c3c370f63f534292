//! Keys and watermarks that an operation is parked under: [`WatchKey`] and [`Watches`].

use std::hash::Hash;

use crate::operation::opaque;

/// The key that operations wait for and events name: a partition, a request id, a pair of both.
///
/// Any owned type that can be cloned and can be a map's key is a watch key. A
/// [`Purgatory`](crate::Purgatory) takes keys that are `Send`.
///
/// A key's `Hash` runs with nothing locked. Its `Eq` and `Clone` run under the lock of the key's
/// shard and must not call back into the purgatory.
///
/// # Keys from clients
/// Keys are hashed by rapidhash, with a random seed for each purgatory and random secrets for each
/// process. So a client cannot prepare keys that collide. It is no cryptographic hash: a client
/// that measures the times of many answers may learn enough to find some, and then each of them
/// costs a comparison with the others, under a lock. If that matters, let the key's `Hash` write
/// its hash by std's [`RandomState`](std::hash::RandomState). Bound the number of keys by
/// [`max_parked`](crate::Builder::max_parked).
///
/// ```
/// fn is_a_key<K: purgatory::WatchKey>() {}
///
/// is_a_key::<String>();
/// is_a_key::<(&'static str, u32)>();
/// ```
pub trait WatchKey: Hash + Eq + Clone + Send + 'static {}

impl<K: Hash + Eq + Clone + Send + 'static> WatchKey for K {}

/// The watches of one operation: plain keys, watermarks, or both.
///
/// A slice or array of keys is the plain form: each event of a key checks the operation. A
/// *watermark watch* is a pair of a key and a threshold, for a value that only rises: the high
/// watermark ≥ my offset, the log end ≥ my bytes.
/// [`complete_up_to`](crate::Purgatory::complete_up_to) only touches operations whose threshold is
/// reached, however many wait for higher values. Other events of the key touch no watermark watch.
///
/// Watermark watches have two forms:
///
/// - *Threshold watches* ([`up_to`](Self::up_to)) are the condition. The operation completes,
///   without a check, when the last of them is reached.
/// - *Checked watches* ([`checked`](Self::checked)) say when the condition may hold. The operation
///   is checked when one of them is reached and again whenever that key advances.
///
/// The purgatory keeps no values. In both forms the check must test the condition itself, since it
/// finds out, at parking, that a watermark was reached before.
///
/// ```
/// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, time::Duration};
/// use purgatory::{Purgatory, Watches, when};
///
/// let high_watermark = Arc::new(AtomicU64::new(0));
/// let produces = Purgatory::new("produce")?;
/// for required_offset in 1..=1000 {
///     let seen = high_watermark.clone();
///     let produce = when(move || seen.load(SeqCst) >= required_offset, |outcome| drop(outcome));
///     let until = [("orders-0", required_offset)];
///     produces.try_complete_else_watch(produce, Watches::up_to(&until), Duration::from_secs(30))?;
/// }
/// high_watermark.store(3, SeqCst);
/// assert_eq!(produces.complete_up_to(&"orders-0", 3), 3); // 997 were not looked at
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it only says what to wait for"]
pub struct Watches<'a, K> {
    pub(crate) keys: &'a [K],
    pub(crate) watermarks: &'a [(K, u64)],
    pub(crate) counted: bool,
    pub(crate) label: Option<&'static str>,
    /// The operation is checked once more when its timeout fires.
    pub(crate) last_check: bool,
    /// True when only a check gives the value that the operation yields.
    pub(crate) needs_value: bool,
    /// The operation is not checked ahead of those that wait in turn under its key.
    pub(crate) in_turn: bool,
    /// The operation is not checked as it is parked, unless an event comes by meanwhile.
    pub(crate) unchecked: bool,
}

impl<'a, K> Watches<'a, K> {
    /// Watches events of these keys: each event checks the operation.
    pub fn keys(keys: &'a [K]) -> Self {
        Watches {
            keys,
            watermarks: &[],
            counted: false,
            label: None,
            last_check: false,
            needs_value: false,
            in_turn: false,
            unchecked: false,
        }
    }

    /// Watches watermarks with threshold watches: the operation completes when each key has reached
    /// its threshold. With several, each one reached also checks the operation. Its check also runs
    /// when the operation is parked, since a watermark reached before is not signalled again.
    ///
    /// One operation can have 16 383 of them. A key with two thresholds has two watches; repeated
    /// pairs count once.
    pub fn up_to(watermarks: &'a [(K, u64)]) -> Self {
        Watches {
            keys: &[],
            watermarks,
            counted: true,
            label: None,
            last_check: false,
            needs_value: false,
            in_turn: false,
            unchecked: false,
        }
    }

    /// Makes the watermark watches checked watches. The operation is checked once a watermark is
    /// reached and at each later [`complete_up_to`](crate::Purgatory::complete_up_to) of that key,
    /// and completes only when its check comes true.
    ///
    /// Their number is not limited. Of several thresholds of one key the lowest is watched, since
    /// every later advance of the key checks the operation anyway.
    pub fn checked(self) -> Self {
        Watches {
            counted: false,
            ..self
        }
    }

    /// Adds events of these keys, and replaces keys given before.
    pub fn with_keys(self, keys: &'a [K]) -> Self {
        Watches { keys, ..self }
    }

    /// Waits in turn: first come, first served. Only the operation that has waited longest in turn
    /// under the key, the *head*, is checked, so that no other takes what it waits for.
    ///
    /// - An operation that comes while others wait in turn under its key is parked without a check,
    ///   or expires if its timeout is zero.
    /// - A signal of the key checks the head alone. It stops there if the head's check is false:
    ///   others wait, even if their checks were true. So a large request does not starve among
    ///   small ones.
    /// - Whenever the head ends, by an event, a timeout, a cancel or a panic, or is [taken
    ///   out](crate::Purgatory::take), the next is checked. So one event completes as many as their
    ///   checks allow.
    /// - Rechecks and last checks are for the head only. [`complete`](crate::Purgatory::complete)
    ///   of an operation that is not the head, and needs a check, gives
    ///   [`NoValue`](crate::EndResult::NoValue).
    /// - A [`WaitFuture`](crate::WaitFuture) in turn that has waited, was completed, and is dropped
    ///   with its value, passes its turn on: the value is dropped, then the head is checked. A
    ///   guard that signals the key as it is dropped counts once.
    /// - Events for one that come while the head is under check count as one, for it or for the
    ///   next. Conditions see what each has changed; a [`next_event`](crate::Purgatory::next_event)
    ///   behind may miss the others.
    ///
    /// "Ahead" is decided under the lock of the key's shard as the call begins. Of calls that
    /// overlap, either may be first. Operations that wait under the key otherwise are checked as
    /// ever, before the head. A signal [with an
    /// argument](crate::Purgatory::check_and_complete_with) checks the head without it.
    ///
    /// The only watch must be one plain key; otherwise the operation is refused as
    /// [`TurnOfOneKey`](crate::RefusedReason::TurnOfOneKey). An operation in the turns of two keys
    /// would hold up both, and two that are each first under one of the other's keys would wait
    /// for each other.
    ///
    /// [`Purgatory::wait_in_turn`](crate::Purgatory::wait_in_turn) and
    /// [`Monitor::wait_in_turn`](crate::Monitor::wait_in_turn) wait so; with these watches an
    /// operation or a [`next_event`](crate::Purgatory::next_event) does, too.
    ///
    /// O(1) to park and to leave. A key with waits in turn costs one more lock hold for each event,
    /// and one more check after each wait that ends.
    ///
    /// ```
    /// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, time::Duration};
    /// use purgatory::{Purgatory, Watches};
    ///
    /// let waits: Purgatory<&str> = Purgatory::new("memory")?;
    /// let free = Arc::new(AtomicU64::new(3));
    /// let take = |bytes: u64| {
    ///     let free = free.clone();
    ///     let less = move |free: u64| free.checked_sub(bytes);
    ///     let taken = move || free.fetch_update(SeqCst, SeqCst, less).is_ok();
    ///     waits.wait(Watches::keys(&["memory"]).in_turn(), Duration::from_secs(30), taken)
    /// };
    /// let large = take(5);
    /// let small = take(1); // 3 are free, but the large one is first
    /// assert_eq!(waits.len(), 2);
    /// free.fetch_add(4, SeqCst);
    /// assert_eq!(waits.check_and_complete(&"memory"), 2);
    /// # assert_eq!((large.wait_blocking(), small.wait_blocking()), (Ok(()), Ok(())));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn in_turn(self) -> Self {
        Watches {
            in_turn: true,
            ..self
        }
    }

    /// Labels the wait with its kind, for [snapshots](crate::Snapshot) and the gauge
    /// `purgatory_parked_by_label`.
    ///
    /// Use few labels: each is a time series. An operation with a label costs one more allocation.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, Watches, when};
    ///
    /// let requests = Purgatory::new("requests")?;
    /// let fetch = Watches::keys(&["orders-0"]).labelled("fetch");
    /// let _fetched = requests.wait(fetch, Duration::from_secs(30), || None::<()>);
    /// let snapshot = requests.snapshot(10);
    /// assert_eq!(snapshot.labels, [("fetch", 1)]);
    /// assert_eq!(snapshot.oldest[0].label, Some("fetch"));
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn labelled(self, label: &'static str) -> Self {
        Watches {
            label: Some(label),
            ..self
        }
    }
}

impl<K> Clone for Watches<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Watches<'_, K> {}

/// The keys or watches that a call names: a slice, an array or a `Vec` of keys by reference, for
/// one key `&[key]`; or [`Watches`].
///
/// A single key is not a list of keys:
///
/// ```compile_fail
/// let purgatory: purgatory::Purgatory<String> = purgatory::Purgatory::new("waits")?;
/// purgatory.wait("key", purgatory::Timeout::Never, || false);
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of keys of type `{K}`",
    label = "for one key write `&[key]`, for several a slice of them, or `Watches`",
    note = "the keys are owned, of the purgatory's own key type: `&[key.to_owned()]` for `String`"
)]
pub trait IntoWatches<'a, K> {
    /// Returns the watches.
    fn into_watches(self) -> Watches<'a, K>;
}

impl<'a, K> IntoWatches<'a, K> for Watches<'a, K> {
    fn into_watches(self) -> Watches<'a, K> {
        self
    }
}

impl<'a, K> IntoWatches<'a, K> for &'a [K] {
    fn into_watches(self) -> Watches<'a, K> {
        Watches::keys(self)
    }
}

impl<'a, K, const N: usize> IntoWatches<'a, K> for &'a [K; N] {
    fn into_watches(self) -> Watches<'a, K> {
        Watches::keys(self)
    }
}

impl<'a, K> IntoWatches<'a, K> for &'a Vec<K> {
    fn into_watches(self) -> Watches<'a, K> {
        Watches::keys(self)
    }
}

/// Converts a slice, an array or a `Vec` of keys.
impl<'a, K, L: AsRef<[K]> + ?Sized> From<&'a L> for Watches<'a, K> {
    fn from(keys: &'a L) -> Self {
        Watches::keys(keys.as_ref())
    }
}

opaque!(['a, K] Watches<'a, K>, label: label);
