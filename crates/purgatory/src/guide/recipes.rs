//! Recipes: requests that servers hold. Each is a module to paste, with its use.
//!
//! The tests in `tests/behaviour/recipes` compile the same files.
//!
//! # acks=all
//!
//! A produce is answered once the high watermark has passed its record. An advance completes just
//! the produces that it reaches. With logs and followers: `examples/acks_all`.
//!
//! ```
#![doc = include_str!("recipes/acks_all.rs")]
//!
//! // Its use:
//! let produces = Purgatory::new("produce")?;
//! let orders = Partition { name: "orders-0", high_watermark: Arc::default(), produces };
//! let (client, answers) = std::sync::mpsc::channel();
//! for required_offset in [1, 2, 3] {
//!     let client = client.clone();
//!     let answer = move |outcome| client.send((required_offset, outcome)).unwrap();
//!     orders.produce(required_offset, answer)?;
//! }
//! assert_eq!(orders.replicated(2), 2); // the slower follower has fetched two records
//! let completed = |offset| (offset, Outcome::Completed);
//! assert_eq!(answers.try_iter().collect::<Vec<_>>(), [completed(1), completed(2)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A long-poll fetch
//!
//! A consumer wants no answer until 64 bytes have come, over all of its partitions. A sum needs a
//! check, so this is a checked watch, and each partition is watched from its first new byte. A
//! fetch that expires is answered with the bytes that there are.
//!
//! ```
#![doc = include_str!("recipes/long_poll.rs")]
//!
//! // Its use:
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let ends = Arc::new([100, 40].map(AtomicU64::new).into());
//!     let logs = Logs { ends, fetches: Purgatory::new("fetch")? };
//!     let bytes = logs.fetch(&[100, 40], 64, Duration::from_secs(30));
//!     assert_eq!(logs.append(0, 50), 0); // checked: 50 of 64
//!     assert_eq!(logs.append(1, 14), 1);
//!     assert_eq!(bytes.await, Ok(64));
//!     Ok(())
//! }
//! ```
//!
//! # A long poll over an asynchronous store
//!
//! A check cannot await a read, so the poll waits for events alone and reads after each. It also
//! reads once each `look_every`, for records of writers elsewhere.
//!
//! ```
#![doc = include_str!("recipes/stored_poll.rs")]
//!
//! // Its use:
//! struct Memory {
//!     bytes: std::sync::Mutex<Vec<u8>>,
//! }
//!
//! impl Store for Memory {
//!     async fn read(&self, _partition: u32) -> io::Result<Vec<u8>> {
//!         Ok(self.bytes.lock().unwrap().clone())
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
//!     let timer = purgatory::timer_core::SystemTimer::new()?;
//!     let appends = Purgatory::builder("fetch").timer(&timer).build()?;
//!     let store = Memory { bytes: Default::default() };
//!     let logs = Logs { store, timer, appends, look_every: Duration::from_secs(1) };
//!     let append = async {
//!         logs.store.bytes.lock().unwrap().extend(b"a record");
//!         logs.appends.check_and_complete(&7)
//!     };
//!     let (bytes, completed) = tokio::join!(logs.fetch(7, 8, Duration::from_secs(30)), append);
//!     assert_eq!(bytes?, b"a record");
//!     assert_eq!(completed, 1);
//!     Ok(())
//! }
//! ```
//!
//! # One deadline for several waits
//!
//! A timeout counts from its call, so two waits of 30 seconds may take 60. Compute the deadline
//! once. The place is a guard, returned on drop.
//!
//! ```
#![doc = include_str!("recipes/deadline.rs")]
//!
//! // Its use:
//! let timer = purgatory::timer_core::ManualTimer::new();
//! let waits = |name: &str| Purgatory::builder(name).timer(&timer).build();
//! let places = Monitor::with(waits("places")?, 1);
//! let high_watermark = Monitor::with(waits("produce")?, 7);
//! let produces = Produces { timer: timer.clone(), places, high_watermark };
//! # use purgatory::Purgatory;
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! assert_eq!(produces.produce(7, Duration::from_secs(30)).await, Ok(7));
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A quorum write
//!
//! A write is committed when two of three replicas have it: a majority has come as far as the
//! second highest index, which only advances.
//!
#![cfg_attr(feature = "keyed", doc = "```")]
#![cfg_attr(not(feature = "keyed"), doc = "```ignore")]
#![doc = include_str!("recipes/quorum_write.rs")]
//!
//! // Its use:
//! let committed = Watermarks::new("committed")?;
//! let replicas = Replicas { indices: [5, 0, 0].map(AtomicU64::new), committed };
//! let write = replicas.committed(5); // the leader has written it
//! assert_eq!(replicas.acknowledge(1, 3)?, 0); // 3 is committed
//! assert_eq!(replicas.acknowledge(2, 6)?, 1); // 5 is
//! assert_eq!(replicas.acknowledge(1, 2)?, 0); // late
//! assert_eq!(write.wait_blocking(), Ok(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Leases
//!
//! One holder at a time. The condition *takes* the lease, so the event needs to complete only one
//! wait. A lease is returned on drop, also when it was taken for a client that has gone. Waits are
//! served in the order of parking, but a client that asks just as the lease is returned may take it
//! first.
//!
//! ```
#![doc = include_str!("recipes/leases.rs")]
//!
//! // Its use:
//! let free = Arc::new(Mutex::new([7].into()));
//! let leases = Leases { free, waits: Purgatory::new("leases")? };
//! let first = leases.acquire(7).wait_blocking()?;
//! let second = leases.acquire(7);
//! let third = leases.acquire(7);
//! drop(first); // the second has it now ...
//! assert_eq!(leases.waits.waiters(&7), 1);
//! drop(second); // ... and, as its client has gone, the third
//! assert_eq!(third.wait_blocking()?.shard, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A queue
//!
//! Each job goes to one worker. Those that wait get jobs in the order of parking, but one that asks
//! just as a job is pushed may take it first. The value is a guard: a job that was not done goes
//! back to the front.
//!
//! ```
#![doc = include_str!("recipes/queue.rs")]
//!
//! // Its use:
//! let queue = Queue { jobs: Monitor::new("jobs", VecDeque::new())? };
//! let [first, second] = [(); 2].map(|()| queue.take(Duration::from_secs(30)));
//! queue.push("a job".to_owned());
//! drop(first); // this worker has gone, and the job was its own
//! assert_eq!(second.wait_blocking()?.done(), "a job");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Signal after unlock
//!
//! A thread that holds a lock which checks need collects the keys. The collector is made before the
//! lock is taken, so its drop signals them after the unlock, on early returns and panics too. (A
//! [`Monitor`](crate::Monitor) does this for you.)
//!
//! ```
#![doc = include_str!("recipes/signal_after_unlock.rs")]
//!
//! // Its use:
//! let accounts = Accounts { balances: Arc::default(), waits: Purgatory::new("accounts")? };
//! let rent = accounts.funded(1, 50);
//! let trip = accounts.funded(2, 80);
//! accounts.pay(&[(1, 60), (2, 60)]);
//! accounts.pay(&[(2, 60)]);
//! assert_eq!(rent.wait_blocking()?, 60);
//! assert_eq!(trip.wait_blocking()?, 120);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A cache that loads once
//!
//! The first client to ask loads, the others wait. A load that fails or panics, or whose client
//! leaves, wakes them too, and the next client to ask tries anew.
//!
//! ```
#![doc = include_str!("recipes/load_once.rs")]
//!
//! // Its use:
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let cache = Cache { entries: Arc::default(), waits: Purgatory::new("cache")? };
//!     let load = async {
//!         tokio::task::yield_now().await;
//!         Some(100)
//!     };
//!     let not_asked = async { unreachable!("the first client loads") };
//!     let both = tokio::join!(cache.get(1, load), cache.get(1, not_asked));
//!     assert_eq!(both, (Ok(Some(100)), Ok(Some(100))));
//!     assert_eq!(cache.get(2, async { None }).await, Ok(None));
//!     Ok(())
//! }
//! ```
//!
//! # Single flight with takeover
//!
//! As above, but if a load fails, one of the clients that wait takes over (or one that asks at that
//! moment).
//!
//! ```
#![doc = include_str!("recipes/single_flight.rs")]
//!
//! // Its use:
//! let flights = Flights { values: Arc::default(), waits: Purgatory::new("flights")? };
//! let first = flights.get(1).wait_blocking()?;
//! let second = flights.get(1);
//! let third = flights.get(1);
//! drop(first); // it failed
//! second.wait_blocking()?.unwrap_err().loaded(100);
//! assert_eq!(third.wait_blocking()?.ok(), Some(100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sessions
//!
//! A member is gone when no heartbeat has come for 30 seconds. A session waits for its time to run
//! out; a heartbeat reschedules it. Its number tells an old session from a new one.
//!
//! A cancel would not do for `join`: of two joins at once each could park after the other's cancel,
//! and no cancel reaches a session that has expired and waits for the executor. So one lock
//! decides, and the callback asks it. If the process may be stopped for a while, give the timer [a
//! grace](super::time#a-pause-of-the-process), so that heartbeats which came meanwhile are read
//! first.
//!
//! ```
#![doc = include_str!("recipes/sessions.rs")]
//!
//! // Its use:
//! let timer = purgatory::timer_core::ManualTimer::new(); // in a program: a SystemTimer
//! let (gone, reports) = mpsc::channel();
//! let parked = Purgatory::builder("sessions").timer(&timer).build()?;
//! let sessions = Sessions { members: Arc::default(), parked, gone };
//! let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| sessions.join(name).unwrap());
//! timer.advance(TIMEOUT / 2);
//! assert!(sessions.heartbeat(&alice)); // 30 s from now
//! assert!(sessions.leave(carol));
//! timer.advance(TIMEOUT / 2);
//! assert_eq!(reports.try_iter().collect::<Vec<_>>(), [("bob", bob.number)]);
//! assert!(!sessions.heartbeat(&bob)); // too late: he must join anew
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A connection's scope
//!
//! Each request also waits under the key of its connection. When the connection closes, all of them
//! end.
//!
//! ```
#![doc = include_str!("recipes/connection.rs")]
//!
//! // Its use:
//! let requests = Purgatory::new("requests")?;
//! let connection = Connection { number: 7, closed: Arc::default(), requests };
//! let (client, answers) = std::sync::mpsc::channel();
//! connection.request(1, || false, move |outcome| client.send(outcome.to_string()).unwrap())?;
//! assert_eq!(connection.close(), 1);
//! assert_eq!(answers.recv()?, "cancelled: connection closed");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A topic made again
//!
//! A watermark only advances, so a topic made again needs another key: name and epoch. A late
//! append to the old topic does not touch the new one.
//!
#![cfg_attr(feature = "keyed", doc = "```")]
#![cfg_attr(not(feature = "keyed"), doc = "```ignore")]
#![doc = include_str!("recipes/epochs.rs")]
//!
//! // Its use:
//! let ends = Watermarks::new("ends")?;
//! let topics = Topics { epochs: Mutex::default(), made: AtomicU64::new(0), ends };
//! let old = ("orders", topics.create("orders").unwrap());
//! topics.append(old, 100)?;
//! topics.delete(old);
//! let new = ("orders", topics.create("orders").unwrap());
//! let fetch = topics.fetch(new, 1).unwrap();
//! assert!(!topics.append(old, 101)? && topics.append(new, 1)?);
//! assert_eq!(fetch.wait_blocking(), Ok(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Debounce
//!
//! A document is saved when two seconds have passed without another edit. The operation is the next
//! save. An edit delays it, or parks another if it comes too late.
//!
//! ```
#![doc = include_str!("recipes/debounce.rs")]
//!
//! // Its use:
//! let timer = purgatory::timer_core::ManualTimer::new();
//! let saves = Purgatory::builder("saves").timer(&timer).build()?;
//! let mut notes = Document { name: "notes", unsaved: Arc::default(), saves, pending: None };
//! let (disk, saved) = std::sync::mpsc::channel();
//! for text in ["a", "ab", "abc"] {
//!     let disk = disk.clone();
//!     assert!(notes.edit(text, move |text| disk.send(text).unwrap()));
//!     timer.advance(QUIET / 2);
//! }
//! timer.advance(QUIET / 2);
//! assert_eq!(saved.try_iter().collect::<Vec<_>>(), ["abc"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Retry with backoff
//!
//! Each attempt is an operation that waits for the answer; one that expires parks the next. All
//! read one cell, so an answer between two attempts counts. A client that gives up fills the cell,
//! too.
//!
//! ```
#![doc = include_str!("recipes/retry.rs")]
//!
//! // Its use:
//! let timer = purgatory::timer_core::ManualTimer::new();
//! let attempts = Purgatory::builder("attempts").timer(&timer).build()?;
//! let (reports, seen) = mpsc::channel();
//! let answer = Arc::new(OnceLock::new());
//! let first = Attempt {
//!     request: 7,
//!     number: 0,
//!     answer: answer.clone(),
//!     attempts: attempts.clone(),
//!     reports,
//! };
//! first.start();
//! timer.advance(Duration::from_millis(150));
//! assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["attempt 0, 100ms", "attempt 1, 200ms"]);
//! answer.set("42".to_owned())?; // the condition first ...
//! assert_eq!(attempts.check_and_complete(&7), 1); // ... then its event
//! timer.advance(Duration::from_secs(60));
//! assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["42"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Released at a rate
//!
//! Clients over their quota are answered later, at most a fixed number in each period. Those that
//! wait are let in in the order of parking, but a client that comes while permits are left takes
//! one at once. A client that goes while it waits takes none, one that goes later has used its own.
//!
//! ```
#![doc = include_str!("recipes/throttle.rs")]
//!
//! // Its use:
//! use purgatory::timer_core::{ManualTimer, Timer};
//!
//! let timer = ManualTimer::new();
//! let waits = Purgatory::builder("throttled").timer(&timer).build()?;
//! let throttle = Throttle { permits: Arc::default(), waits };
//! let clients = [(); 5].map(|()| throttle.admit(Duration::from_secs(30)));
//! let every = Duration::from_millis(100);
//! let released = throttle.clone();
//! let releasing = timer.schedule_at_fixed_rate(every, every, move || released.release(2))?;
//! timer.advance(Duration::from_millis(250));
//! assert_eq!(throttle.waits.len(), 1);
//! timer.advance(Duration::from_millis(50));
//! assert!(clients.into_iter().all(|client| client.wait_blocking().is_ok()));
//! releasing.cancel();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Draining before the end
//!
//! A server that stops takes no more requests and waits until none is open. A request leaves its
//! purgatory before its callback answers it, so the server counts them.
//!
//! ```
#![doc = include_str!("recipes/drain.rs")]
//!
//! // Its use:
//! use purgatory::{CancelReason, Outcome, Timeout, when};
//! use std::sync::mpsc;
//!
//! let server = Server {
//!     stopping: Arc::default(),
//!     open: Arc::default(),
//!     drained: Purgatory::new("drain")?,
//! };
//! let requests = Purgatory::new("requests")?;
//! let (client, answers) = mpsc::channel();
//! for key in ["soon", "never"] {
//!     let client = client.clone();
//!     let open = server.begin().unwrap();
//!     let answer = move |outcome| {
//!         client.send((key, outcome)).unwrap();
//!         drop(open); // after the answer
//!     };
//!     requests.try_complete_else_watch(when(|| false, answer), &[key], Timeout::Never)?;
//! }
//!
//! let drained = server.drain(Duration::from_millis(100));
//! assert!(server.begin().is_none());
//! requests.complete_for_key(&"soon");
//! assert!(drained.wait_blocking().is_err()); // one never ends by itself
//! requests.shutdown(Duration::from_secs(30));
//! let shutdown = Outcome::Cancelled(CancelReason::Shutdown);
//! let answers: Vec<_> = answers.try_iter().collect();
//! assert_eq!(answers, [("soon", Outcome::Completed), ("never", shutdown)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A trigger that was forgotten
//!
//! Each request then waits out its time, as in KAFKA-14334. A wait is checked once more when its
//! time is up. If its condition is true, it completes as a *missed event*, which is counted and
//! alerted on (`PurgatoryMissesEvents`). [`check_at_expiry`](crate::Builder::check_at_expiry) also
//! reports the keys to a hook, and checks operations of other kinds, too. A test asserts that there
//! was none.
//!
//! ```
#![doc = include_str!("recipes/forgotten.rs")]
//!
//! // Its use:
//! use std::{sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
//!
//! let timer = purgatory::timer_core::ManualTimer::new();
//! let (missed_keys, reports) = mpsc::channel();
//! let fetches = reporting_missed_events(&timer, missed_keys)?;
//! let aborted = Arc::new(AtomicBool::new(false));
//! let seen = aborted.clone();
//! let fetch = fetches.wait(&["orders-0"], Duration::from_millis(500), move || {
//!     seen.load(SeqCst).then_some("aborted")
//! });
//! aborted.store(true, SeqCst); // a transaction's marker was written ...
//! fetches.check_and_complete(&"orders-1"); // ... and another partition signalled
//! timer.advance(Duration::from_millis(500));
//! assert_eq!(fetch.wait_blocking()?, "aborted");
//! assert_eq!(reports.try_recv()?, ["orders-0"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Waits of a [`Monitor`](crate::Monitor) and of [`Watermarks`](crate::Watermarks) have this check,
//! too. Without the hook it reports no keys.
