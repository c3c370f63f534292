//! What an operation is parked under: [`WatchKey`]s, in [`Watches`].

use std::hash::Hash;

use crate::operation::opaque;

/// The key that operations wait for and events name: a partition, a request id, a pair of both. Any
/// owned type that can be the key of a map, and cloned.
///
/// A key's `Hash` runs with nothing locked, its `Eq` and `Clone` under the lock of the shard it
/// hashes to: those must not call back into the purgatory. A [`Purgatory`](crate::Purgatory) takes
/// keys that are `Send`.
///
/// ```
/// fn is_a_key<K: purgatory::WatchKey>() {}
///
/// is_a_key::<String>();
/// is_a_key::<(&'static str, u32)>();
/// ```
pub trait WatchKey: Hash + Eq + Clone + Send + 'static {}

impl<K: Hash + Eq + Clone + Send + 'static> WatchKey for K {}

/// What an operation waits for: events on plain keys, watermarks that keys are to reach, or both.
///
/// A slice or array of keys is the plain form. A *watermark watch* is a pair of a key and a
/// threshold, for conditions on a value that only rises: the high watermark ≥ my offset, the log
/// end ≥ my bytes. [`complete_up_to`](crate::Purgatory::complete_up_to) with that key and a value
/// takes what the value meets and touches nothing else, however many wait for higher ones; the
/// other events of the key do not touch them either.
///
/// There are two forms. When the watermarks *are* the condition, the operation completes with the
/// last one met, without a check ([`up_to`](Self::up_to)). When they are only the earliest moment
/// at which it may hold, the operation is checked then, and again at each later rise, until its
/// check says so ([`checked`](Self::checked)).
///
/// In both forms the check must know the condition by itself: it is what notices, at the time of
/// parking, that a watermark has been reached already. The purgatory keeps no values.
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
}

impl<'a, K> Watches<'a, K> {
    /// Events on these keys: each has the operation checked.
    pub fn keys(keys: &'a [K]) -> Self {
        Watches {
            keys,
            watermarks: &[],
            counted: false,
            label: None,
        }
    }

    /// Watermarks: the operation completes when each key has reached its threshold. With several,
    /// it is also checked whenever one of them is met.
    ///
    /// At most 16 383 in one operation. A key with two thresholds is two watches; repeated pairs
    /// count once.
    pub fn up_to(watermarks: &'a [(K, u64)]) -> Self {
        Watches {
            keys: &[],
            watermarks,
            counted: true,
            label: None,
        }
    }

    /// The operation is checked once a watermark is met and at each later
    /// [`complete_up_to`](crate::Purgatory::complete_up_to) of that key, and completes only when
    /// its check says so. Any number of them; of several thresholds of one key the lowest is
    /// watched, since from then on every rise checks.
    pub fn checked(self) -> Self {
        Watches {
            counted: false,
            ..self
        }
    }

    /// With events on these keys, in place of any given before.
    pub fn with_keys(self, keys: &'a [K]) -> Self {
        Watches { keys, ..self }
    }

    /// With a label for the wait: what kind it is, for [snapshots](crate::Snapshot) and for the
    /// gauge `purgatory_parked_by_label`. A program has few labels, since they are static strings.
    /// Costs a box each; without one nothing.
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

/// A slice, an array or a `Vec` of keys.
impl<'a, K, L: AsRef<[K]> + ?Sized> From<&'a L> for Watches<'a, K> {
    fn from(keys: &'a L) -> Self {
        Watches::keys(keys.as_ref())
    }
}

opaque!(['a, K] Watches<'a, K>, label: label);
