//! The rows of the table. A row takes one or more measures of every contender that supports them,
//! round by round: in each round, each contender has one turn.
//!
//! To add a row, add a function to one of the modules and a line to [`ROWS`].

mod expire;
mod queues;
pub(crate) mod row;
mod small;
mod timers;
mod waits;

use row::Row;
use waits::{
    acks_all, observed, operations, park, permits, poll_loop, replica_set, replies, scale,
};

use crate::heap;

/// Makes the list of all rows: each name, its function, and the question that it answers.
macro_rules! rows {
    ($($id:literal: $run:path, $question:literal;)+) => {
        /// All rows, in the order of the table.
        const ROWS: &[Row] = &[$(Row { id: $id, question: $question, run: $run }),+];
    };
}

rows! {
    "schedule-cancel-1t-0": timers::schedule, "What does a timeout cost that is cancelled?";
    "schedule-cancel-1t-1m": timers::schedule, "And with 1M timers pending?";
    "schedule-cancel-2t-100k": timers::schedule, "And on two threads at once, each?";
    "random-replace-1m": timers::schedule, "What does it cost to move one of 1M deadlines?";
    "lateness-1m-per-s": expire::lateness, "How late do 1M timers fire that fall due in 1 s?";
    "bytes-per-timer": timers::bytes, "How much memory does a pending timer take?";
    "queue-insert-remove": queues::run, "What does a value cost that leaves its owner's queue in time?";
    "queue-poll-idle": queues::run, "And if its owner polls the queue meanwhile?";
    "park-complete-1key": park::run, "What does an operation cost that waits for a key?";
    "park-complete-3keys": park::run, "And one that waits for three keys?";
    "park-complete-1m-1key": park::run, "And while 1M others are parked?";
    "park-complete-2t-other-keys": park::run, "And on two threads, with different keys?";
    "acks-all-1t": acks_all::run, "What does a produce cost that waits for its followers?";
    "replica-set-3": replica_set::run, "What does the report of one of three replicas cost?";
    "replies-1t": replies::run, "What does it cost to await the reply to a request?";
    "replies-2t": replies::run, "And if another thread delivers it?";
    "permits-free": permits::run, "What does it cost to take a free permit and return it?";
    "permits-queue": permits::run, "And when 64 tasks wait for it in turn?";
    "poll-loop": poll_loop::run, "How much later is an answer that is polled for?";
    "hot-key": operations::hot_keys, "What does a signal cost while 10 000 wait in vain?";
    "expire-operations": expire::operations, "How late do 1M operations expire in 1 s, and at what cost?";
    "bytes-per-parked-1key": operations::bytes, "How much memory does a parked operation take?";
    "bytes-idle": small::run_bytes, "How much memory does one take in which nothing waits?";
    "bytes-100": small::run_bytes, "And with 100 waits of 250 bytes?";
    "make-drop": small::run_make_drop, "What does it cost to make one and drop it?";
    "make-drop-allocations": small::run_allocations, "And how often does that allocate?";
    "scale-id": scale::run, "What does one operation more cost among 1M, by its id?";
    "scale-event": scale::run, "And by an event, which checks others?";
    "observed": observed::run, "What does it cost to observe operations?";
    "publish": observed::publish, "How long does it take to publish metrics?";
}

/// Returns the rows that this build measures: rows of the heap only if allocations are counted.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    let is_of_heap = |row: &&Row| row.id.contains("bytes") || row.id.contains("allocations");
    ROWS.iter()
        .filter(move |row| heap::IS_COUNTED || !is_of_heap(row))
}

#[cfg(test)]
mod tests {
    use super::{row::Run, *};
    use crate::{
        results::{OURS, Results},
        sizes::Sizes,
    };

    #[test]
    fn every_row_measures_ours_and_its_peers() {
        for row in rows() {
            let mut results = Results::default();
            row.run(&mut Run {
                sizes: Sizes::SMOKE,
                results: &mut results,
                measures: &[],
                contenders: &[],
            })
            .expect("every contender passes its self-check");
            // Measures' names begin with the row's. Ours has a peer, except that nothing else can
            // publish.
            assert!(!results.measures.is_empty(), "{}", row.id);
            for measure in &results.measures {
                assert!(measure.id.starts_with(row.id));
                let ours = measure.entries.iter().any(|entry| entry.name == OURS);
                let alone = measure.entries.len() == 1;
                assert!(ours && alone == (row.id == "publish"), "{}", measure.id);
            }
        }
    }
}
