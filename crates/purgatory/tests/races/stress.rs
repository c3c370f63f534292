//! Many operations of every kind on a real timer, parked by four threads over few keys: events,
//! expiries, cancels and dropped futures race, while the clock now and then jumps ahead. The
//! outcomes are counted, and each expiry is compared with the clock. The test parks 100 000
//! operations times `TEST_EFFORT`; `STRESS_SEED` changes them. No test relies on a sleep.

use fastrand::Rng;

use crate::effort::{effort, number};
use crate::support::*;

/// The number of operations; `TEST_EFFORT` multiplies it.
const OPERATIONS: u64 = 100_000;
const THREADS: u64 = 4;
const KEYS: u32 = 50;
/// The interval of sweeps; half of the operations wait longer.
const RECHECK: Duration = Duration::from_millis(10);

/// The numbers of operations by outcome. An ending consumes its operation, so the sum shows whether
/// each operation ended once.
#[derive(Debug, Default)]
struct Tally {
    operations: AtomicUsize,
    completed: AtomicUsize,
    expired: AtomicUsize,
    cancelled: AtomicUsize,
    shut_down: AtomicUsize,
    /// Values that futures took, and futures that were dropped.
    taken: AtomicUsize,
    dropped: AtomicUsize,
    /// The number of operations that expired too early.
    early: AtomicUsize,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, SeqCst);
}

/// The moment before which an operation must not expire, in nanoseconds.
#[derive(Clone, Debug)]
struct Due(Arc<AtomicU64>);

impl Tally {
    fn ended(&self, outcome: &Outcome, due: &Due, now: Moment) {
        count(match outcome {
            Outcome::Completed => &self.completed,
            Outcome::Expired => &self.expired,
            Outcome::Cancelled(CancelReason::Shutdown) => &self.shut_down,
            _ => &self.cancelled,
        });
        if *outcome == Outcome::Expired && now.as_nanos() < due.0.load(SeqCst) {
            count(&self.early);
        }
    }

