//! Watches: an operation waits under plain keys, for watermarks, or both.
//!
//! Here each produce waits for the high watermark, or for the leader to change:
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
//! let fourth = wait(4);
//! let fifth = wait(5);
//! state.lock().unwrap().high_watermark = 4;
//! assert_eq!(produces.complete_up_to(&Key::Partition(0), 4), 1); // the other was not checked
//! state.lock().unwrap().leader = false;
//! assert_eq!(produces.check_and_complete(&Key::Leader), 1);
//! assert_eq!(fourth.wait_blocking(), Ok(Ok(4)));
//! assert_eq!(fifth.wait_blocking(), Ok(Err("not the leader any more")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which
//!
//! | Condition | Watch | Event | It checks |
//! |---|---|---|---|
//! | anything | `&[key]` | [`check_and_complete`] | every operation under the key |
//! | one of something: a job, a lease | `&[key]` | [`check_and_complete_one`] | one after the other, until a check comes true |
//! | values that only advance, all reached | [`Watches::up_to`], a *threshold watch* | [`complete_up_to`] | none: reached is completed |
//! | the same, and something more | `up_to(..).`[`checked()`], a *checked watch* | [`complete_up_to`] | those reached, at each advance from then on |
//! | values, or something else first | `up_to(..).`[`with_keys(..)`] | both | as above, each its own |
//!
//! A plain event checks all that wait under the key (row `hot-key` of `docs/BENCHMARKS.md`); an
//! advance looks at those that it reaches.
//!
//! # Pitfalls
//!
//! - **The two events are separate.** A key with both kinds of watches needs both. Debug builds
//!   warn of a signal that reaches none of its key's watches.
//! - **The purgatory keeps no values.** The check must know the whole condition, as thresholds that
//!   were reached before parking are found by the first check only.
//! - **With `checked()`, choose the lowest threshold that can matter.** For 10 bytes from two
//!   partitions, thresholds of 5 each are wrong: 6 and 4 suffice, and the second is not met. Wait
//!   for one byte more of each.
//!
//! [`check_and_complete`]: crate::Purgatory::check_and_complete
//! [`check_and_complete_one`]: crate::Purgatory::check_and_complete_one
//! [`complete_up_to`]: crate::Purgatory::complete_up_to
//! [`Watches::up_to`]: crate::Watches::up_to
//! [`checked()`]: crate::Watches::checked
//! [`with_keys(..)`]: crate::Watches::with_keys
