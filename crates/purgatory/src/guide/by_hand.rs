//! The same by hand: what a loop, a map of channels, a `Notify` or an actor leave to you, and when
//! they are the better choice.
//!
//! Each of the last three can be made right. What follows is what that takes.
//!
//! # A loop that looks again
//!
//! No waiting at all: look, sleep for half of the time that is left, look again.
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::SeqCst}, time::Duration};
//! use tokio::time::{Instant, sleep};
//!
//! async fn fetch(log_end: &AtomicU64, position: u64, until: Instant) -> Option<u64> {
//!     loop {
//!         let end = log_end.load(SeqCst); // in a server: a look at the storage
//!         if end > position {
//!             return Some(end);
//!         }
//!         let left = until.saturating_duration_since(Instant::now());
//!         if left < Duration::from_millis(1) {
//!             return None;
//!         }
//!         sleep(left / 2).await;
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // time passes at once
//! async fn main() {
//!     let (log_end, began) = (AtomicU64::new(0), Instant::now());
//!     let appends = async {
//!         sleep(Duration::from_millis(1)).await;
//!         log_end.store(7, SeqCst);
//!     };
//!     let until = began + Duration::from_millis(500);
//!     let (found, ()) = tokio::join!(fetch(&log_end, 0, until), appends);
//!     assert_eq!((found, began.elapsed().as_millis()), (Some(7), 250)); // 249 ms late
//! }
//! ```
//!
//! Nothing can be lost, and nothing is left behind. But data that has just come waits for up to
//! half of the time-out, and a fetch that gets none looks at the storage ten times in half a
//! second, times all idle consumers. What that comes to, beside a purgatory, is the row `poll-loop`
//! of `docs/BENCHMARKS.md`.
//!
//! # A map of channels and a timeout
//!
//! The usual first version: `DashMap<Key, Vec<oneshot::Sender<_>>>`, and the waiter puts a timeout
//! around its receiver.
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::SeqCst}, time::Duration};
//! use dashmap::DashMap;
//! use tokio::{sync::oneshot, time::timeout};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let waiters: DashMap<&str, Vec<oneshot::Sender<u64>>> = DashMap::new();
//!     let log_end = AtomicU64::new(0);
//!     let append = |end| {
//!         log_end.store(end, SeqCst);
//!         for waiter in waiters.remove("log").map(|(_, waiters)| waiters).into_iter().flatten() {
//!             let _ = waiter.send(end);
//!         }
//!     };
//!
//!     // Lost: the event falls between the check and the registration.
//!     assert_eq!(log_end.load(SeqCst), 0); // the check: nothing there
//!     append(7); // on another thread: nobody is registered
//!     let (send, answer) = oneshot::channel();
//!     waiters.entry("log").or_default().push(send);
//!     assert!(timeout(Duration::from_millis(5), answer).await.is_err()); // though it is there
//!
//!     // Left behind: the waiter has gone, its sender stays until the key's next event.
//!     assert_eq!(waiters.get("log").unwrap().len(), 1);
//! }
//! ```
//!
//! - *The lost wake-up* is cured by registering first and checking after, or once more; then a
//!   waiter that needs not wait must take its sender out again.
//! - *What is left behind* grows with every request that times out or hangs up under a key that has
//!   no event. The cure is a guard that removes the sender when its waiter goes: a search through
//!   the key's list, O(n) each, or slots that stay where they are. A request under three keys has
//!   three entries to remove. Kafka swept instead, from time to time, and ran out of memory in
//!   between (KAFKA-19389).
//! - *Who won* is not settled. `send` may succeed while the timeout fires, and then the value is
//!   gone and its sender believes it delivered.
//! - *Every waiter wakes*, whether its condition holds or not, checks on its own task and registers
//!   anew.
//! - A guard of the map that is held over an `await`, or while a callback runs that uses the map,
//!   is a deadlock.
//!
//! # A `Notify` for each key
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::SeqCst}, time::Duration};
//! use tokio::{sync::Notify, time::timeout};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let (log_end, appended) = (AtomicU64::new(0), Notify::new());
//!     let append = |end| {
//!         log_end.store(end, SeqCst);
//!         appended.notify_waiters();
//!     };
//!     let wait = Duration::from_millis(5);
//!
//!     assert_eq!(log_end.load(SeqCst), 0);
//!     append(7);
//!     assert!(timeout(wait, appended.notified()).await.is_err()); // lost, as above
//!
//!     // Right: first this, then the check, then the await, in a loop.
//!     let news = appended.notified();
//!     assert_eq!(log_end.load(SeqCst), 7); // not what it waits for
//!     append(8);
//!     assert!(timeout(wait, news).await.is_ok());
//! }
//! ```
//!
//! Written in that order it loses nothing, and a waiter that goes leaves nothing in the `Notify`.
//! What is left to you: who makes the `Notify` of a key and who takes it out of the map again, when
//! the last waiter goes and another is just coming; waiting for several keys at once; every event
//! waking every waiter; and an answer by the thread that brought it about, instead of a hop to a
//! task.
//!
//! # An actor
//!
//! One task owns the waiters and a `DelayQueue`; requests, events and timeouts are its messages.
//! There are no races, because there is one thread, and this is its price: every event and request
//! passes through one queue, all checks run one after the other, and a slow one delays every
//! timeout. A waiter that goes must send a message to be removed. The mailbox has to be bounded,
//! and somebody has to wait when it is full. An operation under several keys still has to be taken
//! out of each list.
//!
//! # Side by side
//!
//! | | map of channels | `Notify` | actor | this crate |
//! |---|---|---|---|---|
//! | an event between check and registration | lost, unless checked twice | lost, unless in the right order | cannot happen | noticed |
//! | a waiter that goes | stays in the map | leaves; its key stays | a message | out of every list at once |
//! | timeout against completion | may disagree | the waiter decides | the actor decides | one outcome |
//! | a value nobody took | lost | – | up to you | goes to the hook |
//! | an event wakes | all of the key's waiters | all | those that are ready | those that are ready |
//! | several keys, watermarks | by hand | by hand | by hand | yes |
//! | shutdown | receivers see a closed channel | waiters wait on | the task's last act | each ends as Cancelled |
//! | how many wait, and for what | by hand | not told | by hand | [`snapshot`](crate::Purgatory::snapshot) |
//!
//! # When by hand is fine
//!
//! - One answer for one request that always comes or whose connection breaks: a `oneshot` in the
//!   request.
//! - One value that many follow, in tasks: `tokio::sync::watch`. One event, in tasks: a `Notify`.
//! - Few waiters, none under more than one key, and timeouts that are rare: the map and a guard.
//! - One thread that does everything anyway: the actor is there already, and
//!   [`TimingWheel`](crate::timer_core::TimingWheel) can be its clock.
//! - A mutex and a condition variable, where a handful of threads wait for one thing.
//!
//! A purgatory pays from where requests wait by the thousand, under several keys, most of them end
//! by an event and some by the clock, and none may be answered twice or forgotten.
//!
//! Next: [questions](super::questions).
