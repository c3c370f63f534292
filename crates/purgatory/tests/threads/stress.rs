//! Millions of operations of every kind on a real timer, from four threads over few keys: events,
//! rises, expiries, cancels and dropped futures race, and the outcomes are counted. `TEST_EFFORT`
//! says how many: 100 000 without it; `STRESS_SEED` makes others. Nothing sleeps to be right.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use fastrand::Rng;
use purgatory::{
    BoxedOperation, CancelReason, DelayedOperation, OperationId, Outcome, ParkResult, Purgatory,
    Timeout, WaitError, WaitFuture, Watches,
};
use timer_core::{ManualTimer, SystemTimer, Timer};

use crate::effort::{effort, number};

/// Without `TEST_EFFORT`.
const OPERATIONS: u64 = 100_000;
const THREADS: usize = 4;
const KEYS: u32 = 50;
/// Half of all wait for longer.
const RECHECK: Duration = Duration::from_millis(10);

/// How many ended as what. Ending consumes an operation, so the sum tells whether each ended once.
#[derive(Debug, Default)]
struct Tally {
    operations: AtomicUsize,
    completed: AtomicUsize,
    expired: AtomicUsize,
    cancelled: AtomicUsize,
    shut_down: AtomicUsize,
    /// Values that conditions gave, those that futures took, and those that the hook got.
    given: AtomicUsize,
    taken: AtomicUsize,
    unclaimed: AtomicUsize,
    dropped: AtomicUsize,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, SeqCst);
}

impl Tally {
    fn ended(&self, outcome: &Outcome) {
        count(match outcome {
            Outcome::Completed => &self.completed,
            Outcome::Expired => &self.expired,
            Outcome::Cancelled(CancelReason::Shutdown) => &self.shut_down,
            _ => &self.cancelled,
        });
    }

