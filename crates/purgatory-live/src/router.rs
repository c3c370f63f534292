//! The page and its events as routes (feature `axum`).
//!
//! One [`Feed`] serves all clients. Each asks it for an event later than the last one that it has
//! sent on; the first to ask makes it, on a blocking thread, and the others get the same.

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
    sync::Mutex as AsyncMutex,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use crate::live::Live;

/// From one event to the next passes at least this many times as long as making it took.
const PAUSE_FACTOR: u32 = 5;
/// The pause after which the browser reconnects.
const RETRY: Duration = Duration::from_secs(1);

impl Live {
    /// Returns the routes: the page at `/` and its events at `/events`. Merge them into yours, or
    /// nest them below a path (without a slash at the end).
    ///
    /// An event is made every [`PAUSE`](Self::PAUSE) for all listeners together, less often when
    /// that would take more than a fifth of the time, and not at all while there is no listener: no
    /// thread wakes then, and no [history](Live#history) is kept but by [`record`](Self::record). It
    /// is made on one of tokio's blocking threads; the runtime must have its time driver enabled.
    ///
    /// # Cancellation
    /// The stream of events ends when the client disconnects, or when the server drops the
    /// connection. It does not end by itself: a graceful shutdown that waits for connections waits
    /// for it, too, and needs a limit. A panic in a key's `Clone`, or in writing a key, also ends
    /// it; the page reconnects.
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
        let feed = Arc::new(Feed::new(self.clone()));
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
    let events = stream::unfold((feed, 0), |(feed, seen)| async move {
        let NumberedEvent { number, event } = feed.after(seen).await?;
        let event = sse::Event::default().data(&*event);
        // The first event tells the browser how soon to reconnect.
        let event = if seen == 0 { event.retry(RETRY) } else { event };
        Some((Ok(event), (feed, number)))
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// One event for all clients of the page.
struct Feed {
    live: Live,
    latest: Arc<Mutex<Latest>>,
    /// Held by the client that waits for the time of the next event, then by the thread that makes
    /// it. If that client is dropped while it waits, another one has the event made.
    making: Arc<AsyncMutex<()>>,
}

/// The latest event, and when the next one may be made.
#[derive(Default)]
struct Latest {
    event: Option<NumberedEvent>,
    number: u64,
    next_at: Option<Instant>,
}

/// An event with its number.
#[derive(Clone)]
struct NumberedEvent {
    number: u64,
    event: Arc<str>,
}

impl Feed {
    fn new(live: Live) -> Feed {
        Feed {
            live,
            latest: Arc::default(),
            making: Arc::default(),
        }
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latest event, if it is later than number `seen`.
    fn latest_after(&self, seen: u64) -> Option<NumberedEvent> {
        let latest = self.latest().event.clone();
        latest.filter(|latest| latest.number > seen)
    }

    /// Returns an event later than number `seen`; `None` when it cannot be made.
    ///
    /// # Cancellation
    /// A dropped call leaves the event to the next one, after the usual pause. One that is being made
    /// is the next one's.
    async fn after(&self, seen: u64) -> Option<NumberedEvent> {
        // 1. While another client makes the next event, a new client gets the latest at once: it is
        //    of now. The others wait for the next.
        let making = match self.making.clone().try_lock_owned() {
            Ok(making) => making,
            Err(_) => {
                if let Some(latest) = self.latest_after(seen) {
                    return Some(latest);
                }
                self.making.clone().lock_owned().await
            }
        };

        // 2. The latest may be one that this client has not seen, and still of now.
        let next_at = self.latest().next_at;
        if let Some(next_at) = next_at {
            if Instant::now() < next_at {
                if let Some(latest) = self.latest_after(seen) {
                    return Some(latest);
                }
            }
            sleep_until(next_at).await;
        }

        // 3. The latest is not of now if nobody has listened since. The pause is set first, as the
        //    event may panic.
        let begun = Instant::now();
        if next_at.is_some_and(|next_at| begun >= next_at + Live::PAUSE) {
            self.latest().event = None;
        }
        self.latest().next_at = Some(begun + Live::PAUSE);

        // 4. Make it on a thread that may block, and that has the making until it is done: this
        //    future may be dropped meanwhile. A slow event is followed by a longer pause.
        let (live, latest) = (self.live.clone(), self.latest.clone());
        let make = move || {
            let event = live.event();
            let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
            latest.next_at = Some(begun + Live::PAUSE.max(begun.elapsed() * PAUSE_FACTOR));
            latest.number += 1;
            let made = NumberedEvent {
                number: latest.number,
                event: event.into(),
            };
            latest.event = Some(made.clone());
            drop((latest, making));
            made
        };
        spawn_blocking(make).await.ok()
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

    fn feed() -> Feed {
        Feed::new(Live::new())
    }

    #[test]
    fn new_listener_does_not_wait_for_the_next_event() {
        runtime().block_on(async {
            let feed = feed();
            let first = feed.after(0).await.unwrap();
            let mut next = pin!(feed.after(first.number));
            assert!(poll_once(next.as_mut()).await.is_pending()); // it has the making
            let Poll::Ready(late) = poll_once(pin!(feed.after(0))).await else {
                panic!("it waits for the next event");
            };
            assert_eq!(late.unwrap().number, first.number);
            assert_eq!(next.await.unwrap().number, 2);
        });
    }

    #[test]
    fn listeners_share_one_event() {
        runtime().block_on(async {
            let feed = feed();
            let first = feed.after(0).await.unwrap();
            let again = feed.after(0).await.unwrap();
            assert_eq!((first.number, again.number), (1, 1));
            assert!(Arc::ptr_eq(&first.event, &again.event));
        });
    }

    #[test]
    fn next_event_waits_for_its_time() {
        runtime().block_on(async {
            let feed = feed();
            let begun = Instant::now();
            let first = feed.after(0).await.unwrap();
            assert_eq!(feed.after(first.number).await.unwrap().number, 2);
            assert!(begun.elapsed() >= Live::PAUSE);
        });
    }

    #[test]
    fn dropped_listener_leaves_the_event_to_another() {
        runtime().block_on(async {
            let feed = feed();
            let first = feed.after(0).await.unwrap();
            let dropped = poll_once(pin!(feed.after(first.number))).await;
            assert!(dropped.is_pending(), "before its time");
            assert_eq!(feed.after(first.number).await.unwrap().number, 2);
        });
    }

    /// Shows one key, for which it waits until the gate is open. Returns the feed, and the most
    /// events that were made at a time.
    fn gated_feed(gate: &Arc<RwLock<()>>) -> (Feed, Arc<AtomicUsize>) {
        let waits: Purgatory<u32> = Purgatory::on(&ManualTimer::new(), "gated").unwrap();
        let parked = waits.try_complete_else_watch(when(|| false, drop), &[1], Timeout::Never);
        parked.unwrap();
        let (most, now) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let seen = most.clone();
        let gate = gate.clone();
        let show = move |_: &u32, _: &mut Formatter<'_>| {
            seen.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            drop(gate.read());
            now.fetch_sub(1, Relaxed);
            Ok(())
        };
        (Feed::new(Live::new().purgatory_with(&waits, show)), most)
    }

    #[test]
    fn listeners_that_leave_have_one_event_made_at_a_time() {
        runtime().block_on(async {
            let gate = Arc::default();
            let (feed, most) = gated_feed(&gate);
            let closed = gate.write();
            for _ in 0..2 {
                let left = timeout(Live::PAUSE * 3 / 2, feed.after(0)).await;
                assert!(left.is_err());
            }
            drop(closed);
            // It is not made in vain: the next one has it.
            assert_eq!(feed.after(0).await.unwrap().number, 1);
            assert_eq!(most.load(Relaxed), 1);
        });
    }

    #[test]
    fn second_listener_after_a_pause_is_shown_nothing_old() {
        runtime().block_on(async {
            let gate = Arc::default();
            let (feed, _) = gated_feed(&gate);
            assert_eq!(feed.after(0).await.unwrap().number, 1);
            sleep(3 * Live::PAUSE).await; // nobody listens
            let closed = gate.write();
            let mut first = pin!(feed.after(0));
            assert!(poll_once(first.as_mut()).await.is_pending()); // it makes the next
            let mut second = pin!(feed.after(0));
            if let Poll::Ready(shown) = poll_once(second.as_mut()).await {
                panic!("event {} is of a second ago", shown.unwrap().number);
            }
            drop(closed);
            assert_eq!(first.await.unwrap().number, 2);
            assert_eq!(second.await.unwrap().number, 2);
        });
    }
}