    /// Records the result of a future.
    fn waited(&self, result: Result<(), WaitError>, due: &Due, now: Moment) {
        match result {
            Ok(()) => count(&self.taken),
            Err(WaitError::Expired) => self.ended(&Outcome::Expired, due, now),
            Err(WaitError::Cancelled(reason)) => self.ended(&Outcome::Cancelled(reason), due, now),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The machine's clock, which jumps ahead when a thread says so.
#[derive(Clone, Debug)]
struct Jumps {
    clock: SystemClock,
    ahead_ns: Arc<AtomicU64>,
}

impl Clock for Jumps {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns() + self.ahead_ns.load(SeqCst)
    }

    fn sleep_max(&self) -> Option<Duration> {
        Some(RECHECK)
    }
}

/// The state that all threads share.
#[derive(Clone)]
struct Ring {
    timer: Timer,
    purgatory: Purgatory<u32>,
    tally: Arc<Tally>,
    /// The keys' values, which only advance.
    values: Arc<[AtomicU64]>,
    /// The nanoseconds by which the clock has jumped ahead.
    ahead_ns: Arc<AtomicU64>,
}

/// An operation that its thread has parked and may complete.
struct Mine {
    key: u32,
    condition: Condition,
    held: Held,
    due: Due,
}

enum Condition {
    Flag(Arc<AtomicBool>),
    /// The key has this value.
    Value(u64),
}

enum Held {
    Id(OperationId),
    Future(WaitFuture<()>),
}

impl Ring {
    fn new(timer: &Timer, purgatory: Builder<Purgatory<u32>>, ahead_ns: Arc<AtomicU64>) -> Self {
        let values = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        Ring {
            timer: timer.clone(),
            purgatory: purgatory.timer(timer).build().unwrap(),
            tally: Arc::default(),
            values,
            ahead_ns,
        }
    }

    fn due_after(&self, timeout: Duration) -> Due {
        let due = self.timer.now() + timeout;
        Due(Arc::new(due.as_nanos().into()))
    }

    fn park(&self, random: &mut Rng) -> Option<Mine> {
        count(&self.tally.operations);
        let timeout = Duration::from_micros(random.u64(1..20_000));
        let due = self.due_after(timeout);
        let keys: Vec<u32> = (0..random.usize(1..7))
            .map(|_| random.u32(0..KEYS))
            .collect();
        let flag = Arc::new(AtomicBool::new(random.u32(0..20) == 0));
        let seen = flag.clone();
        let key = keys[0];
        let (condition, held) = match random.u32(0..10) {
            0..4 => {
                let check = move || seen.load(SeqCst);
                let id = self.park_one(Watches::keys(&keys), timeout, &due, check);
                (Condition::Flag(flag), Held::Id(id?))
            }
            4..7 => {
                let mut ahead =
                    |key: &u32| self.values[*key as usize].load(SeqCst) + random.u64(0..5);
                let levels: Vec<_> = keys.iter().map(|key| (*key, ahead(key))).collect();
                let values = self.values.clone();
                let until = levels.clone();
                let at = move |key: u32| values[key as usize].load(SeqCst);
                let reached = move || until.iter().all(|&(key, threshold)| at(key) >= threshold);
                let id = self.park_one(Watches::keys(&keys), timeout, &due, reached);
                (Condition::Value(levels[0].1), Held::Id(id?))
            }
            _ => {
                let condition = move || seen.load(SeqCst).then_some(());
                let future = self.purgatory.wait(&keys, timeout, condition);
                (Condition::Flag(flag), Held::Future(future))
            }
        };
        Some(Mine {
            key,
            condition,
            held,
            due,
        })
    }

    fn park_one(
        &self,
        watches: Watches<'_, u32>,
        timeout: impl Into<Timeout>,
        due: &Due,
        condition: impl FnMut() -> bool + Send + 'static,
    ) -> Option<OperationId> {
        let tally = self.tally.clone();
        let timer = self.timer.clone();
        let due = due.clone();
        let ended = move |outcome| tally.ended(&outcome, &due, timer.now());
        let operation = when(condition, ended);
        self.purgatory.try_park(operation, watches, timeout.into())
    }

    /// Acts on a parked operation; returns it if the thread still has to end it.
    fn act(&self, mine: Mine, random: &mut Rng) -> Option<Mine> {
        match (&mine.held, random.u32(0..200)) {
            (_, 0) => {
                self.purgatory.cancel_for_key(&random.u32(0..KEYS), "race");
                if random.u32(0..10) == 0 {
                    let jump = Duration::from_millis(random.u64(0..40));
                    self.ahead_ns.fetch_add(jump.as_nanos() as u64, SeqCst);
                }
                Some(mine)
            }
            (Held::Id(id), 1..20) => {
                self.purgatory.cancel(*id, "race");
                None
            }
            (Held::Id(id), 20..40) => {
                let later = Duration::from_micros(random.u64(0..5_000));
                self.reschedule(*id, &mine.due, later);
                None
            }
            (Held::Id(_), 40..60) => None, // it expires
            (Held::Future(_), 1..80) => {
                count(&self.tally.dropped);
                None
            }
            _ => {
                self.bring_about(mine.key, &mine.condition);
                self.poll(mine)
            }
        }
    }

    /// Reschedules an operation. During the call, it must not expire before the earlier deadline.
    fn reschedule(&self, id: OperationId, due: &Due, timeout: Duration) {
        let new_ns = (self.timer.now() + timeout).as_nanos();
        let old_ns = due.0.fetch_min(new_ns, SeqCst);
        let is_done = self.purgatory.reschedule(id, timeout);
        due.0.store(if is_done { new_ns } else { old_ns }, SeqCst);
    }

    fn bring_about(&self, key: u32, condition: &Condition) {
        match condition {
            Condition::Flag(flag) => flag.store(true, SeqCst),
            Condition::Value(value) => {
                self.values[key as usize].fetch_max(*value, SeqCst);
            }
        }
        self.purgatory.check_and_complete(&key);
    }

    /// Polls a future; returns it if it is not ready.
    fn poll(&self, mut mine: Mine) -> Option<Mine> {
        let Held::Future(future) = &mut mine.held else {
            return None;
        };
        match poll(future) {
            Poll::Ready(result) => {
                self.tally.waited(result, &mine.due, self.timer.now());
                None
            }
            Poll::Pending => Some(mine),
        }
    }

    /// Does one thread's part; returns the futures that are not ready.
    fn race(&self, operations: u64, seed: u64) -> Vec<Mine> {
        let mut random = Rng::with_seed(seed);
        let mut mine = Vec::new();
        for _ in 0..operations {
            mine.extend(self.park(&mut random));
            if random.u32(0..200) == 0 {
                let purgatory = &self.purgatory; // counted while it changes
                _ = (purgatory.stats(), purgatory.len(), purgatory.watched());
            }
            if mine.len() >= 30 {
                let one = mine.swap_remove(random.usize(0..mine.len()));
                mine.extend(self.act(one, &mut random));
            }
        }
        mine.retain(|one| matches!(one.held, Held::Future(_)));
        mine
    }
}

/// Threads park, signal, complete, cancel, drop and let expire, then the purgatory shuts down: each
/// operation ends exactly once, no value is lost, and nothing remains.
#[test]
fn every_operation_ends_exactly_once_whatever_races() {
    let share = effort(OPERATIONS) / THREADS;
    let seeds = number("STRESS_SEED").unwrap_or(0) * THREADS;
    let clock = Jumps {
        clock: SystemClock::new(),
        ahead_ns: Arc::default(),
    };
    let builder = SystemTimer::builder().clock(clock.clone());
    let timer = builder.workers(2).build().unwrap();
    let builder = Purgatory::builder("stress").recheck_every(RECHECK);
    let ring = &Ring::new(&timer, builder, clock.ahead_ns);
    ring.purgatory.times(); // times are recorded from here on
    let left = race(THREADS, |seed| ring.race(share, seeds + seed));
    let never = ring.due_after(Duration::MAX);
    for _ in 0..10 {
        count(&ring.tally.operations);
        let parked = ring.park_one(Watches::keys(&[1, 2]), NEVER, &never, || false);
        assert!(parked.is_some());
    }
    ring.purgatory.shutdown(MINUTE);
    timer.shutdown(Duration::MAX); // runs callbacks of expired operations
    for future in left.into_iter().flatten() {
        let left = ring.poll(future);
        assert!(left.is_none(), "a future that nothing will ever wake");
    }
    let tally = &ring.tally;
    println!("{tally:?}");
    let ends = [
        &tally.completed,
        &tally.expired,
        &tally.cancelled,
        &tally.shut_down,
        &tally.taken,
        &tally.dropped,
    ];
    let ends = ends.map(|counter| counter.load(SeqCst));
    assert_eq!(ends.iter().sum::<usize>(), tally.operations.load(SeqCst));
    assert!(ends.iter().all(|&count| count > 0), "an outcome never seen");
    assert_eq!(tally.early.load(SeqCst), 0, "expired before their time");
    assert_empty(&ring.purgatory);
    let stats = ring.purgatory.stats();
    let times = ring.purgatory.times();
    assert_eq!(stats.panics, 0);
    assert_eq!(times.completed.count(), stats.completed);
    assert_eq!(times.expired.count(), stats.expired);
    assert_eq!(times.cancelled.count(), stats.cancelled);
    assert_eq!(times.lateness.count(), stats.expired);
}

/// Memory is counted thread by thread, so the timer is manual: the memory of a reaper and of
/// workers could not be counted.
#[test]
fn memory_is_back_where_it_started() {
    let memory = Memory::default();
    memory.count(|| {
        let timer = ManualTimer::new();
        let ring = Ring::new(&timer, Purgatory::builder("memory"), Arc::default());
        let running = AtomicU64::new(THREADS);
        // One more thread lets time pass.
        race(THREADS + 1, |seed| {
            memory.count(|| {
                if seed < THREADS {
                    drop(ring.race(effort(25_000), seed));
                    running.fetch_sub(1, SeqCst);
                    return;
                }
                while running.load(SeqCst) > 0 {
                    timer.advance(Duration::from_micros(100));
                }
            });
        });
        ring.purgatory.shutdown(MINUTE);
    });
    memory.assert_is_back(10_000_000, 100_000);
}
