//! Recipes: eleven things that servers wait for, each as short as it gets.
//!
//! # acks=all
//!
//! A produce is answered when the high watermark has passed its record: when every in-sync replica
//! has it. The watermark is the condition, so a rise completes just those it reaches. The program
//! `examples/acks_all` does this with logs, followers and a ledger that checks the books.
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}, mpsc}, time::Duration};
//! use purgatory::{DelayedOperation, Outcome, Purgatory, Watches};
//!
//! struct DelayedProduce {
//!     high_watermark: Arc<AtomicU64>,
//!     required_offset: u64,
//!     client: mpsc::Sender<String>,
//! }
//!
//! impl DelayedOperation for DelayedProduce {
//!     fn try_complete(&mut self) -> bool {
//!         self.high_watermark.load(SeqCst) >= self.required_offset
//!     }
//!     fn on_complete(self, outcome: Outcome) {
//!         let _ = self.client.send(format!("{}: {outcome}", self.required_offset));
//!     }
//! }
//!
//! let produces = Purgatory::new("produce")?;
//! let high_watermark = Arc::new(AtomicU64::new(0));
//! let (client, answers) = mpsc::channel();
//! for required_offset in [1, 2, 3] {
//!     let (high_watermark, client) = (high_watermark.clone(), client.clone());
//!     let produce = DelayedProduce { high_watermark, required_offset, client };
//!     let until = [("orders-0", required_offset)];
//!     produces.try_complete_else_watch(produce, Watches::up_to(&until), Duration::from_secs(30))?;
//! }
//! high_watermark.fetch_max(2, SeqCst); // the slower follower has fetched two records
//! assert_eq!(produces.complete_up_to(&"orders-0", 2), 2);
//! assert_eq!(answers.try_iter().collect::<Vec<_>>(), ["1: completed", "2: completed"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A long-poll fetch
//!
//! A consumer that has read everything asks again, and wants no answer until 64 bytes have come,
//! over all of its partitions. A sum is more than a number that rises, so this is the check form;
//! and each partition is watched from the first byte that the consumer has not seen. A fetch that
//! expires is answered with what there is.
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory, Watches};
//!
//! let fetches: Purgatory<usize, BoxedOperation> = Purgatory::new("fetch")?;
//! let log_ends = Arc::new([AtomicU64::new(100), AtomicU64::new(40)]); // in bytes
//!
//! let (position, min_bytes) = ([100, 40], 64);
//! let ends = log_ends.clone();
//! let enough = move || {
//!     let bytes: u64 = (0..2).map(|at| ends[at].load(SeqCst) - position[at]).sum();
//!     Some(bytes).filter(|&bytes| bytes >= min_bytes)
//! };
//! let news = [(0, position[0] + 1), (1, position[1] + 1)];
//! let bytes = fetches.wait(Watches::up_to(&news).checked(), Duration::from_millis(500), enough);
//!
//! let append = |partition: usize, bytes| {
//!     let end = log_ends[partition].fetch_add(bytes, SeqCst) + bytes;
//!     fetches.complete_up_to(&partition, end)
//! };
//! assert_eq!(append(0, 50), 0); // looked at: 50
//! assert_eq!(append(1, 14), 1);
//! assert_eq!(bytes.block(), Ok(64));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A quorum write
//!
//! A write is committed when two of three replicas have it. Each says how far it has come; the
//! second highest of those is what a majority has, and it only rises. Answers may come out of
//! order, twice or late: a lower value changes nothing.
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::SeqCst}, time::Duration};
//! use purgatory::ThresholdPurgatory;
//!
//! let committed = ThresholdPurgatory::new("committed")?;
//! let matched = [5, 0, 0].map(AtomicU64::new); // the leader has written up to index 5
//! let write = committed.wait_for(5, Duration::from_secs(30));
//!
//! let acknowledge = |replica: usize, index| {
//!     matched[replica].fetch_max(index, SeqCst);
//!     let mut indices = matched.each_ref().map(|index| index.load(SeqCst));
//!     indices.sort_unstable();
//!     committed.complete_up_to(indices[1])
//! };
//! assert_eq!(acknowledge(1, 3), 0); // 3 is committed
//! assert_eq!(acknowledge(2, 6), 1); // 5 is
//! assert_eq!(acknowledge(1, 2), 0); // late
//! assert_eq!(write.block(), Ok(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Leases
//!
//! One holder at a time, the others in the order they came. The condition *takes* the lease, so the
//! first that the event checks gets it, and the others need not be asked. A lease gives itself back
//! when dropped, also when it was taken for somebody who has gone meanwhile.
//!
//! ```
//! use std::{collections::HashSet, sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory, WaitFuture};
//!
//! #[derive(Clone)]
//! struct Leases { free: Arc<Mutex<HashSet<u32>>>, waits: Purgatory<u32, BoxedOperation> }
//! struct Lease { of: Leases, shard: u32 }
//!
//! impl Leases {
//!     fn acquire(&self, shard: u32) -> WaitFuture<Lease> {
//!         let of = self.clone();
//!         self.waits.wait(&[shard], Duration::from_secs(5), move || {
//!             let taken = of.free.lock().unwrap().remove(&shard);
//!             taken.then(|| Lease { of: of.clone(), shard })
//!         })
//!     }
//! }
//! impl Drop for Lease {
//!     fn drop(&mut self) {
//!         self.of.free.lock().unwrap().insert(self.shard);
//!         self.of.waits.check_and_complete_one(&self.shard); // the first of them has it then
//!     }
//! }
//!
//! let free = Arc::new(Mutex::new([7].into()));
//! let leases = Leases { free, waits: Purgatory::new("leases")? };
//! let first = leases.acquire(7).block()?;
//! let [second, third] = [leases.acquire(7), leases.acquire(7)];
//! drop(first); // the second has it now ...
//! assert_eq!(leases.waits.waiters(&7), 1);
//! drop(second); // ... and, as nobody is there to take it, the third
//! assert_eq!(third.block()?.shard, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A cache that loads once
//!
//! Many ask for what is not cached: the first loads it, the others wait for that. A load that
//! failed is part of the condition, so it wakes them too, and the next one to ask tries anew.
//!
//! ```
//! use std::{collections::HashMap, sync::{Arc, Mutex, atomic::{AtomicU64, Ordering::SeqCst}}};
//! use std::{thread, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory, WaitError};
//!
//! enum Entry { Loading, Loaded(u64) }
//! struct Cache { entries: Arc<Mutex<HashMap<u32, Entry>>>, waits: Purgatory<u32, BoxedOperation> }
//!
//! impl Cache {
//!     fn get(&self, key: u32, load: impl Fn() -> Option<u64>) -> Result<Option<u64>, WaitError> {
//!         let mut first = false;
//!         self.entries.lock().unwrap().entry(key).or_insert_with(|| {
//!             first = true;
//!             Entry::Loading
//!         });
//!         if first {
//!             match load() {
//!                 Some(value) => self.entries.lock().unwrap().insert(key, Entry::Loaded(value)),
//!                 None => self.entries.lock().unwrap().remove(&key),
//!             };
//!             self.waits.check_and_complete(&key);
//!         }
//!         let entries = self.entries.clone();
//!         let loaded = move || match entries.lock().unwrap().get(&key) {
//!             Some(Entry::Loading) => None,
//!             Some(Entry::Loaded(value)) => Some(Some(*value)),
//!             None => Some(None),
//!         };
//!         self.waits.wait_blocking(&[key], Duration::from_secs(5), loaded)
//!     }
//! }
//!
//! let cache = Cache { entries: Arc::default(), waits: Purgatory::new("cache")? };
//! let loads = AtomicU64::new(0);
//! let load = || { loads.fetch_add(1, SeqCst); Some(100) };
//! thread::scope(|scope| for _ in 0..4 {
//!     scope.spawn(|| assert_eq!(cache.get(1, load), Ok(Some(100))));
//! });
//! assert_eq!(loads.load(SeqCst), 1);
//! assert_eq!(cache.get(2, || None), Ok(None));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sessions
//!
//! A member is gone when no heartbeat has come for 30 seconds. What waits here waits for its time
//! to run out, and a heartbeat gives it more, in O(1). (Where that is all, a
//! [`KeyedTimer`](crate::timer_core::KeyedTimer) does it with less. Here a session can also be
//! ended by events, and counts among what the purgatory shows.)
//!
//! ```
//! use std::{collections::HashMap, sync::mpsc, time::Duration};
//! use purgatory::{Outcome, ParkResult, Purgatory, when};
//! use purgatory::timer_core::ManualTimer;
//!
//! let timer = ManualTimer::new(); // in a program: a SystemTimer
//! let sessions = Purgatory::builder("sessions").timer(&timer).build()?;
//! let (report, gone) = mpsc::channel();
//! let (seconds, mut ids) = (Duration::from_secs, HashMap::new());
//! for member in ["alice", "bob", "carol"] {
//!     let report = report.clone();
//!     let session = when(|| false, move |outcome| {
//!         if outcome == Outcome::Expired {
//!             report.send(member).unwrap();
//!         }
//!     });
//!     let parked = sessions.try_complete_else_watch(session, &[member], seconds(30))?;
//!     if let ParkResult::Parked(id) = parked {
//!         ids.insert(member, id);
//!     }
//! }
//! timer.advance(seconds(20));
//! assert!(sessions.reschedule(ids["alice"], seconds(30))); // her heartbeat: 30 s from now
//! assert_eq!(sessions.cancel_for_key(&"carol", "logged out"), 1);
//! timer.advance(seconds(10));
//! assert_eq!(gone.try_iter().collect::<Vec<_>>(), ["bob"]);
//! assert!(!sessions.reschedule(ids["bob"], seconds(30))); // too late: he must join anew
//! assert_eq!(sessions.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Request and reply
//!
//! Requests go out over one connection and replies come back in any order, twice, late or never.
//! [`Replies`](crate::Replies) keeps what is expected. [Its chapter](super::replies) has the rest.
//!
//! ```
//! use std::time::Duration;
//! use purgatory::Replies;
//!
//! let replies = Replies::new("replies")?;
//! let reply = replies.expect(7, Duration::from_secs(30))?; // first expected ...
//! let send = |number| replies.deliver(&number, "a fast reply"); // ... then sent
//! send(7)?;
//! assert_eq!(reply.wait_blocking()?, "a fast reply");
//! assert_eq!(replies.deliver(&7, "again"), Err("again"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Retry with backoff
//!
//! Each attempt is an operation that waits for the answer; one that expires parks the next, with
//! twice the time. Nothing blocks meanwhile. The answer goes to a cell that all attempts read. So
//! it completes the one that waits; if it comes between two, the cell is found full before another
//! is parked; and after the last nobody looks.
//!
//! ```
//! use std::{sync::{Arc, OnceLock, mpsc}, time::Duration};
//! use purgatory::{DelayedOperation, Outcome, Purgatory, timer_core::ManualTimer};
//!
//! struct Attempt {
//!     number: u32,
//!     answer: Arc<OnceLock<String>>,
//!     attempts: Purgatory<&'static str, Attempt>,
//!     told: mpsc::Sender<String>,
//! }
//!
//! impl Attempt {
//!     fn start(self) {
//!         let attempts = self.attempts.clone();
//!         let timeout = Duration::from_millis(100 << self.number);
//!         let _ = self.told.send(format!("attempt {}, {timeout:?}", self.number));
//!         if let Err(refused) = attempts.try_complete_else_watch(self, &["answer"], timeout) {
//!             let (attempt, reason) = refused.into_parts();
//!             let _ = attempt.told.send(reason.to_string());
//!         }
//!     }
//! }
//!
//! impl DelayedOperation for Attempt {
//!     fn try_complete(&mut self) -> bool {
//!         self.answer.get().is_some()
//!     }
//!     fn on_complete(self, outcome: Outcome) {
//!         match (self.answer.get().cloned(), outcome) {
//!             (Some(answer), _) => _ = self.told.send(answer),
//!             (None, Outcome::Expired) if self.number < 2 => {
//!                 Attempt { number: self.number + 1, ..self }.start()
//!             }
//!             (None, outcome) => _ = self.told.send(outcome.to_string()),
//!         }
//!     }
//! }
//!
//! let timer = ManualTimer::new();
//! let attempts = Purgatory::builder("attempts").timer(&timer).build()?;
//! let (told, seen) = mpsc::channel();
//! let answer = Arc::new(OnceLock::new());
//! Attempt { number: 0, answer: answer.clone(), attempts: attempts.clone(), told }.start();
//! timer.advance(Duration::from_millis(150));
//! assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["attempt 0, 100ms", "attempt 1, 200ms"]);
//! answer.set("42".to_owned())?; // the condition first ...
//! assert_eq!(attempts.check_and_complete(&"answer"), 1); // ... then its event
//! timer.advance(Duration::from_secs(60));
//! assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["42"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Released at a rate
//!
//! Clients over their quota are answered later, no more than so many a second. Who must wait draws
//! a number, which is his watermark; a periodic task raises how many may go, and each rise takes
//! just those that it lets go, in order. (Kafka throttles clients in this way.)
//!
//! ```
//! use std::{sync::{Arc, atomic::{AtomicU64, Ordering::SeqCst}, mpsc}, time::Duration};
//! use purgatory::{Purgatory, Timeout, Watches, timer_core::{ManualTimer, Timer}, when};
//!
//! let timer = ManualTimer::new();
//! let throttled = Purgatory::builder("throttled").timer(&timer).build()?;
//! let (released, tickets) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
//! let (client, answers) = mpsc::channel();
//! for name in ["a", "b", "c", "d", "e"] {
//!     let ticket = tickets.fetch_add(1, SeqCst) + 1;
//!     let (released, client) = (released.clone(), client.clone());
//!     let mine = move || released.load(SeqCst) >= ticket;
//!     let answer = when(mine, move |_| client.send(name).unwrap());
//!     let watches = Watches::up_to(&[("quota", ticket)]);
//!     throttled.try_complete_else_watch(answer, watches, Timeout::Never)?;
//! }
//!
//! let (purgatory, every) = (throttled.clone(), Duration::from_millis(100));
//! let release = move || {
//!     let may_go = released.fetch_add(2, SeqCst) + 2;
//!     purgatory.complete_up_to(&"quota", may_go);
//! };
//! let releasing = timer.schedule_at_fixed_rate(every, every, release)?;
//! timer.advance(Duration::from_millis(250));
//! assert_eq!(answers.try_iter().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
//! timer.advance(Duration::from_millis(50));
//! assert_eq!(answers.try_iter().collect::<Vec<_>>(), ["e"]);
//! releasing.cancel();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Draining before the end
//!
//! A server that is to stop takes no more requests, lets those that wait have a while longer, and
//! answers the rest. That is a wait, too: for the number of those that wait to come down to none.
//!
//! ```
//! use std::{sync::mpsc, thread, time::Duration};
//! use purgatory::{CancelReason, Outcome, Purgatory, Timeout, timer_core::SystemTimer, when};
//!
//! let timer = SystemTimer::new()?;
//! let requests = Purgatory::builder("requests").timer(&timer).build()?;
//! let drained = Purgatory::builder("drain").timer(&timer).build()?;
//! let (client, answers) = mpsc::channel();
//! for key in ["soon", "never"] {
//!     let (client, drained) = (client.clone(), drained.clone());
//!     let answer = move |outcome| {
//!         client.send((key, outcome)).unwrap();
//!         drained.check_and_complete(&"left"); // who ends tells whoever drains
//!     };
//!     requests.try_complete_else_watch(when(|| false, answer), &[key], Timeout::Never)?;
//! }
//!
//! let completing = requests.clone();
//! let hung_up = thread::spawn(move || completing.cancel_for_key(&"soon", "its client hung up"));
//! let waiting = requests.clone();
//! let none_left = move || waiting.is_empty().then_some(());
//! let in_time = drained.wait_blocking(&["left"], Duration::from_millis(100), none_left);
//! assert!(in_time.is_err()); // one never ends by itself
//! hung_up.join().unwrap();
//! requests.shutdown();
//! let last: Vec<_> = answers.try_iter().collect();
//! assert_eq!(last.len(), 2);
//! assert_eq!(last[1], ("never", Outcome::Cancelled(CancelReason::Shutdown)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A trigger that was forgotten
//!
//! Somebody changes what requests wait for and raises no event, or that of another key. No test
//! notices, and no request fails: each waits out its time and is answered then, so it shows as
//! slowness at best. (Kafka has had this bug, in KAFKA-14334: followers raised no event when
//! replication had moved their high watermark.) With
//! [`check_at_expiry`](crate::Builder::check_at_expiry) each operation is checked once more when
//! its time is up; what is true then completes, and is a *missed event*: counted, alerted on
//! (`PurgatoryMissesEvents` in `docs/prometheus`) and told with its keys. In tests the hook may
//! fail the test.
//!
//! ```
//! use std::{sync::{Arc, Mutex, atomic::{AtomicBool, Ordering::SeqCst}}, time::Duration};
//! use purgatory::{Outcome, Purgatory, timer_core::ManualTimer, when};
//!
//! let (timer, missed) = (ManualTimer::new(), Arc::new(Mutex::new(Vec::new())));
//! let told = missed.clone();
//! let fetches = Purgatory::builder("fetch")
//!     .timer(&timer)
//!     .on_missed_event(move |missed| told.lock().unwrap().extend(missed.keys.clone()))
//!     .build()?;
//!
//! let aborted = Arc::new(AtomicBool::new(false));
//! let seen = aborted.clone();
//! let fetch = when(move || seen.load(SeqCst), |outcome| assert_eq!(outcome, Outcome::Completed));
//! fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_millis(500))?;
//! aborted.store(true, SeqCst); // a transaction's marker was written ...
//! fetches.check_and_complete(&"orders-1"); // ... and the event of another partition raised
//! timer.advance(Duration::from_millis(500));
//! assert_eq!(*missed.lock().unwrap(), ["orders-0"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Monitor`](crate::Monitor) made by `new` does this always, since
//! [`update_key`](crate::Monitor::update_key) can forget a key, too; one with a purgatory of your
//! own if you build that so, and then it names them.
//!
//! Next: [the same by hand](super::by_hand).
