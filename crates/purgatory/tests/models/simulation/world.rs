//! The cluster: one leader, on the real purgatory under a hand-turned timer, and followers who
//! fetch from it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use purgatory::{CancelReason, DelayedOperation, Outcome, ParkResult, Purgatory, Watches};
use timer_core::{Clock, Executor, Job, ManualTimer};

use super::{
    Fault,
    story::{FOLLOWERS, Form, PARTITIONS, Step, What},
};

/// What the leader's operations wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Partition(usize),
    Client(u64),
}

/// A produce that waits until the high watermark of each of its partitions has come so far.
struct Produce {
    number: usize,
    required: Vec<(usize, u64)>,
    shared: Arc<Shared>,
}

/// What checks and callbacks see.
struct Shared {
    high_watermarks: [AtomicU64; PARTITIONS],
    ends: Mutex<Vec<Vec<Outcome>>>,
}

impl DelayedOperation for Produce {
    fn try_complete(&mut self) -> bool {
        let reached = |&(partition, offset): &(usize, u64)| {
            self.shared.high_watermarks[partition].load(Relaxed) >= offset
        };
        self.required.iter().all(reached)
    }

    fn on_complete(self, outcome: Outcome) {
        self.shared.ends.lock().unwrap()[self.number].push(outcome);
    }
}

/// Runs jobs at once, or keeps them while it is stalled.
#[derive(Clone, Debug, Default)]
struct Stalling(Arc<Mutex<(bool, Vec<Job>)>>);

impl Executor for Stalling {
    fn execute(&self, job: Job) {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            state.1.push(job);
        } else {
            drop(state);
            job.run();
        }
    }
}

impl Stalling {
    fn stall(&self, stalled: bool) -> bool {
        let mut state = self.0.lock().unwrap();
        state.0 = stalled;
        let jobs = if stalled { Vec::new() } else { std::mem::take(&mut state.1) };
        drop(state);
        let any = !jobs.is_empty();
        jobs.into_iter().for_each(Job::run);
        any
    }
}

/// A produce as it must be.
struct Expected {
    client: u64,
    required: Vec<(usize, u64)>,
    /// In milliseconds of the leader's clock; `None` when it ended as it was parked.
    deadline: Option<u64>,
    ended: Option<Outcome>,
}

#[derive(Default)]
struct Follower {
    logs: [u64; PARTITIONS],
    paused_until: u64,
    /// Told apart from its former lives: what was sent to those is not for it.
    life: u64,
}

/// The messages under way.
enum Event {
    Step(usize),
    /// A follower asks for what comes after its log.
    Fetch {
        follower: usize,
        life: u64,
        logs: [u64; PARTITIONS],
    },
    /// The leader's answer: where its logs end.
    Records {
        follower: usize,
        life: u64,
        ends: [u64; PARTITIONS],
    },
    /// A follower's next fetch is due.
    Round {
        follower: usize,
        life: u64,
    },
    Unstall,
}

/// What a story came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) completed: u64,
    pub(crate) expired: u64,
    pub(crate) cancelled: u64,
    pub(crate) at_once: u64,
    /// Messages lost.
    pub(crate) lost: u64,
    /// Callbacks that a stall held up.
    pub(crate) stalled: u64,
    events: u64,
}

impl Ends {
    pub(crate) fn add(&mut self, other: &Ends) {
        self.completed += other.completed;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.at_once += other.at_once;
        self.lost += other.lost;
        self.stalled += other.stalled;
        self.events += other.events;
    }
}

pub(crate) struct World<'a> {
    steps: &'a [Step],
    fault: Fault,
    rng: Rng,
    /// By millisecond of the true time, then by the order they were made in.
    events: BTreeMap<(u64, u64), Event>,
    made: u64,
    now: u64,
    timer: ManualTimer,
    purgatory: Purgatory<Key, Produce>,
    executor: Stalling,
    shared: Arc<Shared>,
    expected: Vec<Expected>,
    leader_ends: [u64; PARTITIONS],
    /// What each follower is known to have, and in which of its lives.
    known: [([u64; PARTITIONS], u64); FOLLOWERS],
    /// What each follower ever had, as the leader heard.
    had: [[u64; PARTITIONS]; FOLLOWERS],
    followers: [Follower; FOLLOWERS],
    loss: (u64, u64),
    seen: Ends,
}

