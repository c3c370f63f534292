//! The rows of the table. A row takes one or more measures of every contender that supports them,
//! round by round: each contender once, then each once again.
//!
//! To add a row, add a function to one of the modules and a line to [`ROWS`].

mod expire;
mod queues;
pub(crate) mod row;
mod settle;
mod small;
mod timers;
mod waits;

use row::{Row, row};
use waits::{acks_all, operations, park, permits, poll_loop, quorum, replies};

/// All rows, in the order of the table.
pub(crate) const ROWS: [Row; 40] = [
    row(
        "idle",
        "How often does a process wake up while 1000 timers are far away?",
        timers::idle,
    ),
    row(
        "schedule-cancel-1t-0",
        "What does a timeout cost that is cancelled?",
        timers::schedule,
    ),
    row(
        "schedule-cancel-1t-1m",
        "And with 1M timers pending?",
        timers::schedule,
    ),
    row(
        "schedule-cancel-2t-100k",
        "And on two threads at once, each?",
        timers::schedule,
    ),
    row(
        "random-replace-1m",
        "What does it cost to move one of 1M deadlines?",
        timers::schedule,
    ),
    row(
        "advance-1m",
        "What does a timer cost its wheel until it fires?",
        timers::core,
    ),
    row(
        "longest-insert-1m",
        "How long is a wheel locked for an insertion at most?",
        timers::core,
    ),
    row(
        "lateness-1m-per-s",
        "How late do 1M timers fire that fall due in 1 s?",
        expire::lateness,
    ),
    row(
        "burst-1m",
        "How late do 1M timers fire that fall due at once?",
        expire::burst,
    ),
    row(
        "uniform-1m",
        "How late with 1M a second, all with one timeout?",
        expire::uniform,
    ),
    row(
        "bytes-per-timer",
        "How much memory does a pending timer take?",
        timers::bytes,
    ),
    row(
        "queue-insert-remove",
        "What does a value cost that leaves its owner's queue in time?",
        queues::run,
    ),
    row(
        "queue-poll-idle",
        "And if its owner polls the queue meanwhile?",
        queues::run,
    ),
    row(
        "queue-expire",
        "And a value that is polled out?",
        queues::run,
    ),
    row("queue-bytes", "How much memory does it take?", queues::run),
    row(
        "park-complete-1key",
        "What does an operation cost that waits for a key?",
        park::run,
    ),
    row(
        "park-complete-3keys",
        "And one that waits for three keys?",
        park::run,
    ),
    row(
        "park-complete-1m-1key",
        "And while 1M others are parked?",
        park::run,
    ),
    row(
        "park-complete-2t-other-keys",
        "And on two threads, with different keys?",
        park::run,
    ),
    row(
        "park-complete-2t-same-keys",
        "And on two threads, with the same keys?",
        park::run,
    ),
    row(
        "park-complete-2t-half-foreign",
        "And if the other thread completes half?",
        park::run,
    ),
    row(
        "acks-all-1t",
        "What does a produce cost that waits for its followers?",
        acks_all::run,
    ),
    row(
        "acks-all-2t",
        "And if another thread advances the high watermark?",
        acks_all::run,
    ),
    row(
        "replica-set-3",
        "What does a report of one of three replicas cost?",
        quorum::run_reports,
    ),
    row(
        "quorum-2-of-3",
        "What does a write cost that two of three replicas have to report?",
        quorum::run,
    ),
    row("quorum-all-of-8", "And all of eight?", quorum::run),
    row(
        "replies-1t",
        "What does it cost to await the reply to a request?",
        replies::run,
    ),
    row(
        "replies-2t",
        "And if another thread delivers it?",
        replies::run,
    ),
    row(
        "replies-bytes",
        "How much memory does an awaited reply take?",
        replies::bytes,
    ),
    row(
        "permits-free",
        "What does it cost to take a free permit and return it?",
        permits::run,
    ),
    row(
        "permits-queue",
        "And when 64 tasks wait for it in turn?",
        permits::run,
    ),
    row(
        "poll-loop",
        "How much later is an answer that is polled for?",
        poll_loop::run,
    ),
    row(
        "hot-key",
        "What does a signal cost while 10 000 wait in vain?",
        operations::hot_keys,
    ),
    row(
        "expire-operations",
        "How late do 1M operations expire in 1 s, and at what cost?",
        expire::operations,
    ),
    row(
        "bytes-per-parked-1key",
        "How much memory does a parked operation take?",
        operations::bytes,
    ),
    row(
        "bytes-per-parked-3keys",
        "And under three keys?",
        operations::bytes,
    ),
    row(
        "bytes-idle",
        "How much memory does one take in which nothing waits?",
        small::run_bytes,
    ),
    row(
        "bytes-100",
        "And with 100 waits of 250 bytes?",
        small::run_bytes,
    ),
    row(
        "make-drop",
        "What does it cost to make one and drop it?",
        small::run_make_drop,
    ),
    row(
        "settle",
        "What does a moment cost a test that settles?",
        settle::run,
    ),
];

#[cfg(test)]
mod tests {
    use super::{row::Run, *};
    use crate::{
        results::{OURS, Results},
        sizes::Sizes,
    };

    #[test]
    fn every_row_measures_ours_and_its_peers() {
        for row in &ROWS {
            let mut results = Results::default();
            row.run(&mut Run {
                sizes: Sizes::TINY,
                results: &mut results,
                measures: &[],
                contenders: &[],
            })
            .expect("every contender passes its self-check");
            // Names begin with the row's, and ours is never alone.
            assert!(!results.measures.is_empty(), "{}", row.id);
            for measure in &results.measures {
                assert!(measure.id.starts_with(row.id));
                let ours = measure.entries.iter().any(|entry| entry.name == OURS);
                assert!(ours && measure.entries.len() > 1, "{}", measure.id);
            }
        }
    }
}
