//! Trade-offs, limits, and what one asks.
//!
//! # Trade-offs
//!
//! - **A check that never returns cannot be expired.** While a thread checks an operation it alone
//!   can end it, which is what lets checks run without a lock. An operation under a long check
//!   expires when that check is over. A [`snapshot`](crate::Purgatory::snapshot) lists what is
//!   under check and for how long that has been known.
//! - **16 at a time.** An event takes up to 16 operations out together, so a slow check also holds
//!   up the expiry of the 15 others.
//! - **The event pays.** Whoever raises an event runs the checks, and by default the callbacks, on
//!   its own thread. That is the fastest way to an answer, and a reason to keep both short.
//! - **A key's `Eq` and `Clone` run under a lock**: they must be quick, and must not call the
//!   purgatory. A key is cloned once for all who wait for it. `Hash` runs with nothing locked. Keys
//!   that are long are better off as `Arc<str>`.
//! - **Some 117 KB a purgatory**, empty, with 128 [rooms](crate::Builder::rooms) of half a kilobyte
//!   each, so that threads that use different keys seldom meet; and a room that was used keeps some
//!   KB more. Have a purgatory for each kind of request, not for each partition; the partition is
//!   the key.
//! - **A peak goes as its last survivors go.** Memory is in pages of 64 operations and 16 watches,
//!   given back when they empty. One operation that stays holds its page.
//! - **To the tick.** An operation expires at the first tick at or after its deadline, 1 ms by
//!   default, and never before it. What expires is handed to a worker, which is one more hop.
//!
//! # Limits
//!
//! | Of | At most | Beyond |
//! |---|---|---|
//! | operations whose first key is in one room | 2^26 | [`Full`](crate::RefusedReason::Full) |
//! | further keys watched in one room | 2^30 | [`Full`](crate::RefusedReason::Full) |
//! | watermarks in the count form, an operation | 16 383 | [`TooManyWatermarks`](crate::RefusedReason::TooManyWatermarks) |
//! | a timeout | `u64::MAX` ticks; longer ones saturate | |
//! | looks at one operation in a row on one thread | 8 | the next is the executor's |
//! | callbacks queued behind one outermost call | 1024 | the executor goes on with them |
//!
//! # Questions
//!
//! **Why does the check take `&mut self`?** Because nobody else has the operation meanwhile. A
//! check can count, keep a buffer, or take the value that the callback will send, and the operation
//! need not be `Sync`.
//!
//! **Why is there no asynchronous check?** Somebody would have to poll it, and while it waits the
//! operation could neither expire nor be cancelled. Await in a task, store what came of it, raise
//! the event: [an example](super::waiting#a-condition-that-is-asynchronous).
//!
//! **My operation is not completed though its condition is true.** Then its event was raised before
//! the condition ([the one rule](super::watches#the-one-rule)), under another key, or by the wrong
//! call: `check_and_complete` does not touch watermarks, nor `complete_up_to` plain keys. A
//! [`snapshot`](crate::Purgatory::snapshot) tells the keys that it waits for.
//!
//! **`check_and_complete` returned 0, and yet one completed.** It counts what this call ended. One
//! that another thread is checking is left a note, and that thread ends it. Inside a callback every
//! event returns 0, and what waits for its key is checked when the outermost call returns.
//!
//! **May `on_complete` call `tokio::spawn`?** Only where it runs inside a runtime: see
//! [`on_complete`](crate::DelayedOperation::on_complete).
//!
//! **My tests pause tokio's clock, and nothing expires.** The timer's thread goes by the machine's.
//! Put the timer on the runtime (feature `tokio`):
//! `SystemTimer::builder().tokio(Handle::current())` waits and expires by tokio's clock, paused or
//! not, and starts no thread.
//!
//! **Requests are answered, but only when their time is up.** Nobody raises their event:
//! [`check_at_expiry`](crate::Builder::check_at_expiry) finds it, and [names the
//! key](super::recipes#a-trigger-that-was-forgotten).
//!
//! **My callback is slow.** By default it holds up whoever raised the event.
//! [`callbacks_on_executor`](crate::Builder::callbacks_on_executor) moves all callbacks to the
//! timer's workers, [`executor`](crate::Builder::executor) to threads of your own. An executor's
//! `execute` must neither block nor run the job before it returns.
//!
//! **May a callback park, raise events, cancel?** Anything, in this purgatory or another. An
//! operation that wants another try parks a new one in its callback.
//!
//! **What does [`EndResult::Noted`](crate::EndResult::Noted) mean?** A thread is just checking the
//! operation, and was told to end it. It does so as soon as the check is over: as Completed if the
//! check came true, else as you asked, unless somebody had asked for another end before. Nothing is
//! left for you to do.
//!
//! **How do I test with virtual time?** Share a [`ManualTimer`](crate::timer_core::ManualTimer): it
//! is the real wheel, callbacks run on your thread, and time passes when you say so. No test need
//! sleep.
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{BoxedOperation, Purgatory, WaitError};
//! use purgatory::timer_core::ManualTimer;
//!
//! let timer = ManualTimer::new();
//! let waits: Purgatory<u32, BoxedOperation> = Purgatory::builder("test").timer(&timer).build()?;
//! let never = waits.wait(&[1], Duration::from_secs(3600), || None::<()>);
//! timer.advance(Duration::from_millis(3_599_999));
//! assert_eq!(waits.len(), 1);
//! timer.advance(Duration::from_millis(1));
//! assert_eq!(never.block(), Err(WaitError::Expired)); // no hour has passed
//! # Ok::<(), purgatory::timer_core::BuildError>(())
//! ```
//!
//! **What happens when something panics?** A check: its operation ends as
//! [`Panicked`](crate::CancelReason::Panicked), the others on the key are checked all the same. A
//! callback: its operation has ended. Both are counted ([`Stats::panics`](crate::Stats::panics))
//! and told to the timer's `on_panic`; the caller does not see them. A key's `Hash`, `Eq` or
//! `Clone`: the panic is the caller's, nothing stays locked, and every other operation still ends
//! once. (With `panic = "abort"` none of this applies.)
//!
//! **What happens at shutdown?** [`shutdown`](crate::Purgatory::shutdown) ends whatever is parked
//! as [`Shutdown`](crate::CancelReason::Shutdown), through its own callback, and refuses what would
//! have to wait from then on; what need not wait still completes. Dropping the last handle does the
//! same, as [`Dropped`](crate::CancelReason::Dropped), but waits for no thread, and may happen
//! inside a callback. Shutting down a shared timer shuts down the purgatories on it. In each case
//! an operation that is under check ends when that check is over.
//!
//! **May an operation hold a handle of its own purgatory?** Yes, and then it keeps the purgatory
//! from being dropped for as long as it waits. With a timeout that ends by itself; with
//! [`Timeout::Never`](crate::Timeout::Never) call `shutdown`.
//!
//! **How many purgatories, how many timers?** One timer for a program: any number of purgatories
//! share its reaper and its workers ([`Builder::timer`](crate::Builder::timer)). One purgatory for
//! each kind of request, so that each has its name in the metrics and its own bound; or one of
//! [`BoxedOperation`](crate::BoxedOperation)s for all.
//!
//! **How long is an [`OperationId`](crate::OperationId) good for?** For ever: it is never reused,
//! so an old one is [`Gone`](crate::EndResult::Gone), and so is one of another purgatory.
//!
//! **In which order?** An event checks in the order of parking, and calls back in that order among
//! the 16 it took out together; a rise goes by threshold, then by the order of parking. Two events
//! at once may overtake each other. Those that expire in one tick do so in no promised order, but
//! under a `ManualTimer`.
//!
//! **What does an idle purgatory cost?** Two sleeping threads if its timer is its own, none if it
//! is shared. Nothing polls.
