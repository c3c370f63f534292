//! acks=all in one process: a leader and two followers, several producers, and a purgatory in which
//! every produce waits until the high watermark has passed its record.
//!
//! The way of a record:
//! 1. a [producer] appends a line to the leader's log of a [partition], and parks a [produce] under
//!    that partition;
//! 2. each [follower] fetches it, appends it to a log of its own, and says so with its next fetch;
//! 3. the leader recomputes the [in-sync set's](in_sync) high watermark; if that has moved, the
//!    thread raises `complete_up_to` for the partition, which ends the wait. Or the timing wheel
//!    expires it first.
//!
//! The [books] are kept beside all that, from the operations' callbacks and the record ids alone.
//! The [audit] reads the logs, and the [run] closes the books: each operation ended exactly once,
//! and each acknowledged record is in every in-sync log.

pub mod args;
pub mod audit;
pub mod books;
pub mod faults;
pub mod follower;
pub mod in_sync;
pub mod leader;
pub mod ledger;
pub mod log;
pub mod pacer;
pub mod partition;
pub mod plan;
pub mod produce;
pub mod producer;
pub mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod scrape;
pub mod slots;
pub mod snapshot;
pub mod stop;
pub mod tally;
pub mod text;
pub mod time;
