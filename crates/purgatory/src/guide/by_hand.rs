//! The same by hand: what a loop, a map of channels, a `Notify` or an actor leaves to you, and when
//! it is the better choice.
//!
//! # A loop that looks again
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
//! Nothing is lost. But an answer comes up to half of the timeout late, and idle requests keep
//! looking (`docs/BENCHMARKS.md`, row `poll-loop`).
//!
//! # A map of channels and a timeout
//!
//! ```
//! use std::sync::{Mutex, atomic::{AtomicU64, Ordering::SeqCst}};
//! use std::{collections::HashMap, time::Duration};
//! use tokio::{sync::oneshot, time::timeout};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let waiters: Mutex<HashMap<&str, Vec<oneshot::Sender<u64>>>> = Mutex::default();
//!     let log_end = AtomicU64::new(0);
//!     let append = |end| {
//!         log_end.store(end, SeqCst);
//!         let woken = waiters.lock().unwrap().remove("log").unwrap_or_default();
//!         for waiter in woken {
//!             let _ = waiter.send(end);
//!         }
//!     };
//!
//!     // Lost: the event falls between the check and the registration.
//!     assert_eq!(log_end.load(SeqCst), 0); // the check: nothing there
//!     append(7); // on another thread: nobody is registered
//!     let (send, answer) = oneshot::channel();
//!     waiters.lock().unwrap().entry("log").or_default().push(send);
//!     assert!(timeout(Duration::from_millis(5), answer).await.is_err()); // though it is there
//!
//!     // Left behind: the waiter has gone, its sender stays until the key's next event.
//!     assert_eq!(waiters.lock().unwrap()["log"].len(), 1);
//! }
//! ```
//!
//! To repair it: register first, then check. Remove the sender when its waiter goes, from each of
//! its keys. Decide whether timeout or value won. Hold no lock of the map over an `await` or a
//! callback.
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
//! In that order nothing is lost. Left to you: making and removing a key's `Notify` while waiters
//! come and go, and waiting for several keys.
//!
//! # An actor
//!
//! One task owns the waiters and a `DelayQueue`; requests, events and cancels are messages. There
//! are no races. But a slow check delays all others and every timeout, and the mailbox needs a
//! bound.
//!
//! # Side by side
//!
//! | | map of channels | `Notify` | actor | this crate |
//! |---|---|---|---|---|
//! | event between check and registration | lost | lost, in the wrong order | – | noticed |
//! | a waiter that goes | stays | its key stays | sends a message | is off every list |
//! | timeout and value at once | both may win | the waiter decides | the actor decides | one outcome |
//! | an event wakes | all | all | the ready | the ready |
//! | shutdown | a closed channel | waits on | up to you | each is cancelled |
//!
//! # When by hand is better
//!
//! - One answer that always comes: a `oneshot`.
//! - One value that many tasks follow: `tokio::sync::watch`. One event: a `Notify`.
//! - A few threads that wait for one thing: a condition variable.
//! - One thread that does everything: an actor.
//!
//! Next: [questions](super::questions).
