//! What to wait for: keys, watermarks or both; and the one rule that every event keeps.
//!
//! # The one rule
//!
//! **Make the condition true first, then raise the event. Hold no lock that a check needs while you
//! do.**
//!
//! Parking reads a count of each key's events, checks, watches the keys, and compares the counts.
//! If an event came by in between it checks again. So an event that is raised after the condition
//! came true meets a parker who has seen the condition, or will look again, or is on the list by
//! now. Raised before, it may meet nobody, and the operation waits for the next event or for its
//! time to run out.
//!
//! The second half is for your locks, not for the purgatory's. The event runs checks on your
//! thread, and a check that wants the lock you hold would wait for ever. Let the lock go first.
//! Where that is not in your hands, [`defer`](crate::Purgatory::defer) leaves the event to the
//! executor, or to a call of [`run_deferred`](crate::Purgatory::run_deferred) further up:
//!
//! ```
//! use std::{sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory};
//!
//! let fetches: Purgatory<&str, BoxedOperation> = Purgatory::new("fetch")?;
//! let log = Arc::new(Mutex::new(Vec::new()));
//! let seen = log.clone();
//! let newest = move || seen.lock().unwrap().last().copied();
//! let record = fetches.wait(&["log"], Duration::from_secs(30), newest);
//!
//! let mut locked = log.lock().unwrap();
//! locked.push("record");
//! fetches.defer("log"); // the check takes the lock that is held here
//! drop(locked);
//! fetches.run_deferred(); // or the executor was faster
//! assert_eq!(record.block(), Ok("record"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Plain keys
//!
//! A slice or array of keys. [`check_and_complete`](crate::Purgatory::check_and_complete) checks
//! everything that waits for the key, in the order it was parked. The condition can be anything,
//! and so can the key: a partition, a transaction, a connection. Choose keys such that most of what
//! an event finds is ready: a key that everything waits for makes every event a walk over
//! everything.
//!
//! # Watermarks that are the condition
//!
//! Much of what servers wait for is a number that only rises: the high watermark, the log's end, an
//! applied index. [`Watches::up_to`](crate::Watches::up_to) says which value of a key is waited
//! for, and [`complete_up_to`](crate::Purgatory::complete_up_to) takes those that a value reaches
//! and looks at no other, however many wait for more. With the last of its watermarks the operation
//! completes. Its check is not asked, but for two moments: at parking, where it finds what was
//! reached before, and when one of several watermarks is met and others are not. This is the *count
//! form*.
//!
//! So the check and the watermarks must say the same. The purgatory keeps no values of yours.
//!
//! # Watermarks that are a lower bound
//!
//! [`checked`](crate::Watches::checked) is for conditions that need more than a number: enough
//! bytes *and* enough replicas, or bytes over several partitions. The watermark is then the
//! earliest moment at which it may hold. From there on the operation is checked at each rise of
//! that key, until its check says so. This is the *check form*.
//!
//! Each watermark opens its own key only. So take for each the lowest value of that key that can
//! make a difference. Waiting for 10 bytes from two partitions, it is tempting to ask each for 5,
//! since one of them must bring as many. But after 6 from the first, 4 from the second bring the
//! sum to 10 and meet no watermark of the second: nobody looks. Ask each for one byte more than
//! there is.
//!
//! # Both
//!
//! One operation may wait for watermarks and for plain keys: whichever comes first. A produce waits
//! for the high watermark, and its check also notices that the leader has gone:
//!
//! ```
//! use std::{sync::{Arc, Mutex}, time::Duration};
//! use purgatory::{BoxedOperation, Purgatory, Watches};
//!
//! #[derive(Clone, PartialEq, Eq, Hash)]
//! enum Key { Partition(u32), Leader }
//!
//! struct State { high_watermark: u64, leader: bool }
//!
//! let produces: Purgatory<Key, BoxedOperation> = Purgatory::new("produce")?;
//! let state = Arc::new(Mutex::new(State { high_watermark: 3, leader: true }));
//! let wait = |offset| {
//!     let state = state.clone();
//!     let until = [(Key::Partition(0), offset)];
//!     let watches = Watches::up_to(&until).with_keys(&[Key::Leader]);
//!     produces.wait(watches, Duration::from_secs(30), move || match *state.lock().unwrap() {
//!         State { high_watermark, .. } if high_watermark >= offset => Some(Ok(high_watermark)),
//!         State { leader: false, .. } => Some(Err("not the leader any more")),
//!         _ => None,
//!     })
//! };
//! let (fourth, fifth) = (wait(4), wait(5));
//! state.lock().unwrap().high_watermark = 4;
//! assert_eq!(produces.complete_up_to(&Key::Partition(0), 4), 1); // the other was not looked at
//! state.lock().unwrap().leader = false;
//! assert_eq!(produces.check_and_complete(&Key::Leader), 1);
//! assert_eq!((fourth.block(), fifth.block()), (Ok(Ok(4)), Ok(Err("not the leader any more"))));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which
//!
//! | The condition | Take | An event costs |
//! |---|---|---|
//! | anything | plain keys | a check for each that waits for the key |
//! | numbers that only rise, all of them reached | `up_to` | O(log n) for each that is reached; no check with one watermark |
//! | at least that, and more | `up_to(..).checked()` | a check for each that has been reached |
//! | numbers, or something else first | `up_to(..).with_keys(..)` | as above, each for its own |
//!
//! `check_and_complete` does not touch watermarks, and `complete_up_to` does not touch plain
//! watches: a program that has both on one key raises both.
//! [`cancel_for_key`](crate::Purgatory::cancel_for_key) takes all.
//!
//! Next: [a state and its waits in one](super::monitor).
