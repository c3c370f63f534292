//! The rows of the table. A row measures one or more things of every contender that can do them,
//! round by round: each contender once, then each once again.
//!
//! A further row is a file in `timers` or `waits` and a line in [`ROWS`].

mod crew;
pub(crate) mod row;
mod timers;
mod waits;

use row::Row;
use timers::{advance, bytes, expire, idle, schedule};
use waits::{
    acks_all, bytes as heap, events, exchange, expire as operations, local, park, poll_loop,
};

/// Every row, in the order of the table.
pub(crate) const ROWS: [Row; 47] = [
    // First: pingora's thread, once the sleeps have made it, wakes up a hundred times a second.
    Row { id: "idle", about: "1000 timers an hour away", run: idle::run },
    Row { id: "schedule-cancel-1t-0", about: "a timeout that is cancelled", run: schedule::timers },
    Row { id: "schedule-cancel-1t-100k", about: "100k pending", run: schedule::timers },
    Row { id: "schedule-cancel-1t-1m", about: "1M pending", run: schedule::timers },
    Row { id: "schedule-cancel-2t-100k", about: "two threads, per thread", run: schedule::timers },
    Row { id: "sleep-1t", about: "made, polled and dropped", run: schedule::sleeps },
    Row { id: "sleep-2t", about: "two threads, per thread", run: schedule::sleeps },
    Row { id: "sleep-1t-1m", about: "1M others sleep", run: schedule::sleeps },
    Row { id: "sleep-2t-1m", about: "two threads, per thread", run: schedule::sleeps },
    Row { id: "sleep-timeout-1t", about: "around a ready future", run: schedule::sleeps },
    Row { id: "sleep-timeout-2t", about: "two threads, per thread", run: schedule::sleeps },
    Row { id: "random-replace-1m", about: "one of 1M pending by another", run: schedule::timers },
    Row { id: "advance-1m", about: "1M over a second of virtual time", run: advance::run },
    Row {
        id: "longest-insert-1m",
        about: "of 1M, while the structure grows",
        run: advance::longest,
    },
    Row { id: "lateness-1m-per-s", about: "1M over a second of real time", run: expire::lateness },
    Row { id: "lateness-1m-per-s-1t", about: "scheduled by one thread", run: expire::lateness },
    Row { id: "uniform-1m", about: "1M with one time-out", run: expire::lateness },
    Row { id: "burst-1m", about: "1M due at one moment", run: expire::burst },
    Row { id: "bytes-per-timer", about: "heap of 1M pending timers", run: bytes::run },
    Row { id: "park-complete-1key", about: "a request that an event completes", run: park::run },
    Row { id: "local-1key", about: "without a lock beside with locks", run: local::run },
    Row { id: "park-complete-3keys", about: "it waits for three keys", run: park::run },
    Row { id: "park-complete-20keys", about: "it waits for twenty keys", run: park::run },
    Row { id: "park-complete-fresh-1key", about: "a key that is used once", run: park::run },
    Row { id: "park-complete-fresh-3keys", about: "three of those", run: park::run },
    Row { id: "park-complete-1m-1key", about: "1M others parked", run: park::run },
    Row { id: "park-complete-1m-3keys", about: "1M others parked", run: park::run },
    Row { id: "park-complete-2t-other-keys", about: "two threads, per thread", run: park::run },
    Row { id: "park-complete-2t-same-keys", about: "two threads, per thread", run: park::run },
    Row { id: "park-complete-2t-half-foreign", about: "half by the other", run: park::run },
    Row { id: "park-complete-2t-other-3keys", about: "three keys of its own", run: park::run },
    Row { id: "park-complete-2t-other-20keys", about: "twenty of its own", run: park::run },
    Row { id: "park-complete-2t-half-foreign-3keys", about: "three keys each", run: park::run },
    Row { id: "acks-all-1t", about: "a produce until its offset is reached", run: acks_all::run },
    Row { id: "acks-all-2t", about: "one thread parks, one raises", run: acks_all::run },
    Row { id: "replies-1t", about: "a request, until its reply", run: exchange::replies },
    Row { id: "replies-2t", about: "one thread asks, one answers", run: exchange::replies },
    Row {
        id: "replies-bytes",
        about: "heap of 1M unanswered requests",
        run: exchange::replies_bytes,
    },
    Row { id: "queue-1t", about: "a job that a consumer waits for", run: exchange::queue },
    Row { id: "queue-2t", about: "one thread puts, one takes", run: exchange::queue },
    Row { id: "poll-loop", about: "long-poll fetches and their data", run: poll_loop::run },
    Row { id: "hot-key", about: "an event for 10 000, none ready", run: events::hot_keys },
    Row { id: "event-tail", about: "one event while others are at work", run: events::tails },
    Row { id: "expire-operations", about: "1M time out over a second", run: operations::run },
    Row {
        id: "bytes-per-parked-1key",
        about: "heap of 1M parked requests",
        run: heap::parked_each,
    },
    Row { id: "bytes-per-parked-3keys", about: "under three keys each", run: heap::parked_each },
    Row { id: "empty-purgatory", about: "heap of one with nothing parked", run: heap::empty },
];

#[cfg(test)]
mod tests {
    use indicatif::ProgressBar;

    use super::{row::Run, *};
    use crate::{
        results::{FLOOR, OURS, Results},
        sizes::Sizes,
    };

    #[test]
    fn every_row_measures_ours_and_its_peers() {
        for row in &ROWS {
            let (mut results, progress) = (Results::default(), &ProgressBar::hidden());
            row.run(&mut Run { sizes: Sizes::TINY, results: &mut results, progress, only: &[] })
                .expect("every contender does as it should");
            assert!(!results.measures.is_empty(), "{}", row.id);
            for measure in &results.measures {
                assert!(measure.id.starts_with(row.id));
                let ours = measure.entries.iter().any(|entry| entry.name == OURS);
                let is_peer = |name: &str| !name.starts_with(OURS) && name != FLOOR;
                let peers = measure.entries.iter().any(|entry| is_peer(entry.name));
                let alone = row.id == "empty-purgatory";
                assert!(ours && peers != alone, "{}", measure.id);
            }
        }
    }
}
