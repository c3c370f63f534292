//! The load: producers that send lines, and followers that fetch.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::{sync::Arc, time::Duration};

use crossbeam_utils::CachePadded;
use example_support::Stop;
use indicatif::HumanCount;

use super::text::Text;
use super::{FOLLOWER_STALLED, Stage, name};
use crate::partition::{Partition, Record};
use crate::{Answer, Leader};

/// The time that a producer that was held up may make good at once.
const BURST: Duration = Duration::from_millis(20);
/// The shortest wait for the next record: a thread does not wake up much faster than this anyway.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// State that all requests of one producer share. Full, the producer sleeps until half of them have
/// been answered, so that it is woken for a batch of work and not for every answer.
#[derive(Debug)]
struct Client {
    stage: Arc<Stage>,
    in_flight: CachePadded<AtomicUsize>,
    thread: Thread,
}

impl Client {
    /// Makes the client of the calling thread.
    fn new(stage: &Arc<Stage>) -> Self {
        Self {
            stage: Arc::clone(stage),
            in_flight: CachePadded::default(),
            thread: thread::current(),
        }
    }

    fn in_flight_max(&self) -> usize {
        self.stage.args.in_flight as usize
    }

    /// Makes a request to the partition at `place`, as soon as one more may wait; none when `stop`
    /// is raised.
    fn request(self: &Arc<Self>, place: u64, bytes: usize, stop: &Stop) -> Option<Request> {
        while !stop.is_raised() {
            if self.in_flight.load(Ordering::Acquire) < self.in_flight_max() {
                self.in_flight.fetch_add(1, Ordering::Relaxed);
                return Some(Request {
                    client: Arc::clone(self),
                    sent_at: self.stage.now(),
                    place: place as u32,
                    bytes: bytes as u32,
                });
            }
            // Woken when half of the requests have been answered, and by the end of the run.
            thread::park();
        }
        None
    }

    /// Counts an answer, and wakes the producer at the half. Only the producer adds: while it
    /// sleeps, the count falls from the maximum and passes the half.
    fn release(&self) {
        let remaining = self.in_flight.fetch_sub(1, Ordering::AcqRel) - 1;
        if remaining == self.in_flight_max() / 2 {
            self.thread.unpark();
        }
    }
}

/// A producer's request, to be answered once.
#[derive(Debug)]
pub(crate) struct Request {
    client: Arc<Client>,
    sent_at: Duration,
    place: u32,
    bytes: u32,
}

impl Request {
    /// Returns the partition that it goes to.
    pub(crate) fn partition(&self) -> &Partition {
        &self.client.stage.leader.partitions[self.place as usize]
    }

    /// Takes the answer, and hands it to the audit. It acknowledges what lies below `offset`.
    pub(crate) fn answer(self, answer: Answer, offset: u64) {
        let stage = &self.client.stage;
        let waited = stage.now().saturating_sub(self.sent_at);
        let audit = &stage.audit;
        audit.record(self.partition(), answer, offset, waited, self.bytes);
        self.client.release();
    }
}

/// Spreads the records of one producer over time, at a fixed rate.
struct Pace {
    /// The time between two records.
    every: Duration,
    /// The time at which the next record is due.
    next: Duration,
}

impl Pace {
    /// Makes the pace of one of the producers, which share the rate and begin one after the other;
    /// `None` for a rate without limit.
    fn new(producer: u32, producers: u32, rate: u32) -> Option<Pace> {
        let every = Duration::from_secs(producers.into()).checked_div(rate)?;
        let next = every * producer / producers;
        Some(Pace { every, next })
    }

    /// Waits until the next record is due; false when `stop` was raised.
    fn wait(&mut self, stage: &Stage, stop: &Stop) -> bool {
        // A producer that was held up makes good a burst of the past, and no more.
        let due = self.next.max(stage.now().saturating_sub(BURST));
        self.next = due + self.every;
        while let Some(wait) = due.checked_sub(stage.now()) {
            if stop.pause(wait.max(WAIT_MIN)) {
                return false;
            }
        }
        true
    }
}

/// Acts as a producer: sends its share of the lines, to all partitions in turn, until `stop` is
/// raised.
pub(super) fn produce(producer: u32, stage: &Arc<Stage>, text: &Text, stop: &Stop) {
    let args = &stage.args;
    // The client belongs to this thread, which its answers wake.
    let client = Arc::new(Client::new(stage));
    let mut pace = Pace::new(producer, args.producers, args.rate);
    let mut sequence = 0;
    loop {
        if let Some(pace) = &mut pace
            && !pace.wait(stage, stop)
        {
            return;
        }
        // Producer 1 of 4 sends the lines 1, 5, 9 and so on.
        let number = sequence * u64::from(args.producers) + u64::from(producer);
        let (line, body) = text.line(number);
        let place = (sequence + u64::from(producer)) % u64::from(args.partitions);
        // Here the producer waits while too many of its records do.
        let Some(request) = client.request(place, body.len(), stop) else {
            return;
        };
        let record = Record { number, line };
        stage.leader.produce(request, record, args.timeout);
        sequence += 1;
    }
}

/// Acts as a follower: fetches from every partition in turn and writes to its own logs, until
/// `stop` is raised or it falls out. A record is acknowledged when the slowest in-sync follower
/// fetches the next time.
pub(super) fn follow(follower: usize, stage: &Stage, stop: &Stop) {
    let can_stall = follower == FOLLOWER_STALLED;
    let mut fetched = Vec::new();
    loop {
        // One that has to fall out does not fetch again.
        if can_stall && stage.args.is_dropped(stage.now()) {
            fall_out(follower, stage);
            return;
        }
        // A stalled follower sleeps to the end of its stall; any other fetches and pauses.
        let stall = stage.args.stall_remaining(stage.now());
        let pause = match stall {
            Some(remaining) if can_stall => remaining,
            _ => {
                fetch_all(follower, &stage.leader, &mut fetched);
                stage.args.follower_lag
            }
        };
        if stop.pause(pause) {
            return;
        }
    }
}

/// Takes a follower out of the in-sync set of every partition, and says what that did.
fn fall_out(follower: usize, stage: &Stage) {
    let mut acknowledged = 0;
    for partition in &stage.leader.partitions {
        acknowledged += stage.leader.falls_out(partition, follower);
    }
    // Standard error may be closed; the run goes on all the same.
    let _ = writeln!(
        io::stderr(),
        "{} fell out of the in-sync set: {} produces waited for it alone, and are acknowledged",
        name(follower),
        HumanCount(acknowledged as u64),
    );
}

/// Fetches once from every partition; `fetched` is a buffer to be used again.
fn fetch_all(follower: usize, leader: &Leader, fetched: &mut Vec<Record>) {
    for partition in &leader.partitions {
        let log = &partition.followers[follower];
        fetched.clear();
        // The fetch says where the log ends: everything below is written.
        leader.fetch(partition, follower, log.end(), fetched);
        log.append(fetched);
    }
}
