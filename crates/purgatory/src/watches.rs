//! Keys that an operation is parked under: [`WatchKey`] and [`Watches`]; and keys as callers pass
//! them: [`KeyRef`] and [`ToKey`].

use std::{borrow::Borrow, hash::Hash};

use crate::operation::opaque;

/// A key that operations wait for and threads signal: a partition, a request id, a pair of both.
///
/// Any owned type that can be cloned, sent to another thread, and used as a map's key is a watch key.
///
/// A key's `Hash` runs with nothing locked. Its `Eq` and `Clone` run under the lock of the key's
/// shard and must not call back into the purgatory.
///
/// # Keys from clients
/// Keys are hashed by rapidhash, with a random seed for each purgatory and random secrets for each
/// process. So a client cannot prepare keys that collide. Rapidhash is not cryptographic: a client
/// that measures the times of many answers may learn enough to find colliding keys, each of which
/// then costs a comparison with the others, under a lock. If that matters, let the key's `Hash`
/// write a hash that was computed with std's [`RandomState`](std::hash::RandomState). Bound the
/// number of keys with [`max_parked`](crate::Builder::max_parked).
///
/// On a [`ManualTimer`](timer_core::ManualTimer), seed and secrets are the same in each run, so
/// that a simulation can be repeated. They are public, so a client can prepare keys that collide.
/// An event loop that advances a `ManualTimer` and takes keys from clients needs such a `Hash`.
///
/// ```
/// fn is_a_key<K: purgatory::WatchKey>() {}
///
/// is_a_key::<String>();
/// is_a_key::<(&'static str, u32)>();
/// ```
pub trait WatchKey: Hash + Eq + Clone + Send + 'static {}

impl<K: Hash + Eq + Clone + Send + 'static> WatchKey for K {}

/// A key as a caller passes it by reference: the key itself or a borrowed form, `str` for `String`.
///
/// As in std's maps, a borrowed form is one that the key type [borrows](Borrow) as, and that hashes
/// and compares as the key does. The call makes no key from it. A call that may have to make a key
/// takes [`ToKey`].
///
/// ```
/// use purgatory::{KeyRef, Purgatory};
///
/// fn is_waited_for(fetches: &Purgatory<String>, key: &(impl KeyRef<String> + ?Sized)) -> bool {
///     fetches.waiters(key) > 0
/// }
///
/// let fetches = Purgatory::new("fetch")?;
/// assert!(!is_waited_for(&fetches, "orders-0"));
/// assert!(!is_waited_for(&fetches, &String::from("orders-0")));
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
pub trait KeyRef<K>: Hash {
    /// Returns true if it names this key. Runs the key's `Eq`.
    #[doc(hidden)]
    fn is(&self, key: &K) -> bool;
}

impl<K: Borrow<Q>, Q: Hash + Eq + ?Sized> KeyRef<K> for Q {
    fn is(&self, key: &K) -> bool {
        self == key.borrow()
    }
}

/// A key as a caller passes it to a call that may add the key: a [`KeyRef`] whose [`ToOwned`] makes
/// the key.
///
/// These are the key type itself, `str` for `String`, `[T]` for `Vec<T>`. A key whose borrowed form
/// has another `ToOwned`, such as `Arc<str>`, is passed as `&key`. For `String` write `"a"`: for
/// `&"a"`, rustc reports `<&str as ToOwned>::Owned == String`.
///
/// ```
/// use purgatory::{ToKey, Watermarks};
///
/// fn append(ends: &Watermarks<String>, log: &(impl ToKey<String> + ?Sized)) {
///     ends.add(log, 1).expect("the log is open");
/// }
///
/// let ends = Watermarks::new("log-end")?;
/// append(&ends, "orders-0");
/// assert_eq!(ends.value("orders-0"), Some(1));
/// # Ok::<(), purgatory::timer_core::BuildError>(())
/// ```
pub trait ToKey<K>: KeyRef<K> {
    /// Makes the key. Runs its `ToOwned`.
    #[doc(hidden)]
    fn to_key(&self) -> K;
}

impl<K: Borrow<Q>, Q: Hash + Eq + ToOwned<Owned = K> + ?Sized> ToKey<K> for Q {
    fn to_key(&self) -> K {
        self.to_owned()
    }
}

/// The keys that one operation watches, and a label.
///
/// For most operations, a slice or array of keys is enough: each event of a key checks the
/// operation. `Watches` adds a [label](Self::labelled).
///
/// ```
/// use std::time::Duration;
/// use purgatory::{Purgatory, Watches, when};
///
/// let fetches = Purgatory::new("fetch")?;
/// let keys = ["orders-0", "orders-1"];
/// let watches = Watches::keys(&keys).labelled("consumer");
/// fetches.try_complete_else_watch(when(|| false, drop), watches, Duration::from_secs(30))?;
/// assert_eq!((fetches.waiters("orders-1"), fetches.snapshot(1).labels[0]), (1, ("consumer", 1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it only says what to wait for"]
pub struct Watches<'a, K> {
    pub(crate) keys: &'a [K],
    pub(crate) label: Option<&'static str>,
    pub(crate) unasked: UnaskedChecks,
}

/// The checks of an operation that no event asks for: rechecks, and the last check when its timeout
/// fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaskedChecks {
    /// Rechecks, if its purgatory was built with them.
    Rechecks,
    /// Rechecks, and the last check.
    Last,
    /// None: the operation has no condition.
    Never,
}

impl<'a, K> Watches<'a, K> {
    /// Watches events of these keys: each event checks the operation.
    pub fn keys(keys: &'a [K]) -> Self {
        Watches {
            keys,
            label: None,
            unasked: UnaskedChecks::Rechecks,
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

/// The keys or watches that a call takes: a slice, an array or a `Vec` of keys by reference, for
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

opaque!(['a, K] Watches<'a, K>, label: label);
