//! The load: producers that send lines, and followers that fetch.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::{sync::Arc, sync::LazyLock, time::Duration};

use crossbeam_utils::CachePadded;
use example_support::{Stop, say};
use indicatif::HumanCount;
use tokio::runtime::{Builder, Runtime};

use super::text::Text;
use super::{FOLLOWER_STALLED, Stage, name};
use crate::Answer;
use crate::partition::{LogEnd, NEXT_LEADER, Partition, Record};

/// The longest delay that a held-up producer may make up for at once.
const BURST: Duration = Duration::from_millis(20);
/// The shortest wait for the next record: a thread does not wake up much faster than this anyway.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Runs the tasks of requests that are answered by a future.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("answers").build();
    runtime.expect("a thread for the answers")
});

/// State that all requests of one producer share. At the maximum in flight, the producer sleeps
/// until half of the requests have been answered, so it wakes for a batch of work, not for each
/// answer.
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

    /// Makes a request to the partition at `place` as soon as one more may wait; returns `None`
    /// once `stop` is raised.
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
            // Unparked when half of the requests have been answered, and at the end of the run.
            thread::park();
        }
        None
    }

    /// Counts an answer, and wakes the producer when half of the maximum is in flight. Only the
    /// producer adds requests: while it sleeps, the count falls and passes the half.
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
    /// Returns the partition that the request goes to.
    pub(crate) fn partition(&self) -> &Partition {
        &self.client.stage.partitions[self.place as usize]
    }

    /// Takes the answer, which is about the records below `end`, and hands it to the audit.
    pub(crate) fn answer(self, answer: Answer, end: LogEnd) {
        let stage = &self.client.stage;
        let waited = stage.now().saturating_sub(self.sent_at);
        let audit = &stage.audit;
        audit.record(self.partition(), &answer, end, waited, self.bytes);
        self.client.release();
    }

    /// Spawns a task that takes the answer when it is ready.
    pub(crate) fn answer_by(
        self,
        answer: impl Future<Output = Answer> + Send + 'static,
        end: LogEnd,
    ) {
        RUNTIME.spawn(async move { self.answer(answer.await, end) });
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

    /// Waits until the next record is due; returns false if `stop` was raised.
    fn wait(&mut self, stage: &Stage, stop: &Stop) -> bool {
        // A producer that was held up makes up for a burst at most.
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
        // The producer waits here while too many of its records wait.
        let Some(request) = client.request(place, body.len(), stop) else {
            return;
        };
        let record = Record { number, line };
        stage.acks.produce(request, record, args.timeout);
        sequence += 1;
    }
}

/// Acts as a follower: fetches from every partition in turn and writes to its own logs, until
/// `stop` is raised or it falls out for good. A record is acknowledged at the next fetch of the
/// slowest in-sync follower.
pub(super) fn follow(number: usize, stage: &Stage, stop: &Stop) {
    let can_stall = number == FOLLOWER_STALLED;
    let mut follower = Follower::new(number, stage);
    let mut leads = false;
    let mut fell_out = false;
    loop {
        // The next leader takes over on this thread, which then acts for the previous leader.
        if number == NEXT_LEADER && !leads && stage.args.is_truncated(stage.now()) {
            follower.fetch_in_vain();
            stop.pause(stage.args.follower_lag);
            follower.take_over();
            leads = true;
        }
        // A follower that falls out does not fetch again, unless it is to join again.
        if can_stall && !fell_out && stage.args.is_dropped(stage.now()) {
            follower.fall_out();
            fell_out = true;
            if !stage.args.join_follower {
                return;
            }
        }
        // A stalled follower sleeps to the end of its stall; any other fetches and pauses.
        let stall = stage.args.stall_remaining(stage.now());
        let pause = match stall {
            Some(remaining) if can_stall => remaining,
            _ => {
                follower.fetch_all();
                stage.args.follower_lag
            }
        };
        if stop.pause(pause) {
            return;
        }
    }
}

/// A follower of all partitions.
struct Follower<'a> {
    number: usize,
    stage: &'a Stage,
    /// For each partition: the follower is out of the in-sync set.
    is_out: Vec<bool>,
    /// The number of records that the follower fetched while it was out.
    fetched_outside: usize,
    /// A buffer that every fetch reuses.
    fetched: Vec<Record>,
}

impl<'a> Follower<'a> {
    /// Makes a follower that is in every in-sync set.
    fn new(number: usize, stage: &'a Stage) -> Self {
        Self {
            number,
            stage,
            is_out: vec![false; stage.partitions.len()],
            fetched_outside: 0,
            fetched: Vec::new(),
        }
    }

    /// Fetches once from every partition.
    fn fetch_all(&mut self) {
        for (place, partition) in self.stage.partitions.iter().enumerate() {
            // The fetch says where the follower's log ends: every record below is written.
            self.fetched.clear();
            let has = partition.fetch(self.number, &mut self.fetched);
            let is_in_sync = self.stage.acks.fetch(partition, self.number, has);
            // A follower that joins must have caught up before it writes the fetched records.
            if self.is_out[place] {
                if is_in_sync {
                    self.joined(place);
                } else {
                    self.fetched_outside += self.fetched.len();
                }
            }
            partition.followers[self.number].append(&self.fetched);
        }
    }

    /// Fetches once from every partition, and loses the answers: the follower reports what it has,
    /// and does not get the records that come next.
    fn fetch_in_vain(&mut self) {
        for partition in &self.stage.partitions {
            self.fetched.clear();
            let has = partition.fetch(self.number, &mut self.fetched);
            self.stage.acks.fetch(partition, self.number, has);
        }
    }

    /// Takes the follower out of every partition's in-sync set, and prints the effect.
    fn fall_out(&mut self) {
        let mut acknowledged = 0;
        for (place, partition) in self.stage.partitions.iter().enumerate() {
            // Tell the audit before any record is acknowledged without this follower.
            self.stage.audit.left(partition, self.number);
            self.is_out[place] = true;
            acknowledged += self.stage.acks.falls_out(partition, self.number);
            if !self.stage.args.join_follower {
                partition.forget(self.number);
            }
        }
        say(format_args!(
            "{} fell out of the in-sync set: {} produces waited for it alone, and are acknowledged",
            name(self.number),
            HumanCount(acknowledged as u64),
        ));
    }

    /// Notes that the follower is back in a partition's in-sync set; prints it after the last one.
    fn joined(&mut self, place: usize) {
        let partition = &self.stage.partitions[place];
        self.stage.audit.joined(partition, self.number);
        self.is_out[place] = false;
        if !self.is_out.contains(&true) {
            say(format_args!(
                "{} joined the in-sync set again, once it had caught up: {} records",
                name(self.number),
                HumanCount(self.fetched_outside as u64),
            ));
        }
    }

    /// Makes the follower the leader of every partition, and prints the effect.
    fn take_over(&mut self) {
        let mut taken_back = 0;
        for partition in &self.stage.partitions {
            // Tell the audit before any produce is answered that the leader has changed.
            self.stage.audit.leader_changes(partition);
            let change = self.stage.acks.change_leader(partition);
            self.stage.audit.leader_changed(partition, &change);
            taken_back += change.taken_back;
        }
        say(format_args!(
            "{} became the leader: {} records were taken back",
            name(self.number),
            HumanCount(taken_back),
        ));
    }
}
