//! How to wait: with a callback, a closure, a future or a thread.
//!
//! | Who waits | What to write | The condition gives | It is told by |
//! |---|---|---|---|
//! | a request with data of its own | a [`DelayedOperation`] | `bool` | `on_complete(self, Outcome)` |
//! | anything small | [`when`] and two closures | `bool` | a closure |
//! | several kinds in one purgatory | the same, as [`BoxedOperation`]s | `bool` | each its own way |
//! | a task | [`Purgatory::wait`] | `Option<T>` | `Result<T, WaitError>` |
//! | a thread | [`Purgatory::wait_blocking`] | `Option<T>` | `Result<T, WaitError>` |
//! | for a state of this process, under one lock | a [`Monitor`](super::monitor) | `Option<T>` | a future or a closure |
//! | for the reply to a request | [`Replies`](super::replies) | none is needed | a future |
//! | for one number that only rises | a [`ThresholdPurgatory`] | none is needed | a future or a closure |
//! | for a number of each key that only rises, or k of n | [`Watermarks`](super::watermarks) | none is needed | a future or a closure |
//!
//! All of them wait in the same lists and end in the same place. They can be mixed: a
//! `BoxedOperation` is any of the first three, and a `wait` is one of them inside.
//!
//! # A callback
//!
//! A [`DelayedOperation`] is moved into the purgatory and handed to its own `on_complete`, so it
//! can own what it needs to answer: a connection, a response half built. Under one key it costs no
//! allocation. The example is on the [front page](crate).
//!
//! # Closures, and several kinds
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
//! let (low_watermark, timeout) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(30));
//! let (reply, replies) = mpsc::channel();
//!
//! let seen = low_watermark.clone();
//! let audit = reply.clone();
//! let closures = when(move || seen.load(SeqCst) >= 5, move |_| audit.send("closures").unwrap());
//! requests.try_complete_else_watch(closures.into(), &["orders-0"], timeout)?;
//!
//! let delete = DelayedDelete { low_watermark: low_watermark.clone(), reply };
//! requests.try_complete_else_watch(BoxedOperation::new(delete), &["orders-0"], timeout)?;
//!
//! low_watermark.store(10, SeqCst);
//! assert_eq!(requests.check_and_complete(&"orders-0"), 2);
//! assert_eq!(replies.iter().collect::<Vec<_>>(), ["closures", "delete"]); // as they were parked
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A future
//!
//! [`wait`](crate::Purgatory::wait) checks and parks in the call, not at the first poll, and its
//! time counts from there. The future knows no runtime: whoever completes the operation wakes the
//! task. The condition yields the value, so what was checked is what is returned.
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let fetches: Purgatory<&str, BoxedOperation> = Purgatory::new("fetch")?;
//!     let log_end = Arc::new(AtomicU64::new(0));
//!
//!     let (appends, end) = (fetches.clone(), log_end.clone());
//!     tokio::spawn(async move {
//!         end.store(7, SeqCst); // the condition first ...
//!         appends.check_and_complete(&"log"); // ... then its event
//!     });
//!
//!     let hang_up = std::future::pending::<()>();
//!     let bytes = move || Some(log_end.load(SeqCst)).filter(|&end| end > 0);
//!     tokio::select! {
//!         end = fetches.wait(&["log"], Duration::from_secs(30), bytes) => assert_eq!(end, Ok(7)),
//!         () = hang_up => unreachable!("then the wait would be dropped, and so cancelled"),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! **Cancel safety.** Dropping the future cancels the wait: the operation leaves every list before
//! the drop returns, or, when a thread is just checking it, as soon as that check is over. The one
//! thing that could be lost is a value that the condition has already taken out of somewhere when
//! the future is dropped. [`wait_or`](crate::Purgatory::wait_or) hands it to a hook. (A value that
//! gives itself back when dropped, like the [lease](super::recipes#leases), needs none.)
//!
//! ```
//! use std::{collections::VecDeque, sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory};
//!
//! let waits: Purgatory<&str, BoxedOperation> = Purgatory::new("queue")?;
//! let queue = Arc::new(Mutex::new(VecDeque::new()));
//!
//! let (taken_from, back_to, raises) = (queue.clone(), queue.clone(), waits.clone());
//! let next = waits.wait_or(
//!     &["queue"],
//!     Duration::from_secs(30),
//!     move || taken_from.lock().unwrap().pop_front(),
//!     move |job| {
//!         back_to.lock().unwrap().push_front(job);
//!         raises.check_and_complete(&"queue"); // for the next who waits
//!     },
//! );
//! queue.lock().unwrap().push_back("a job");
//! assert_eq!(waits.check_and_complete(&"queue"), 1); // the condition takes the job ...
//! drop(next); // ... and whoever was to have it has gone
//! assert_eq!(queue.lock().unwrap().front(), Some(&"a job"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A thread
//!
//! [`wait_blocking`](crate::Purgatory::wait_blocking) is `wait` for a thread; a future made before
//! can be waited for with [`block`](crate::WaitFuture::block). Where they would have to wait inside
//! a check, a callback or a timer's task they are an [error](crate::WaitError::InsideCallback):
//! what they wait for may be waiting for that thread.
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, thread, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory, WaitError};
//!
//! let waits: Purgatory<&str, BoxedOperation> = Purgatory::new("start")?;
//! let started = Arc::new(AtomicBool::new(false));
//! let seen = started.clone();
//! let condition = move || seen.load(SeqCst).then_some("started");
//!
//! let timeout = Duration::from_secs(30);
//! thread::scope(|scope| {
//!     let waiter = scope.spawn(|| waits.wait_blocking(&["start"], timeout, condition));
//!     started.store(true, SeqCst);
//!     waits.check_and_complete(&"start");
//!     assert_eq!(waiter.join().unwrap(), Ok("started")); // whichever of the two came first
//! });
//! let expired = waits.wait_blocking(&["start"], Duration::from_millis(1), || None::<()>);
//! assert_eq!(expired, Err(WaitError::Expired));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # One number that only rises
//!
//! A [`ThresholdPurgatory`] keeps the number itself, so there is no condition to write and no order
//! of steps to get wrong. Its [`complete_up_to`](crate::ThresholdPurgatory::complete_up_to) raises
//! the number and completes what that reaches, lowest first.
//!
//! ```
//! use std::{sync::mpsc, time::Duration};
//! use purgatory::ThresholdPurgatory;
//!
//! let applied = ThresholdPurgatory::new("applied-index")?;
//! let (told, reads) = mpsc::channel();
//! for index in [9, 4] {
//!     let told = told.clone();
//!     let then = move |outcome| told.send((index, outcome)).unwrap();
//!     applied.park(index, Duration::from_secs(30), then)?;
//! }
//! let read = applied.wait_for(6, Duration::from_secs(30));
//! assert_eq!(applied.complete_up_to(7), 2);
//! assert_eq!((read.block(), reads.recv()?.0), (Ok(7), 4));
//! assert_eq!(applied.cancel_all("no longer the leader"), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Callbacks on the executor
//!
//! By default a callback runs on the thread that completed its operation, which costs no hand-over
//! and suits a callback that puts an answer into a queue. If it is slow, the thread that raised the
//! event pays for it. [`callbacks_on_executor`](crate::Builder::callbacks_on_executor) sends every
//! callback of a purgatory elsewhere. How many threads that is, the timer's builder says, or an
//! [`executor`](crate::Builder::executor) of the purgatory's own.
//!
//! ```
//! use std::{sync::mpsc, thread, time::Duration};
//! use purgatory::{Purgatory, when};
//! use purgatory::timer_core::SystemTimer;
//!
//! let timer = SystemTimer::builder().workers(4).build()?;
//! let requests = Purgatory::builder("requests").timer(&timer).callbacks_on_executor().build()?;
//! let (told, thread_of) = mpsc::channel();
//! let done = when(|| true, move |_| told.send(thread::current().id()).unwrap());
//! requests.try_complete_else_watch(done, &["key"], Duration::from_secs(30))?;
//! assert_ne!(thread_of.recv()?, thread::current().id());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A condition that is asynchronous
//!
//! A check must not block, so it cannot await. Turn it round: a task awaits whatever it takes,
//! stores what it found, and raises the event; the condition only looks at what is stored. That is
//! no detour. An answer from another machine is news that arrives once, and its arrival is the
//! event.
//!
//! ```
//! use std::{collections::HashMap, sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory};
//!
//! /// Asks a node whether it is in sync, which takes as long as it takes.
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
//!     let (answers, raises) = (in_sync.clone(), waits.clone());
//!     tokio::spawn(async move {
//!         let answer = ask(7).await; // the asynchronous condition
//!         answers.lock().unwrap().insert(7, answer); // store it, and let the lock go ...
//!         raises.check_and_complete(&7); // ... then raise the event
//!     });
//!
//!     let known = move || in_sync.lock().unwrap().get(&7).copied();
//!     assert_eq!(waits.wait(&[7], Duration::from_secs(30), known).await, Ok(true));
//!     Ok(())
//! }
//! ```
//!
//! If the answer can change, let the task ask again whenever it may have, and let the condition
//! yield only the answer that is waited for. If nobody else needs it, the task can be spared: a
//! future that awaits `ask` under a timeout needs no purgatory.
//!
//! Next: [what to wait for](super::watches).
//!
//! [`DelayedOperation`]: crate::DelayedOperation
//! [`when`]: crate::when
//! [`BoxedOperation`]: crate::BoxedOperation
//! [`Purgatory::wait`]: crate::Purgatory::wait
//! [`Purgatory::wait_blocking`]: crate::Purgatory::wait_blocking
//! [`ThresholdPurgatory`]: crate::ThresholdPurgatory
