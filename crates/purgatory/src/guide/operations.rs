//! Operations of your own: a check that says when a request can be answered, and a callback that
//! answers it. Here one is a struct and one is two closures:
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}, mpsc}, time::Duration};
//! use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, when};
//!
//! struct DelayedDelete { low_watermark: Arc<AtomicU64>, reply: mpsc::Sender<&'static str> }
//!
//! impl DelayedOperation for DelayedDelete {
//!     fn try_complete(&mut self) -> bool {
//!         self.low_watermark.load(SeqCst) >= 10
//!     }
//!     fn on_complete(self, _: Outcome) {
//!         self.reply.send("delete").unwrap();
//!     }
//! }
//!
//! let requests: Purgatory<&str, BoxedOperation> = Purgatory::new("requests")?;
//! let low_watermark = Arc::new(AtomicU64::new(0));
//! let timeout = Duration::from_secs(30);
//! let (reply, replies) = mpsc::channel();
//!
//! let seen = low_watermark.clone();
//! let audit = reply.clone();
//! let closures = when(move || seen.load(SeqCst) >= 5, move |_| audit.send("closures").unwrap());
//! requests.try_complete_else_watch(closures, &["orders-0"], timeout)?;
//!
//! let delete = DelayedDelete { low_watermark: low_watermark.clone(), reply };
//! requests.try_complete_else_watch(BoxedOperation::new(delete), &["orders-0"], timeout)?;
//!
//! low_watermark.store(10, SeqCst);
//! assert_eq!(requests.check_and_complete(&"orders-0"), 2);
//! assert_eq!(replies.iter().collect::<Vec<_>>(), ["closures", "delete"]); // as parked
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The one rule
//!
//! **Make the condition true first, then signal the key. Hold no lock that a check needs while you
//! signal it.**
//!
//! *First the condition*: parking checks the operation, watches its keys, and checks again if an
//! event came in between. A key that is signalled too early may have no waiter yet, or
//! one whose check is still false. Then the operation waits on, and ends as if its time had run out
//! (a [missed event](super::operating#missed-events)).
//!
//! *No lock*: signalling runs checks on your thread. A check that needs a lock of this thread waits
//! forever. Debug builds warn on stderr after a second, when another thread uses the purgatory.
//! Under a lock, [collect the keys and signal them after](super::recipes#signal-after-unlock).
//!
//! # Ways to wait
//!
//! | What waits | Write | The condition gives |
//! |---|---|---|
//! | a request with its own data | a [`DelayedOperation`](crate::DelayedOperation) | `bool` |
//! | a small request | [`when`](crate::when) with two closures | `bool` |
//! | a task | [`wait`](crate::Purgatory::wait) | `bool` or `Option<T>` |
//! | a thread | that future's [`wait_blocking`](crate::WaitFuture::wait_blocking) | the same |
//!
//! All of them can wait in one purgatory of [`BoxedOperation`](crate::BoxedOperation)s. A `wait` is
//! parked by the call, not by the first poll; dropping its [future](crate::WaitFuture) cancels it.
//!
//! # Checks and callbacks
//!
//! - **A check must not block.** While it runs, its operation can neither expire nor be cancelled,
//!   nor can up to 15 others that the same event has taken out.
//! - **The thread that signals a key runs the checks**, and by default the callbacks. Keep both
//!   short, or move callbacks to [the executor](crate::Builder::callbacks_on_executor).
//! - **Both may call anything**, but a blocking wait in them is an
//!   [error](crate::WaitError::InsideCallback), and another crate's `block_on` may stop the timer.
//! - **A key's `Eq` and `Clone` run under a lock.** They must be fast and not call the purgatory.
//!
//! # An asynchronous condition
//!
//! A check cannot await. Let a task await, store the answer, and signal the key. (Or [wait for
//! events alone](super::recipes#a-long-poll-over-an-asynchronous-store).)
//!
//! ```
//! use std::{collections::HashMap, sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory};
//!
//! /// Asks a node whether it is in sync.
//! async fn ask(node: u32) -> bool {
//!     tokio::task::yield_now().await;
//!     node == 7
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let waits: Purgatory<u32, BoxedOperation> = Purgatory::new("nodes")?;
//!     let in_sync = Arc::new(Mutex::new(HashMap::new()));
//!
//!     let answers = in_sync.clone();
//!     let signals = waits.clone();
//!     tokio::spawn(async move {
//!         let answer = ask(7).await; // the asynchronous condition
//!         answers.lock().unwrap().insert(7, answer); // store it, and unlock ...
//!         signals.check_and_complete(&7); // ... then signal the key
//!     });
//!
//!     let known = move || in_sync.lock().unwrap().get(&7).copied();
//!     assert_eq!(waits.wait(&[7], Duration::from_secs(30), known).await, Ok(true));
//!     Ok(())
//! }
//! ```
