//! `Live`: the list of what the page shows, the page, and one event.

use std::{fmt, fmt::Debug, sync::Arc, time::Duration};

use purgatory::{DelayedOperation, Purgatory, ReplicaSets, Waits, WatchKey, WatermarkValue};
use timer_core::{Clock, SystemClock, Timer};

use crate::event::{Event, Shown, ShownPurgatory, ShownReplicaSets, ShownWaits, Source, TimerView};

/// The purgatories and timers that the page shows. It is a handle: all clones show the same.
///
/// It keeps handles of what it shows. A purgatory ends with its last handle, so end a shown one by
/// [`shutdown`](Purgatory::shutdown); the page goes on showing it.
///
/// # History
/// A page that is opened later also shows the last minute, as far as it is known: each
/// [`event`](Self::event), for any client, keeps a point of it, at most one a second. Nothing else
/// does, so a program without clients stays idle. To keep the history without a client, call
/// [`record`](Self::record), in the handler of a scrape or each second. A form's points take up to
/// 210 KB.
#[derive(Clone)]
pub struct Live {
    clock: SystemClock,
    limit: usize,
    timers: Vec<Timer>,
    purgatories: Vec<Arc<Shown>>,
}

impl Live {
    /// The response header `Content-Security-Policy` for the page. It allows the page's own script
    /// and style, by their hashes, and events from the page's own origin; nothing else.
    pub const CONTENT_SECURITY_POLICY: &str = concat!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; ",
        "connect-src 'self'; img-src data:; ",
        "style-src 'sha256-jsBbe76eT1SkuqKGEIliUFSmfnpiWmEiRbpGmOl+EIs='; ",
        "script-src 'sha256-wVdz0CjlRGXUAYVJnfQNYBVPYne176QnHrnHyp3PUDI='",
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

    /// Adds a purgatory. Its timer is added separately, by [`timer`](Self::timer). Keys are written
    /// by their `Debug`; [`purgatory_with`](Self::purgatory_with) writes them in another way.
    pub fn purgatory<K, O>(self, purgatory: &Purgatory<K, O>) -> Live
    where
        K: WatchKey + Debug,
        O: DelayedOperation + Send,
    {
        self.purgatory_with(purgatory, K::fmt)
    }

