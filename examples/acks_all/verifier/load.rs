//! The load: producers that send lines, and followers that fetch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::{sync::Arc, time::Duration};

use crossbeam_utils::CachePadded;
use example_support::Stop;

use super::text::Text;
use super::{FOLLOWER_STALLED, Stage};
use crate::Answer;
use crate::partition::{Partition, Record};

/// How much of the past a producer that was held up may make good at once.
const BURST: Duration = Duration::from_millis(20);
/// The shortest wait for the next turn: a thread does not wake up much faster than this anyway.
const TURN_MIN: Duration = Duration::from_millis(1);
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
        let in_flight = CachePadded::default();
        Self {
            stage: Arc::clone(stage),
            in_flight,
            thread: thread::current(),
        }
    }

    fn in_flight_max(&self) -> usize {
        self.stage.args.in_flight as usize
    }

    /// A request to the partition at `place`, as soon as one more may wait; none when `stop` is
    /// raised.
    fn request(self: &Arc<Self>, place: u64, bytes: usize, stop: &Stop) -> Option<Request> {
        while !stop.is_raised() {
            if self.in_flight.load(Ordering::Acquire) < self.in_flight_max() {
                self.in_flight.fetch_add(1, Ordering::Relaxed);
                let (client, sent_at) = (Arc::clone(self), self.stage.now());
                let (place, bytes) = (place as u32, bytes as u32);
                return Some(Request {
                    client,
                    sent_at,
                    place,
                    bytes,
                });
            }
            thread::park();
        }
        None
    }

    /// Only the producer adds: while it sleeps, full, the count falls and passes the half.
    fn release(&self) {
        if self.in_flight.fetch_sub(1, Ordering::AcqRel) - 1 == self.in_flight_max() / 2 {
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
    /// The partition that it goes to.
    pub(crate) fn partition(&self) -> &Partition {
        &self.client.stage.leader.partitions[self.place as usize]
    }

    /// Enters the answer in the books. It acknowledges what lies below `offset`.
    pub(crate) fn answer(self, answer: Answer, offset: u64) {
        let stage = &self.client.stage;
        let waited = stage.now().saturating_sub(self.sent_at);
        stage
            .books
            .enter(self.partition(), answer, offset, waited, self.bytes);
        self.client.release();
    }
}

/// A producer: sends its share of the lines, to all partitions in turn, until `stop` is raised.
pub(super) fn produce(producer: u32, stage: &Arc<Stage>, text: &Text, stop: &Stop) {
    let Stage { args, leader, .. } = &**stage;
    let client = Arc::new(Client::new(stage));
    let every = Duration::from_secs(args.producers.into()).checked_div(args.rate);
    let mut turn = every.unwrap_or_default() * producer / args.producers;
    for sequence in 0.. {
        if let Some(every) = every {
            turn = turn.max(stage.now().saturating_sub(BURST)) + every;
            while let Some(wait) = (turn - every).checked_sub(stage.now()) {
                if stop.pause(wait.max(TURN_MIN)) {
                    return;
                }
            }
        }
        let number = sequence * u64::from(args.producers) + u64::from(producer);
        let (line, body) = text.line(number);
        let place = (sequence + u64::from(producer)) % u64::from(args.partitions);
        let Some(request) = client.request(place, body.len(), stop) else {
            return;
        };
        leader.produce(request, Record { number, line }, args.timeout);
    }
}

/// A follower: fetches from every partition in turn and writes to its own logs, until `stop` is
/// raised. A record is acknowledged when the slowest follower fetches the next time.
pub(super) fn follow(follower: usize, stage: &Stage, stop: &Stop) {
    let Stage { args, leader, .. } = stage;
    let mut fetched = Vec::new();
    loop {
        let stalled = args
            .stall_left(stage.now())
            .filter(|_| follower == FOLLOWER_STALLED);
        if stalled.is_none() {
            for partition in &leader.partitions {
                let log = &partition.followers[follower];
                fetched.clear();
                leader.fetch(partition, follower, log.end(), &mut fetched);
                log.append(&fetched);
            }
        }
        if stop.pause(stalled.unwrap_or(args.follower_lag)) {
            return;
        }
    }
}