    /// What a future gave.
    fn waited(&self, result: Result<(), WaitError>) {
        match result {
            Ok(()) => count(&self.taken),
            Err(WaitError::Expired) => self.ended(&Outcome::Expired),
            Err(WaitError::Cancelled(reason)) => self.ended(&Outcome::Cancelled(reason)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// What all threads share.
#[derive(Clone)]
struct Ring {
    purgatory: Purgatory<u32, BoxedOperation>,
    tally: Arc<Tally>,
    /// The keys' values, which only rise.
    values: Arc<[AtomicU64]>,
}

struct Racer {
    condition: Box<dyn FnMut() -> bool + Send>,
    tally: Arc<Tally>,
}

impl DelayedOperation for Racer {
    fn try_complete(&mut self) -> bool {
        (self.condition)()
    }

    fn on_complete(self, outcome: Outcome) {
        self.tally.ended(&outcome);
    }
}

/// Something a thread has parked, and may bring about.
enum Mine {
    Flag(Arc<AtomicBool>, u32, OperationId),
    Watermark(u32, u64, OperationId),
    Future(Arc<AtomicBool>, u32, WaitFuture<()>),
}

impl Ring {
    fn park(&self, random: &mut Rng) -> Option<Mine> {
        count(&self.tally.operations);
        let timeout = Duration::from_micros(random.u64(1..20_000));
        let keys: Vec<u32> = (0..random.usize(1..7)).map(|_| random.u32(0..KEYS)).collect();
        let flag = Arc::new(AtomicBool::new(random.u32(0..20) == 0));
        match random.u32(0..10) {
            0..4 => {
                let seen = flag.clone();
                let id = self.park_racer(Watches::keys(&keys), timeout, move || seen.load(SeqCst));
                Some(Mine::Flag(flag, keys[0], id?))
            }
            4..7 => {
                let mut ahead =
                    |key: &u32| self.values[*key as usize].load(SeqCst) + random.u64(0..5);
                let levels: Vec<_> = keys.iter().map(|key| (*key, ahead(key))).collect();
                let (values, until) = (self.values.clone(), levels.clone());
                let reached = move || {
                    let at = |key: u32| values[key as usize].load(SeqCst);
                    until.iter().all(|&(key, threshold)| at(key) >= threshold)
                };
                let watches = match random.u32(0..3) {
                    0 => Watches::up_to(&levels).checked(),
                    1 => Watches::up_to(&levels).with_keys(&keys),
                    _ => Watches::up_to(&levels),
                };
                let id = self.park_racer(watches, timeout, reached);
                Some(Mine::Watermark(levels[0].0, levels[0].1, id?))
            }
            _ => {
                let (seen, given) = (flag.clone(), self.tally.clone());
                let condition = move || seen.load(SeqCst).then(|| count(&given.given));
                let future = self.purgatory.wait(&keys, timeout, condition);
                Some(Mine::Future(flag, keys[0], future))
            }
        }
    }

    fn park_racer(
        &self,
        watches: Watches<'_, u32>,
        timeout: Duration,
        condition: impl FnMut() -> bool + Send + 'static,
    ) -> Option<OperationId> {
        let racer = Racer { condition: Box::new(condition), tally: self.tally.clone() };
        match self.purgatory.try_complete_else_watch(BoxedOperation::new(racer), watches, timeout) {
            Ok(ParkResult::Parked(id)) => Some(id),
            Ok(_) => None,
            Err(refused) => panic!("{refused}"),
        }
    }

    fn rise(&self, key: u32, value: u64) {
        self.values[key as usize].fetch_max(value, SeqCst);
        self.purgatory.complete_up_to(&key, value);
    }

    /// Raises a key, for all or for one.
    fn raise(&self, key: u32, random: &mut Rng) {
        let _ = random;
        self.purgatory.check_and_complete(&key);
    }

    /// Does something to what was parked; gives back what is still to be waited for.
    fn act(&self, mine: Mine, random: &mut Rng) -> Option<Mine> {
        match (mine, random.u32(0..200)) {
            (mine, 0) => {
                self.purgatory.cancel_for_key(&random.u32(0..KEYS), "race");
                return Some(mine);
            }
            (Mine::Flag(_, _, id) | Mine::Watermark(_, _, id), 1..20) => {
                self.purgatory.cancel(id, "race");
            }
            (Mine::Flag(_, _, id) | Mine::Watermark(_, _, id), 20..40) => {
                let later = Duration::from_micros(random.u64(0..5_000));
                self.purgatory.reschedule(id, later);
            }
            (Mine::Flag(..) | Mine::Watermark(..), 40..60) => {} // let it expire
            (Mine::Flag(flag, key, _), _) => {
                flag.store(true, SeqCst);
                self.raise(key, random);
            }
            (Mine::Watermark(key, value, _), _) => self.rise(key, value),
            (Mine::Future(_, _, future), 1..80) => {
                count(&self.tally.dropped);
                drop(future);
            }
            (Mine::Future(flag, key, future), _) => {
                flag.store(true, SeqCst);
                self.raise(key, random);
                return self.poll(future).map(|future| Mine::Future(flag, key, future));
            }
        }
        None
    }

    fn poll(&self, mut future: WaitFuture<()>) -> Option<WaitFuture<()>> {
        match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => {
                self.tally.waited(result);
                None
            }
            Poll::Pending => Some(future),
        }
    }

    /// One thread's part; returns the futures that are left.
    fn race(&self, operations: usize, seed: u64) -> Vec<WaitFuture<()>> {
        let mut random = Rng::with_seed(seed);
        let mut mine = Vec::new();
        for _ in 0..operations {
            mine.extend(self.park(&mut random));
            if random.u32(0..200) == 0 {
                let _counted_as_it_changes =
                    (self.purgatory.stats(), self.purgatory.len(), self.purgatory.watched());
            }
            if mine.len() >= 30 {
                let one = mine.swap_remove(random.usize(0..mine.len()));
                mine.extend(self.act(one, &mut random));
            }
        }
        let future = |mine| if let Mine::Future(_, _, future) = mine { Some(future) } else { None };
        mine.into_iter().filter_map(future).collect()
    }
}

/// Parks, completes, raises, cancels, drops and lets expire, then shuts down with operations
/// parked: each ends exactly once, no value is lost, and nothing is left.
#[test]
fn every_operation_ends_exactly_once_whatever_races() {
    let total = usize::try_from(effort(OPERATIONS)).unwrap();
    let seeds = number("STRESS_SEED").unwrap_or(0) * THREADS as u64;
    let timer = SystemTimer::builder().workers(2).build().unwrap();
    let ring = &Ring {
        purgatory: Purgatory::builder("stress")
            .timer(&timer)
            .recheck_every(RECHECK)
            .build()
            .unwrap(),
        tally: Arc::default(),
        values: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
    };
    ring.purgatory.times(); // counted from here on
    let left: Vec<_> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..THREADS as u64)
            .map(|seed| scope.spawn(move || ring.race(total / THREADS, seeds + seed)))
            .collect();
        racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
    });
    for _ in 0..10 {
        count(&ring.tally.operations);
        let (condition, tally) = (Box::new(|| false), ring.tally.clone());
        let forever = BoxedOperation::new(Racer { condition, tally });
        let parked = ring.purgatory.try_complete_else_watch(forever, &[1, 2], Timeout::Never);
        assert!(matches!(parked, Ok(ParkResult::Parked(_))));
    }
    ring.purgatory.shutdown(Duration::from_secs(60));
    timer.shutdown(Duration::MAX); // runs what had expired
    for future in left {
        assert!(ring.poll(future).is_none(), "a future that nothing will ever wake");
    }