    /// Adds a purgatory whose keys `show` writes: `Display::fmt`, or a closure. `show` runs under
    /// no lock, and its text is cut after 120 characters.
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
        K: WatchKey,
        O: DelayedOperation + Send,
        S: Fn(&K, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    {
        let purgatory = purgatory.clone();
        self.add(ShownPurgatory {
            purgatory,
            show: Box::new(show),
        });
        self
    }

    /// Adds the waits of a form (`Watermarks`, `Replies`). Keys are written by their `Debug`;
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
        K: WatchKey + Debug,
    {
        self.waits_with(waits, K::fmt)
    }

    /// Adds the waits of a form, whose keys `show` writes as it does for
    /// [`purgatory_with`](Self::purgatory_with).
    pub fn waits_with<K, S>(mut self, waits: &Waits<K>, show: S) -> Live
    where
        K: WatchKey,
        S: Fn(&K, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    {
        self.add(ShownWaits {
            waits: waits.clone(),
            show: Box::new(show),
        });
        self
    }

    /// Adds replica sets: their waits, and the members that [lag](ReplicaSets::lagging) in the
    /// groups that most writes wait for. Groups, members and values are written by their `Debug`;
    /// [`replica_sets_with`](Self::replica_sets_with) writes groups in another way.
    ///
    /// Each event looks for lagging members, as a leader does: a member's time counts from the
    /// first look, of an event or of the leader, that found it behind.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{ReplicaSets, Rule};
    /// use purgatory_live::Live;
    ///
    /// let logs: ReplicaSets<&str, &str> = ReplicaSets::new("produce")?;
    /// logs.set(&"orders-0", 0, [("leader", 42), ("a", 40)], 42, Rule::all())?;
    /// let produce = logs.in_epoch(&"orders-0", 0).wait_for(42, Duration::from_secs(30));
    /// let live = Live::new().replica_sets(&logs);
    /// assert!(live.event().contains(r#""member":"\"a\"","value":"40""#));
    /// # drop(produce);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replica_sets<G, M, V>(self, sets: &ReplicaSets<G, M, V>) -> Live
    where
        G: WatchKey + Debug,
        M: Eq + Clone + Debug + Send + 'static,
        V: WatermarkValue + Debug,
    {
        self.replica_sets_with(sets, G::fmt)
    }

    /// Adds replica sets, whose groups `show` writes as it does for
    /// [`purgatory_with`](Self::purgatory_with).
    pub fn replica_sets_with<G, M, V, S>(mut self, sets: &ReplicaSets<G, M, V>, show: S) -> Live
    where
        G: WatchKey,
        M: Eq + Clone + Debug + Send + 'static,
        V: WatermarkValue + Debug,
        S: Fn(&G, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
    {
        self.add(ShownReplicaSets {
            sets: sets.clone(),
            show: Box::new(show),
        });
        self
    }

    fn add(&mut self, source: impl Source + 'static) {
        self.purgatories.push(Arc::new(Shown::new(source)));
    }

    /// Adds a timer, such as the one that the process [shares](Timer::shared). Its counts cover all
    /// purgatories and tasks on it.
    pub fn timer(mut self, timer: &Timer) -> Live {
        self.timers.push(timer.clone());
        self
    }

    /// Sets how many keys and operations of each purgatory are listed.
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
    /// When the `Clone` of a key or member panics, which runs under a lock, or the function that writes
    /// keys, or the `Debug` of a member or value, which run under none.
    pub fn event(&self) -> String {
        self.event_at(self.clock.now_ns())
    }

    fn event_at(&self, now_ns: u64) -> String {
        let mut purgatories = Vec::with_capacity(self.purgatories.len());
        for shown in &self.purgatories {
            purgatories.push(shown.observe(now_ns, self.limit));
        }
        let event = Event {
            at_s: Duration::from_nanos(now_ns).as_secs_f64(),
            timers: self.timers.iter().map(TimerView::of).collect(),
            purgatories,
        };
        serde_json::to_string(&event).expect("numbers, text and lists can be written as JSON")
    }

    /// Keeps a point of the history of everything, as an event does, unless the last point is of
    /// this second. Call it in the handler of a scrape, or each second if a wake-up a second does
    /// not matter: the program then knows the minute before the page was opened.
    ///
    /// O(shards × buckets), whatever is parked. The first call starts the timing of waits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{Purgatory, timer_core::Timer};
    /// use purgatory_live::Live;
    ///
    /// let fetches: Purgatory<u32> = Purgatory::new("fetch")?;
    /// let live = Live::new().purgatory(&fetches);
    /// let each_second = Duration::from_secs(1);
    /// let recorder = Timer::shared()?
    ///     .schedule_at_fixed_rate(Duration::ZERO, each_second, move || live.record())?;
    /// // At the end: it keeps what is shown.
    /// recorder.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record(&self) {
        self.record_at(self.clock.now_ns());
    }

    fn record_at(&self, now_ns: u64) {
        for shown in &self.purgatories {
            shown.record(now_ns);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    use purgatory::when;
    use timer_core::ManualTimer;

    const SECOND: Duration = Duration::from_secs(1);

    /// Advances the timer to each second up to `last`, ends one operation in each, and calls `at`
    /// with the time in nanoseconds.
    fn each_second(timer: &ManualTimer, fetches: &Purgatory<u32>, last: u64, at: impl Fn(u64)) {
        for second in 1..=last {
            let operation = when(|| false, drop);
            let parked = fetches.try_complete_else_watch(operation, &[1], SECOND);
            parked.unwrap();
            timer.advance(SECOND);
            at(second * 1_000_000_000);
        }
    }

    fn minute_of(event: &str) -> serde_json::Value {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        event["purgatories"][0]["minute"].clone()
    }

    #[test]
    fn page_opened_later_is_shown_the_minute_before() {
        let timer = ManualTimer::new();
        let fetches: Purgatory<u32> = Purgatory::on(&timer, "fetch").unwrap();
        let live = Live::new().purgatory(&fetches);
        live.record_at(0);
        // A clone, such as that of a scrape, shows the same.
        let scraped = live.clone();
        each_second(&timer, &fetches, 100, |at_ns| scraped.record_at(at_ns));

        let minute = minute_of(&live.event_at(100_000_000_000));
        let points = minute["points"].as_array().unwrap();
        assert_eq!((&minute["window_s"], points.len()), (&60.0.into(), 61));
        assert_eq!(points[0]["at_s"], 40.0);
        assert_eq!(points[0]["expired"], 40);
        // Charts and percentiles are of the same time.
        assert_eq!(minute["waits"]["expired"]["count"], 60);
    }

    #[test]
    fn events_for_one_page_are_the_history_of_the_next() {
        let timer = ManualTimer::new();
        let fetches: Purgatory<u32> = Purgatory::on(&timer, "fetch").unwrap();
        let live = Live::new().purgatory(&fetches);
        live.event_at(0);
        each_second(&timer, &fetches, 3, |at_ns| drop(live.event_at(at_ns)));
        let minute = minute_of(&live.event_at(3_500_000_000));
        assert_eq!(minute["points"].as_array().unwrap().len(), 5);
        assert_eq!(minute["window_s"], 3.5);
    }
}
