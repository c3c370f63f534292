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

/// The time that a producer that was held up may make good at once.
const BURST: Duration = Duration::from_millis(20);
/// The shortest wait for the next record: a thread does not wake up much faster than this anyway.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// Runs the tasks of requests that are answered by a future.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("answers").build();
    runtime.expect("a thread for the answers")
});

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
        &self.client.stage.partitions[self.place as usize]
    }

    /// Takes the answer, and hands it to the audit. It is about the records below `end`.
    pub(crate) fn answer(self, answer: Answer, end: LogEnd) {
        let stage = &self.client.stage;
        let waited = stage.now().saturating_sub(self.sent_at);
        let audit = &stage.audit;
        audit.record(self.partition(), &answer, end, waited, self.bytes);
        self.client.release();
    }

    /// Takes the answer when it is there, as a task.
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
        stage.acks.produce(request, record, args.timeout);
        sequence += 1;
    }
}

/// Acts as a follower: fetches from every partition in turn and writes to its own logs, until
/// `stop` is raised or it falls out for good. A record is acknowledged when the slowest in-sync
/// follower fetches the next time.
pub(super) fn follow(number: usize, stage: &Stage, stop: &Stop) {
    let can_stall = number == FOLLOWER_STALLED;
    let mut follower = Follower::new(number, stage);
    let mut leads = false;
    let mut fell_out = false;
    loop {
        // The next leader takes over on its own thread, and follows as the last one from then on.
        if number == NEXT_LEADER && !leads && stage.args.is_truncated(stage.now()) {
            follower.fetch_in_vain();
            stop.pause(stage.args.follower_lag);
            follower.take_over();
            leads = true;
        }
        // One that falls out does not fetch again, unless it is to join again.
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
    /// By partition: it is out of the in-sync set.
    is_out: Vec<bool>,
    /// The records that it has fetched while it was out.
    fetched_outside: usize,
    /// A buffer to be used again.
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
            // The fetch says where the log ends: everything below is written.
            self.fetched.clear();
            let has = partition.fetch(self.number, &mut self.fetched);
            let is_in_sync = self.stage.acks.fetch(partition, self.number, has);
            // One that joins has to have everything already, before it writes what came.
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

    /// Fetches once from every partition, and the answers are lost: it says what it has, and does
    /// not get what comes next.
    fn fetch_in_vain(&mut self) {
        for partition in &self.stage.partitions {
            self.fetched.clear();
            let has = partition.fetch(self.number, &mut self.fetched);
            self.stage.acks.fetch(partition, self.number, has);
        }
    }

    /// Takes the follower out of the in-sync set of every partition, and says what that did.
    fn fall_out(&mut self) {
        let mut acknowledged = 0;
        for (place, partition) in self.stage.partitions.iter().enumerate() {
            // Before any record is acknowledged without it.
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

    /// Is called when the follower is back in the in-sync set of a partition; says so at the last.
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

    /// Makes the follower the leader of every partition, and says what that did.
    fn take_over(&mut self) {
        let mut taken_back = 0;
        for partition in &self.stage.partitions {
            // Before any produce is told so.
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
