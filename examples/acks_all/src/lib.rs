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
//! The API's use is in [produce]; the rest is a broker in small, and what checks it. The [books]
//! count from the operations' callbacks, the [audit] reads the logs, and at the end of a [run] both
//! must agree: each operation ended, and each acknowledged record is in every in-sync log.

pub mod args;
pub mod audit;
pub mod books;
pub mod follower;
pub mod in_sync;
pub mod leader;
pub mod log;
pub mod pacer;
pub mod partition;
pub mod produce;
pub mod producer;
pub mod progress;
pub mod report;
pub mod run;
pub mod scrape;
pub mod slots;
pub mod snapshot;
pub mod text;
pub mod time;
