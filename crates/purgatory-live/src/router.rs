//! The page and its events as routes (feature `axum`).
//!
//! One [`Feed`] serves all clients. While there are any, one task makes the events. A client takes
//! the latest event when its connection takes more, so a slow client misses some, and no client
//! waits for another.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS},
    response::{
        Html, IntoResponse,
        sse::{self, KeepAlive, Sse},
    },
    routing::get,
};
use futures_util::{Stream, stream};
use tokio::{
    spawn,
    sync::watch::{self, Receiver, Sender},
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use crate::live::Live;

/// The time from one event to the next is at least this many times as long as making the event.
const PAUSE_FACTOR: u32 = 5;
/// The pause after which the browser reconnects.
const RETRY: Duration = Duration::from_secs(1);

impl Live {
    /// Returns the routes: the page at `/` and its events at `/events`. Merge them into yours, or
    /// nest them below a path (without a slash at the end).
    ///
    /// An event is made every [`PAUSE`](Self::PAUSE) for all listeners together, less often when
    /// that would take more than a fifth of the time, and not at all while there is no listener:
    /// then no thread wakes, and only [`record`](Self::record) keeps [history](Live#history).
    /// Events are made on one of tokio's blocking threads; the runtime must have its time driver
    /// enabled. A listener that does not keep up misses events. It delays no other listener, and
    /// holds one event.
    ///
    /// # Cancellation
    /// The stream of events ends when the client disconnects, or when the server drops the
    /// connection. It does not end by itself: a graceful shutdown that waits for connections also
    /// waits for the stream, and needs a limit. A panic in a key's `Clone`, or in writing a key,
    /// also ends it; the page reconnects.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use purgatory::Purgatory;
    /// use purgatory_live::Live;
    ///
    /// let fetches: Purgatory<u32> = Purgatory::new("fetch")?;
    /// let live = Live::new().purgatory(&fetches);
    /// let app: Router = Router::new()
    ///     .route("/health", get(async || "well"))
    ///     .nest("/debug/live", live.router());
    /// # drop(app);
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    pub fn router(&self) -> Router {
        let feed = Feed::new(self.clone());
        Router::new()
            .route("/", get(page))
            .route("/events", get(async move || events(feed.clone())))
    }
}

/// Serves the page, with its policy.
async fn page() -> impl IntoResponse {
    let headers = [
        (CONTENT_SECURITY_POLICY, Live::CONTENT_SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(Live::page()))
}

/// Serves the stream of events to one client.
fn events(feed: Arc<Feed>) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let events = stream::unfold(feed.listen(), |mut latest| async move {
        let event = next(&mut latest).await?;
        // The browser learns how soon to reconnect.
        let event = sse::Event::default().data(&*event).retry(RETRY);
        Some((Ok(event), latest))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// The latest event, for all clients; `None` before the first.
type Latest = Option<Arc<str>>;

/// Waits for an event that was not seen, and returns it; `None` when there will be no more.
async fn next(latest: &mut Receiver<Latest>) -> Latest {
    latest.changed().await.ok()?;
    latest.borrow_and_update().clone()
}

/// The events for all clients of the page.
struct Feed {
    live: Live,
    /// Receives from the task that makes events; closed when there is no such task. It has seen
    /// nothing, so a new client is shown the latest event at once.
    latest: Mutex<Receiver<Latest>>,
}

impl Feed {
    fn new(live: Live) -> Arc<Feed> {
        let (_, closed) = watch::channel(None);
        Arc::new(Feed {
            live,
            latest: Mutex::new(closed),
        })
    }

    fn latest(&self) -> MutexGuard<'_, Receiver<Latest>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a listener. The first one starts the task that makes events.
    fn listen(self: Arc<Self>) -> Receiver<Latest> {
        let mut latest = self.latest();
        if latest.has_changed().is_err() {
            let (made, shown) = watch::channel(None);
            *latest = shown;
            spawn(self.clone().make(made));
        }
        latest.clone()
    }

    /// Makes events for as long as there are listeners.
    async fn make(self: Arc<Self>, mut made: Sender<Latest>) {
        loop {
            // 1. Make an event on a thread that may block. A panic ends the streams; later clients
            //    wait for the next.
            let begun = Instant::now();
            let live = self.live.clone();
            match spawn_blocking(move || live.event()).await {
                Ok(event) => drop(made.send_replace(Some(event.into()))),
                Err(_) => {
                    // Under the lock: a client that finds the last one closed starts another task.
                    let mut latest = self.latest();
                    (made, *latest) = watch::channel(None);
                }
            }
            // 2. A slow event is followed by a longer pause.
            let pause = Live::PAUSE.max(begun.elapsed() * PAUSE_FACTOR);
            sleep_until(begun + pause).await;
            // 3. End if the last listener has left. Under the lock, so that none comes meanwhile.
            let latest = self.latest();
            if made.receiver_count() == 1 {
                drop(made);
                drop(latest);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Formatter,
        future::poll_fn,
        pin::{Pin, pin},
        sync::{
            RwLock,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
        task::Poll,
    };

    use futures_util::StreamExt;
    use purgatory::{Purgatory, Timeout, when};
    use timer_core::ManualTimer;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Polls a future once, for the calling task.
    async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    fn feed() -> Arc<Feed> {
        Feed::new(Live::new())
    }

    /// Waits until no task makes events.
    async fn over(feed: &Feed) {
        while feed.latest().has_changed().is_ok() {
            sleep(Live::PAUSE / 10).await;
        }
    }

    #[test]
    fn a_listener_that_is_not_polled_delays_no_other() {
        runtime().block_on(async {
            let feed = feed();
            let listen = || events(feed.clone()).into_response().into_body();
            let (held, other) = (listen(), listen());
            let mut held = held.into_data_stream();
            held.next().await.unwrap().unwrap();
            assert!(poll_once(pin!(held.next())).await.is_pending()); // its window is full
            let three = other.into_data_stream().take(3).count();
            let three = timeout(100 * Live::PAUSE, three).await;
            assert_eq!(three, Ok(3), "the other one waits for it");
        });
    }

    #[test]
    fn a_slow_listener_is_shown_the_latest_event() {
        runtime().block_on(async {
            let feed = feed();
            let (mut slow, mut other) = (feed.clone().listen(), feed.listen());
            let mut shown = None;
            for _ in 0..3 {
                shown = next(&mut other).await;
            }
            let latest = next(&mut slow).await;
            assert!(Arc::ptr_eq(&latest.unwrap(), &shown.unwrap()));
            // It has missed the others.
            assert!(poll_once(pin!(next(&mut slow))).await.is_pending());
        });
    }

    #[test]
    fn new_listener_does_not_wait_for_the_next_event() {
        runtime().block_on(async {
            let feed = feed();
            let mut first = feed.clone().listen();
            let shown = next(&mut first).await.unwrap();
            assert!(poll_once(pin!(next(&mut first))).await.is_pending());
            let Poll::Ready(late) = poll_once(pin!(next(&mut feed.listen()))).await else {
                panic!("it waits for the next event");
            };
            assert!(Arc::ptr_eq(&late.unwrap(), &shown));
        });
    }

    #[test]
    fn next_event_waits_for_its_time() {
        runtime().block_on(async {
            let begun = Instant::now();
            let mut listener = feed().listen();
            for _ in 0..2 {
                next(&mut listener).await.unwrap();
            }
            assert!(begun.elapsed() >= Live::PAUSE);
        });
    }

    /// Shows one key, whose writing waits until the gate is open. Returns the feed, the number of
    /// events begun, and the most that were made at a time.
    fn gated_feed(gate: &Arc<RwLock<()>>) -> (Arc<Feed>, Arc<[AtomicUsize; 2]>) {
        let waits: Purgatory<u32> = Purgatory::on(&ManualTimer::new(), "gated").unwrap();
        let parked = waits.try_complete_else_watch(when(|| false, drop), &[1], Timeout::Never);
        parked.unwrap();
        let (counts, now) = (Arc::<[AtomicUsize; 2]>::default(), AtomicUsize::new(0));
        let (seen, gate) = (counts.clone(), gate.clone());
        let show = move |_: &u32, _: &mut Formatter<'_>| {
            seen[0].fetch_add(1, Relaxed);
            seen[1].fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            drop(gate.read());
            now.fetch_sub(1, Relaxed);
            Ok(())
        };
        (Feed::new(Live::new().purgatory_with(&waits, show)), counts)
    }

    #[test]
    fn listeners_that_leave_have_one_event_made_at_a_time() {
        runtime().block_on(async {
            let gate = Arc::default();
            let (feed, counts) = gated_feed(&gate);
            let closed = gate.write();
            for _ in 0..2 {
                let mut leaves = feed.clone().listen();
                let left = timeout(Live::PAUSE * 3 / 2, next(&mut leaves)).await;
                assert!(left.is_err());
            }
            drop(closed);
            // The event is not made in vain: the next listener has it.
            next(&mut feed.listen()).await.unwrap();
            assert_eq!(counts[1].load(Relaxed), 1);
        });
    }

    #[test]
    fn without_a_listener_no_event_is_made() {
        runtime().block_on(async {
            let gate = Arc::default();
            let (feed, counts) = gated_feed(&gate);
            next(&mut feed.clone().listen()).await.unwrap();
            let begun = counts[0].load(Relaxed);
            over(&feed).await;
            assert_eq!(counts[0].load(Relaxed), begun);
            // The next listener is shown nothing old.
            let closed = gate.write();
            let mut next_one = feed.listen();
            assert!(poll_once(pin!(next(&mut next_one))).await.is_pending());
            drop(closed);
            next(&mut next_one).await.unwrap();
            assert!(counts[0].load(Relaxed) > begun);
        });
    }

    #[test]
    fn a_runtime_that_ends_leaves_the_feed_to_another() {
        let feed = feed();
        for _ in 0..2 {
            runtime().block_on(async {
                next(&mut feed.clone().listen()).await.unwrap();
            });
        }
    }
}
