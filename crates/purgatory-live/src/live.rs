//! `Live`: what the page shows, the page, and one event.

use std::{fmt, fmt::Debug, sync::Arc, time::Duration};

use purgatory::{DelayedOperation, Purgatory, WatchKey};
use timer_core::{Clock, SystemClock, SystemTimer};

use crate::event::{Event, PurgatoryLook, Source, TimerLook, WithKeys};

/// What the page shows: purgatories and timers. A handle: clones show the same.
///
/// It keeps handles of them. A purgatory ends with its last handle, so end one that is shown by
/// [`shutdown`](Purgatory::shutdown); it can be looked at all the same.
#[derive(Clone)]
pub struct Live {
    clock: SystemClock,
    limit: usize,
    timers: Vec<Arc<dyn Source<TimerLook>>>,
    purgatories: Vec<Arc<dyn Source<PurgatoryLook>>>,
}

impl Live {
    /// The response header `Content-Security-Policy` for the page: its own script and style, named
    /// by their hashes, and events from where it came from; nothing else.
    pub const CONTENT_SECURITY_POLICY: &str = concat!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; ",
        "connect-src 'self'; img-src data:; ",
        "style-src 'sha256-o3HRb6px4LoJhfX3vHTh6HEISdgrDjtyNG00ixj5U3I='; ",
        "script-src 'sha256-DdJcGIjPA84snlQ6Ffku20Q9a7XD/kX1ISdQOU1VJD0='",
    );

    /// How long to wait between two events: the page expects a few a second.
    pub const PAUSE: Duration = Duration::from_millis(250);

    /// Nothing to show yet; the ten busiest keys and the ten oldest operations of each purgatory.
    pub fn new() -> Live {
        let (timers, purgatories) = (Vec::new(), Vec::new());
        Live {
            clock: SystemClock::new(),
            limit: 10,
            timers,
            purgatories,
        }
    }

    /// Shows a purgatory, and its [own timer](Purgatory::own_timer) if it has one. One on a shared
    /// timer does not bring that along: see [`timer`](Self::timer). Keys are written by their
    /// `Debug`; [`purgatory_with`](Self::purgatory_with) writes them in another way.
    pub fn purgatory<K, O>(self, purgatory: &Purgatory<K, O>) -> Live
    where
        K: WatchKey + Debug + Send,
        O: DelayedOperation + Send,
    {
        self.purgatory_with(purgatory, K::fmt)
    }

    /// As [`purgatory`](Self::purgatory), with keys as `show` writes them: `Display::fmt`, or a
    /// closure. It runs under no lock, and what it writes is cut after 120 characters.
    ///
    /// ```
    /// use std::fmt::Display;
    /// use purgatory::{BoxedOperation, Purgatory};
    /// use purgatory_live::Live;
    ///
    /// let fetches: Purgatory<&str, BoxedOperation> = Purgatory::new("fetch")?;
    /// let quorums: Purgatory<(u32, u64), BoxedOperation> = Purgatory::new("quorum")?;
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
        if let Some(timer) = purgatory.own_timer() {
            self = self.timer(timer);
        }
        let purgatory = purgatory.clone();
        self.purgatories.push(Arc::new(WithKeys {
            purgatory,
            show: Box::new(show),
        }));
        self
    }

    /// Shows a timer: its counts, of all purgatories and tasks on it together.
    pub fn timer(mut self, timer: &SystemTimer) -> Live {
        self.timers.push(Arc::new(timer.clone()));
        self
    }

    /// How many keys and operations are listed of each purgatory.
    pub fn limit(mut self, limit: usize) -> Live {
        self.limit = limit;
        self
    }

    /// The page, a whole HTML document. It listens to `events` below its own path: served at `/` to
    /// `/events`, at `/debug/live` to `/debug/live/events`.
    pub fn page() -> &'static str {
        include_str!("page.html")
    }

    /// What everything looks like now: the `data` of one server-sent event, JSON in one line. Its
    /// fields are the page's business and may change with it.
    ///
    /// O(parked + keys) for each purgatory, as [`Purgatory::snapshot`], and O(shards × buckets) for
    /// each timer. They are locked a shard at a time and nothing stands still, so counts may
    /// disagree by what moves meanwhile. For a hundred thousand parked that is some milliseconds:
    /// in an async program it belongs on a thread that may block. The first one starts the timing
    /// of waits: an ending then reads the clock.
    ///
    /// # Panics
    /// With a panic of a key's `Clone`, which runs under a lock, or of what writes keys, which runs
    /// under none.
    pub fn event(&self) -> String {
        let event = Event {
            at_s: Duration::from_nanos(self.clock.now_ns()).as_secs_f64(),
            timers: self
                .timers
                .iter()
                .map(|timer| timer.look(self.limit))
                .collect(),
            purgatories: self
                .purgatories
                .iter()
                .map(|source| source.look(self.limit))
                .collect(),
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