/// The leader's purgatory.
fn start(timer: &ManualTimer, executor: &Stalling) -> Purgatory<Key, Produce> {
    let builder = Purgatory::builder("simulated").timer(timer).executor(executor.clone());
    let purgatory = builder.build().unwrap();
    purgatory.times();
    purgatory
}

/// After the last step everything heals, and this much later all must be over.
const HEALED: u64 = 2000;

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, steps: &'a [Step], fault: Fault) -> Self {
        let (timer, executor) = (ManualTimer::new(), Stalling::default());
        let purgatory = start(&timer, &executor);
        let shared = Shared { high_watermarks: Default::default(), ends: Mutex::default() };
        let mut world = World {
            steps,
            fault,
            rng: Rng::with_seed(!seed),
            events: BTreeMap::new(),
            made: 0,
            now: 0,
            timer,
            purgatory,
            executor,
            shared: Arc::new(shared),
            expected: Vec::new(),
            leader_ends: [0; PARTITIONS],
            known: Default::default(),
            had: Default::default(),
            followers: Default::default(),
            loss: (0, 0),
            seen: Ends::default(),
        };
        (0..steps.len()).for_each(|step| world.later(steps[step].at, Event::Step(step)));
        (0..FOLLOWERS).for_each(|follower| world.later(0, Event::Round { follower, life: 0 }));
        world
    }

    pub(crate) fn run(mut self) -> Ends {
        let end = self.steps.last().map_or(0, |step| step.at) + HEALED;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end {
                break;
            }
            // A clock that jumped ahead stands still until the true time has caught up.
            self.now = at;
            let ahead = self.clock().max(at) - self.clock();
            self.timer.advance(Duration::from_millis(ahead));
            self.expire();
            self.happens(event);
            self.seen.events += 1;
            self.check();
        }
        self.close()
    }

    fn clock(&self) -> u64 {
        self.timer.clock().now_ns() / 1_000_000
    }

    fn later(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    /// Sends a message: it takes its time, overtakes others, or is lost.
    fn send(&mut self, event: Event) {
        let (one_in, until) = self.loss;
        if self.now < until && self.rng.u64(..one_in) == 0 {
            self.seen.lost += 1;
            return;
        }
        let delay = if self.rng.u32(..10) == 0 { self.rng.u64(..40) } else { self.rng.u64(..4) };
        self.later(self.now + delay, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Step(step) => self.step(&self.steps[step].what.clone()),
            Event::Round { follower, life } => {
                let Follower { logs, paused_until, life: lives } = self.followers[follower];
                if life != lives {
                    return;
                }
                if paused_until > self.now {
                    return self.later(paused_until, Event::Round { follower, life });
                }
                self.send(Event::Fetch { follower, life, logs });
                self.later(self.now + 5, Event::Round { follower, life });
            }
            Event::Fetch { follower, life, logs } => {
                if life == self.followers[follower].life {
                    let (known, known_life) = &mut self.known[follower];
                    if *known_life != life {
                        (*known, *known_life) = (logs, life);
                    }
                    // A fetch that was overtaken tells less than is known.
                    known.iter_mut().zip(logs).for_each(|(known, log)| *known = log.max(*known));
                    let had = self.had[follower].iter_mut().zip(logs);
                    had.for_each(|(had, log)| *had = log.max(*had));
                    self.advance();
                }
                let ends = self.leader_ends;
                self.send(Event::Records { follower, life, ends });
            }
            Event::Records { follower, life, ends } => {
                let Follower { logs, paused_until, life: lives } = &mut self.followers[follower];
                if *paused_until > self.now {
                    let until = *paused_until;
                    return self.later(until, Event::Records { follower, life, ends });
                }
                if life == *lives {
                    logs.iter_mut().zip(ends).for_each(|(log, end)| *log = end.max(*log));
                }
            }
            Event::Unstall => {
                let held_up = self.executor.stall(false);
                self.seen.stalled += u64::from(held_up);
            }
        }
    }

    fn step(&mut self, what: &What) {
        match *what {
            What::Produce { client, ref partitions, timeout, form } => {
                self.produce(client, partitions, timeout, form);
            }
            What::Leave { client } => {
                if self.fault != Fault::ForgetsClients {
                    self.purgatory.cancel_for_key(&Key::Client(client), "left");
                }
                for produce in &mut self.expected {
                    if produce.client == client && produce.ended.is_none() {
                        let reason = CancelReason::Requested("left".into());
                        produce.ended = Some(Outcome::Cancelled(reason));
                    }
                }
            }
            What::Pause { follower, for_ms } => {
                self.followers[follower].paused_until = self.now + for_ms
            }
            What::Crash { follower } => {
                let life = self.followers[follower].life + 1;
                self.followers[follower] = Follower { life, ..Follower::default() };
                self.later(self.now + 10, Event::Round { follower, life });
            }
            What::Restart => {
                if self.fault != Fault::ForgetsToEnd {
                    self.purgatory.shutdown(Duration::ZERO);
                }
                for produce in self.expected.iter_mut().filter(|produce| produce.ended.is_none()) {
                    produce.ended = Some(Outcome::Cancelled(CancelReason::Shutdown));
                }
                self.check();
                self.count();
                self.purgatory = start(&self.timer, &self.executor);
                self.known = Default::default();
            }
            What::Jump { by } => {
                self.timer.pass(Duration::from_millis(by));
                self.timer.advance(Duration::ZERO);
                self.expire();
            }
            What::Stall { for_ms } => {
                self.executor.stall(true);
                self.later(self.now + for_ms, Event::Unstall);
            }
            What::Loss { one_in, for_ms } => self.loss = (one_in, self.now + for_ms),
        }
    }

    fn produce(&mut self, client: u64, partitions: &[usize], timeout: u64, form: Form) {
        let required: Vec<_> = partitions
            .iter()
            .map(|&partition| {
                self.leader_ends[partition] += 1;
                (partition, self.leader_ends[partition])
            })
            .collect();
        let number = self.expected.len();
        self.shared.ends.lock().unwrap().push(Vec::new());
        let produce = Produce { number, required: required.clone(), shared: self.shared.clone() };
        let levels: Vec<_> =
            required.iter().map(|&(p, offset)| (Key::Partition(p), offset)).collect();
        let mut keys = vec![Key::Client(client)];
        let watches = match form {
            Form::Counted => Watches::up_to(&levels).with_keys(&keys),
            Form::Checked => Watches::up_to(&levels).checked().with_keys(&keys),
            Form::Plain => {
                keys.extend(levels.iter().map(|(key, _)| key.clone()));
                Watches::keys(&keys)
            }
        };
        let parked = self
            .purgatory
            .try_complete_else_watch(produce, watches, Duration::from_millis(timeout))
            .unwrap();
        let deadline = matches!(parked, ParkResult::Parked(_)).then(|| self.clock() + timeout);
        let ended = match parked {
            ParkResult::Parked(_) => None,
            ParkResult::Ended(outcome) => Some(outcome),
            other => panic!("neither parked nor over: {other:?}"),
        };
        assert!(timeout > 0 || ended == Some(Outcome::Expired), "no time to wait: {ended:?}");
        self.seen.at_once += u64::from(ended.is_some());
        self.expected.push(Expected { client, required, deadline, ended });
    }

    /// The high watermarks after a follower's word, and the events.
    fn advance(&mut self) {
        for partition in 0..PARTITIONS {
            let followers = self.known.iter().map(|(logs, _)| logs[partition]);
            let reached = match self.fault {
                Fault::AckedByOne => followers.max().unwrap().min(self.leader_ends[partition]),
                _ => followers.min().unwrap(),
            };
            let before = self.shared.high_watermarks[partition].load(Relaxed);
            if reached <= before {
                continue;
            }
            if self.fault != Fault::EventFirst {
                self.shared.high_watermarks[partition].store(reached, Relaxed);
            }
            self.purgatory.complete_up_to(&Key::Partition(partition), reached);
            self.purgatory.check_and_complete(&Key::Partition(partition));
            self.shared.high_watermarks[partition].store(reached, Relaxed);
        }
        self.complete();
    }

    /// What the reference says is complete now.
    fn complete(&mut self) {
        for produce in self.expected.iter_mut().filter(|produce| produce.ended.is_none()) {
            let reached = |&(partition, offset): &(usize, u64)| {
                self.shared.high_watermarks[partition].load(Relaxed) >= offset
            };
            if produce.required.iter().all(reached) {
                produce.ended = Some(Outcome::Completed);
            }
        }
    }

    /// What the reference says has run out of time.
    fn expire(&mut self) {
        let clock = self.clock();
        for produce in self.expected.iter_mut().filter(|produce| produce.ended.is_none()) {
            if produce.deadline.is_some_and(|deadline| deadline <= clock) {
                produce.ended = Some(Outcome::Expired);
            }
        }
    }

    /// One outcome each, the right one; acknowledged means replicated; nothing is parked past its
    /// time or after its end; the purgatory keeps no more than that.
    fn check(&self) {
        let ends = self.shared.ends.lock().unwrap();
        // What expired or was shut down is told on the executor, which may be stalled.
        let executors = [Outcome::Expired, Outcome::Cancelled(CancelReason::Shutdown)];
        for (number, (produce, told)) in self.expected.iter().zip(&*ends).enumerate() {
            assert!(told.len() <= 1, "produce {number} ended as {told:?}");
            if let Some(outcome) = told.first() {
                assert_eq!(Some(outcome), produce.ended.as_ref(), "produce {number}");
            } else if produce.ended.as_ref().is_some_and(|ended| !executors.contains(ended)) {
                panic!("produce {number} was not told that it {:?}", produce.ended);
            }
            if told.first() == Some(&Outcome::Completed) {
                self.check_replicated(number, produce);
            }
        }
        let open = self.expected.iter().filter(|produce| produce.ended.is_none()).count();
        let parked = self.purgatory.len();
        assert!(parked == open, "{parked} parked instead of {open}, at {} ms", self.now);
    }

    /// Both followers have had it, in this life or one before.
    fn check_replicated(&self, number: usize, produce: &Expected) {
        for &(partition, offset) in &produce.required {
            let watermark = self.shared.high_watermarks[partition].load(Relaxed);
            assert!(watermark >= offset, "produce {number} completed before the high watermark");
            for (follower, had) in self.had.iter().enumerate() {
                assert!(had[partition] >= offset, "produce {number} is not on follower {follower}");
            }
        }
    }

    /// Everything is over, and nothing is left of it.
    fn close(mut self) -> Ends {
        self.executor.stall(false);
        self.timer.advance(Duration::from_millis(HEALED));
        self.expire();
        self.check();
        let ends = std::mem::take(&mut *self.shared.ends.lock().unwrap());
        for (number, (produce, told)) in self.expected.iter().zip(&ends).enumerate() {
            assert_eq!(told.first(), produce.ended.as_ref(), "produce {number} at the end");
        }
        self.count();
        let Ends { completed, expired, cancelled, at_once, .. } = self.seen;
        assert_eq!(completed + expired + cancelled + at_once, self.expected.len() as u64);
        self.seen
    }

    /// The books of a purgatory in which nothing is left.
    fn count(&mut self) {
        let stats = self.purgatory.stats();
        assert_eq!((stats.parked, stats.watched, self.purgatory.keys()), (0, 0, 0));
        assert_eq!(self.purgatory.times().lateness.count(), stats.expired);
        self.seen.completed += stats.completed;
        self.seen.expired += stats.expired;
        self.seen.cancelled += stats.cancelled;
    }
}
