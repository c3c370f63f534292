//! `Live`: the list of what the page shows, the page, and one event.

use std::{fmt, fmt::Debug, sync::Arc, time::Duration};

use purgatory::{DelayedOperation, Purgatory, Waits, WatchKey};
use timer_core::{Clock, SystemClock, Timer};

use crate::event::{Event, PurgatoryView, ShownPurgatory, ShownWaits, Source, TimerView};

/// The purgatories and timers that the page shows. It is a handle: clones show the same.
///
/// It keeps handles of them. A purgatory ends with its last handle, so end one that is shown by
/// [`shutdown`](Purgatory::shutdown); the page goes on showing it.
#[derive(Clone)]
pub struct Live {
    clock: SystemClock,
    limit: usize,
    timers: Vec<Arc<dyn Source<TimerView>>>,
    purgatories: Vec<Arc<dyn Source<PurgatoryView>>>,
}

impl Live {
    /// The response header `Content-Security-Policy` for the page. It allows the page's own script
    /// and style, by their hashes, and events from the page's own origin; nothing else.
    pub const CONTENT_SECURITY_POLICY: &str = concat!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; ",
        "connect-src 'self'; img-src data:; ",
        "style-src 'sha256-o3HRb6px4LoJhfX3vHTh6HEISdgrDjtyNG00ixj5U3I='; ",
        "script-src 'sha256-jumSQWj3hZlHAZQOm2hGSzw4845cZV2mhmdgl1TQ+t8='",
    );

    /// The pause between two events: the page expects a few per second.
    pub const PAUSE: Duration = Duration::from_millis(250);

    /// Creates an empty list. The page will show the ten busiest keys and the ten oldest operations
    /// of each purgatory.
    pub fn new() -> Live {
        Live {
            clock: SystemClock::new(),
            limit: 10,
            timers: Vec::new(),
            purgatories: Vec::new(),
        }
    }

    /// Adds a purgatory. Its timer is added separately, by [`timer`](Self::timer). Keys are written by their `Debug`;
    /// [`purgatory_with`](Self::purgatory_with) writes them in another way.
    pub fn purgatory<K, O>(self, purgatory: &Purgatory<K, O>) -> Live
    where
        K: WatchKey + Debug + Send,
        O: DelayedOperation + Send,
    {
        self.purgatory_with(purgatory, K::fmt)
    }

    /// Adds a purgatory whose keys `show` writes: `Display::fmt`, or a closure. It runs under no
    /// lock, and its text is cut after 120 characters.
    ///
    /// ```
    /// use std::fmt::Display;
    /// use purgatory::Purgatory;
    /// use purgatory_live::Live;
    ///
    /// let fetches: Purgatory<&str> = Purgatory::new("fetch")?;
    /// let quorums: Purgatory<(u32, u64)> = Purgatory::new("quorum")?;
    /// let live = Live::new()
    ///     .purgatory_with(&fetches, Display::fmt) // orders-0, where Debug has "orders-0"
    ///     .purgatory_with(&quorums, |(group, term), f| write!(f, "group {group}, term {term}"));
    /// # drop(live);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn purgatory_with<K, O, S>(mut self, purgatory: &Purgatory<K, O>, show: S) -> Live
    where
        K: WatchKey + Send,
        O: DelayedOperation + Send,
        S: Fn(&K, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    {
        let purgatory = purgatory.clone();
        self.purgatories.push(Arc::new(ShownPurgatory {
            purgatory,
            show: Box::new(show),
        }));
        self
    }

    /// Adds the waits of a form (`Watermarks`, `ReplicaSets`). Keys are written by their `Debug`;
    /// [`waits_with`](Self::waits_with) writes them in another way.
    ///
    /// ```
    /// use purgatory::Watermarks;
    /// use purgatory_live::Live;
    ///
    /// let log_ends: Watermarks<&str> = Watermarks::new("log ends")?;
    /// let live = Live::new().waits(&log_ends.waits());
    /// # drop(live);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn waits<K>(self, waits: &Waits<K>) -> Live
    where
        K: WatchKey + Debug + Send,
    {
        self.waits_with(waits, K::fmt)
    }

    /// Adds the waits of a form, whose keys `show` writes as it does for
    /// [`purgatory_with`](Self::purgatory_with).
    pub fn waits_with<K, S>(mut self, waits: &Waits<K>, show: S) -> Live
    where
        K: WatchKey + Send,
        S: Fn(&K, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    {
        self.purgatories.push(Arc::new(ShownWaits {
            waits: waits.clone(),
            show: Box::new(show),
        }));
        self
    }

    /// Adds a timer, such as the one that the process [shares](Timer::shared). Its counts cover all
    /// purgatories and tasks on it.
    pub fn timer(mut self, timer: &Timer) -> Live {
        self.timers.push(Arc::new(timer.clone()));
        self
    }

    /// Sets how many keys and operations are listed of each purgatory.
    pub fn limit(mut self, limit: usize) -> Live {
        self.limit = limit;
        self
    }

    /// Returns the page, a whole HTML document. It listens to `events` below its own path: to
    /// `/events` if served at `/`, to `/debug/live/events` if served at `/debug/live`.
    pub fn page() -> &'static str {
        include_str!("page.html")
    }

    /// Observes everything, and returns the `data` of one server-sent event: JSON in one line. Its
    /// fields belong to the page and may change with it.
    ///
    /// O(parked + keys) for each purgatory, as [`Purgatory::snapshot`], and O(shards × buckets) for
    /// each timer. Shards are locked one after another, so counts may disagree by what changes
    /// meanwhile. The event lists a part, [`limit`](Self::limit) keys and operations, but finding
    /// them visits all. A hundred thousand parked operations take some milliseconds, a million ten
    /// times that and more: in an async program, call it on a thread that may block. The first call
    /// starts the timing of waits: every ending then reads the clock.
    ///
    /// # Panics
    /// When a key's `Clone` panics, which runs under a lock, or the function that writes keys,
    /// which runs under none.
    pub fn event(&self) -> String {
        let timers = self.timers.iter().map(|timer| timer.observe(self.limit));
        let purgatories = self.purgatories.iter().map(|one| one.observe(self.limit));
        let event = Event {
            at_s: Duration::from_nanos(self.clock.now_ns()).as_secs_f64(),
            timers: timers.collect(),
            purgatories: purgatories.collect(),
        };
        serde_json::to_string(&event).expect("numbers, text and lists can be written as JSON")
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("timers", &self.timers.len())
            .field("purgatories", &self.purgatories.len())
            .finish_non_exhaustive()
    }
}