    let tally = &ring.tally;
    println!("{tally:?}");
    let of = |counters: &[&AtomicUsize]| counters.iter().map(|c| c.load(SeqCst)).sum::<usize>();
    let ends = [&tally.completed, &tally.expired, &tally.cancelled, &tally.shut_down];
    let waits = [&tally.taken, &tally.dropped];
    assert_eq!(of(&ends) + of(&waits), of(&[&tally.operations]));
    let _ = &tally.unclaimed;
    let seen = ends.iter().chain(&waits).all(|counter| of(&[counter]) > 0);
    assert!(seen, "an outcome never seen");
    let purgatory = &ring.purgatory;
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
    let stats = purgatory.stats();
    assert_eq!(stats.parked_total, stats.completed + stats.expired + stats.cancelled);
    assert_eq!(stats.panics, 0);
    let times = purgatory.times();
    let timed = [&times.completed, &times.expired, &times.cancelled, &times.lateness];
    let ended = [stats.completed, stats.expired, stats.cancelled, stats.expired];
    assert_eq!(timed.map(timer_core::TimeHistogram::count), ended);
}

/// All memory is counted, thread by thread, so the clock is turned by hand: a reaper's and a
/// worker's could not be. Memory allocated on one thread and freed on another cancels out in the
/// sum.
#[test]
fn memory_is_back_where_it_started() {
    let (bytes, all) = (AtomicI64::new(0), AtomicU64::new(0));
    let counted = |work: &mut dyn FnMut()| {
        let info = allocation_counter::measure(work);
        bytes.fetch_add(info.bytes_current, SeqCst);
        all.fetch_add(info.bytes_total, SeqCst);
    };
    counted(&mut || {
        let timer = ManualTimer::new();
        let ring = Ring {
            purgatory: Purgatory::builder("memory").timer(&timer).build().unwrap(),
            tally: Arc::default(),
            values: (0..KEYS).map(|_| AtomicU64::new(0)).collect(),
        };
        let running = AtomicUsize::new(THREADS);
        std::thread::scope(|scope| {
            for seed in 0..THREADS as u64 {
                let (ring, running, counted) = (&ring, &running, &counted);
                scope.spawn(move || {
                    counted(&mut || drop(ring.race(25_000, seed)));
                    running.fetch_sub(1, SeqCst);
                });
            }
            while running.load(SeqCst) > 0 {
                timer.advance(Duration::from_micros(100));
            }
        });
        ring.purgatory.shutdown(Duration::from_secs(60));
    });
    let (bytes, all) = (bytes.load(SeqCst), all.load(SeqCst));
    println!("{all} bytes were allocated, {bytes} of them are left");
    assert!(all > 10_000_000 && bytes.abs() < 100_000, "{bytes} of {all} bytes are left");
}
