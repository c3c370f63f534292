//! Hand-written alternatives: the work that a loop, a map of channels, a `Notify` or an actor
//! leaves to you. README says when each is enough.
//!
//! # A loop that polls
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
//!         let remaining = until.saturating_duration_since(Instant::now());
//!         if remaining < Duration::from_millis(1) {
//!             return None;
//!         }
//!         sleep(remaining / 2).await;
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)] // time passes at once
//! async fn main() {
//!     let log_end = AtomicU64::new(0);
//!     let began = Instant::now();
//!     let appends = async {
//!         sleep(Duration::from_millis(1)).await;
//!         log_end.store(7, SeqCst);
//!     };
//!     let until = began + Duration::from_millis(500);
//!     let (found, ()) = tokio::join!(fetch(&log_end, 0, until), appends);
//!     assert_eq!(found, Some(7));
//!     assert_eq!(began.elapsed().as_millis(), 250); // 249 ms late
//! }
//! ```
//!
//! An answer comes up to half of the timeout late, and idle requests keep polling
//! (`docs/BENCHMARKS.md`, row `poll-loop`).
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
//!     append(7); // on another thread: no waiter is registered
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
//! its keys. Decide whether timeout or value won. Hold no lock of the map over an `await`.
//!
//! # From a map of senders to `Replies`
//!
//! The same for replies, with each of these repairs:
//!
#![cfg_attr(feature = "keyed", doc = "```")]
#![cfg_attr(not(feature = "keyed"), doc = "```ignore")]
//! use std::{io, sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst}, time::Duration};
//! use dashmap::DashMap;
//! use tokio::{sync::oneshot, time::timeout};
//!
//! #[derive(Default)]
//! struct Connection {
//!     waiting: DashMap<u64, oneshot::Sender<String>>,
//!     numbers: AtomicU64,
//!     closed: AtomicBool,
//! }
//!
//! struct Registered<'a> {
//!     connection: &'a Connection,
//!     number: u64,
//! }
//!
//! impl Drop for Registered<'_> {
//!     fn drop(&mut self) {
//!         self.connection.waiting.remove(&self.number); // answered, late, or its client has gone
//!     }
//! }
//!
//! impl Connection {
//!     async fn ask(&self, send: impl FnOnce(u64)) -> io::Result<String> {
//!         let number = self.numbers.fetch_add(1, SeqCst);
//!         let (sender, reply) = oneshot::channel();
//!         self.waiting.insert(number, sender); // first registered ...
//!         let _registered = Registered { connection: self, number };
//!         if self.closed.load(SeqCst) {
//!             return Err(io::ErrorKind::ConnectionAborted.into());
//!         }
//!         send(number); // ... then sent
//!         match timeout(Duration::from_secs(30), reply).await {
//!             Ok(reply) => reply.map_err(|_| io::ErrorKind::ConnectionAborted.into()),
//!             Err(_) => Err(io::ErrorKind::TimedOut.into()),
//!         }
//!     }
//!
//!     fn replied(&self, number: u64, reply: String) -> Result<(), String> {
//!         match self.waiting.remove(&number) {
//!             Some((_, sender)) => sender.send(reply),
//!             None => Err(reply),
//!         }
//!     }
//!
//!     fn close(&self) {
//!         self.closed.store(true, SeqCst);
//!         self.waiting.clear();
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let connection = Connection::default();
//! # let answers = |number| connection.replied(number, "reply".to_owned()).unwrap();
//! # assert_eq!(connection.ask(answers).await.unwrap(), "reply");
//! # assert!(connection.replied(0, "late".to_owned()).is_err());
//! # assert!(connection.ask(|_| connection.close()).await.is_err());
//! # assert!(connection.ask(|_| unreachable!()).await.is_err());
//! # assert!(connection.waiting.is_empty());
//! # }
//! ```
//!
//! The same with [`Replies`](crate::Replies):
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::SeqCst}, time::Duration};
//! use purgatory::{Replies, WaitError};
//!
//! struct Connection { waiting: Replies<u64, String>, numbers: AtomicU64 }
//!
//! impl Connection {
//!     async fn ask(&self, send: impl FnOnce(u64)) -> Result<String, WaitError> {
//!         let number = self.numbers.fetch_add(1, SeqCst);
//!         let reply = self.waiting.expect(number, Duration::from_secs(30));
//!         let reply = reply.map_err(|refused| WaitError::Refused(refused.reason))?;
//!         send(number);
//!         reply.await
//!     }
//!     fn replied(&self, number: u64, reply: String) -> Result<(), String> {
//!         self.waiting.deliver(&number, reply)
//!     }
//!     fn close(&self) {
//!         self.waiting.purgatory().shutdown(Duration::ZERO);
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let waiting = Replies::new("replies").unwrap();
//! # let connection = Connection { waiting, numbers: AtomicU64::new(0) };
//! # let answers = |number| connection.replied(number, "reply".to_owned()).unwrap();
//! # assert_eq!(connection.ask(answers).await.unwrap(), "reply");
//! # assert!(connection.replied(0, "late".to_owned()).is_err());
//! # assert!(connection.ask(|_| connection.close()).await.is_err());
//! # assert!(connection.ask(|_| unreachable!()).await.is_err());
//! # assert!(connection.waiting.purgatory().is_empty());
//! # }
//! ```
//!
//! The costs of both: `docs/BENCHMARKS.md`, rows `replies`.
//!
//! # A `Notify` for each key
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::SeqCst}, time::Duration};
//! use tokio::{sync::Notify, time::timeout};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let log_end = AtomicU64::new(0);
//!     let appended = Notify::new();
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
//!     let next_append = appended.notified();
//!     assert_eq!(log_end.load(SeqCst), 7); // it waits for 8
//!     append(8);
//!     assert!(timeout(wait, next_append).await.is_ok());
//! }
//! ```
//!
//! Left to you: making and removing a key's `Notify` while waiters come and go, and waiting for
//! several keys.
//!
//! # An actor
//!
//! One task owns the waiters and a `DelayQueue`; requests, events and cancels are messages. A slow
//! check delays all others and every timeout, and the mailbox needs a bound.
//!
//! # Side by side
//!
//! | | map of channels | `Notify` | actor | this crate |
//! |---|---|---|---|---|
//! | event between check and registration | lost | lost, in the wrong order | – | not lost |
//! | a waiter that goes | stays | its key stays | sends a message | leaves every list |
//! | timeout and value at once | both may win | the waiter decides | the actor decides | one outcome |
//! | an event wakes | all | all | the ready | the ready |
//! | shutdown | a closed channel | waits on | up to you | each is cancelled |
