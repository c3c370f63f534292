//! A `DelayQueue` beside a map (feature `tokio`). In half of the runs the clock moves as it is
//! read. In the others deadlines are known exactly, so their order is compared as well. The timer
//! is a task of a one-threaded runtime with a paused clock, so a seed always makes the same run.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use timer_core::{DelayQueue, Expired, TaskId, TickLength, TimerError};
use tokio::time::{Instant, sleep};

use crate::{
    effort::effort,
    on_stepped_clock::{SteppedClock, on_paused_time},
    support::{HOUR, MS, SECOND, Woken},
};

const TICK: TickLength = TickLength::MILLISECOND;

/// The timer looks at its clock at least this often, since the clock may have made a step.
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// The longest time from a deadline to the wake-up for it: the timer's own bound, its tick, the
/// runtime's tick, and the part of a tick by which these differ.
const LATE_MAX: Duration = Duration::from_millis(8);

/// A value in the queue.
struct Kept {
    key: TaskId,
    /// The deadline counts from a read of the clock between two known moments.
    due_ns_min: u64,
    due_tick_max: u64,
    /// The runtime's time by which a waiting owner has been woken at the latest.
    woken_at: Instant,
}

/// A last poll that yielded no value, with the number of its task's wake-ups by then.
struct Waits {
    woken: usize,
    was_pending: bool,
}

struct Model {
    random: Rng,
    clock: SteppedClock,
    queue: DelayQueue<u64>,
    owner: Arc<Woken>,
    kept: BTreeMap<u64, Kept>,
    /// Keys that the queue no longer has.
    gone: Vec<TaskId>,
    waits: Option<Waits>,
    /// Whether the clock moves as it is read.
    has_steps: bool,
    has_grace: bool,
    /// Whether the queue is empty most of the time.
    holds_few: bool,
    next_value: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let has_steps = random.bool();
        let has_grace = random.u8(0..4) == 0;
        let holds_few = random.bool();
        let mut clock = SteppedClock::new();
        clock.sleep_max = has_steps.then_some(SLEEP_MAX);
        let mut queue = DelayQueue::new(&clock.timer(|builder| builder));
        if has_grace {
            queue = queue.grace(100 * MS);
        }
        Model {
            random,
            clock,
            queue,
            owner: Woken::task(),
            kept: BTreeMap::new(),
            gone: Vec::new(),
            waits: None,
            has_steps,
            has_grace,
            holds_few,
            next_value: 0,
        }
    }

    /// Sets how far the clock moves before each of its next reads: mostly not at all, or about a
    /// tick.
    fn set_steps(&mut self) {
        if !self.has_steps {
            return;
        }
        let mut steps = [Duration::ZERO; 6];
        for step in &mut steps {
            *step = match self.random.u8(0..16) {
                0..8 => Duration::ZERO,
                8..15 => Duration::from_nanos(self.random.u64(0..1_200_000)),
                _ => MS * self.random.u32(0..300),
            };
        }
        self.clock.step(&steps);
    }

    /// Returns a delay: none, short, long, or for ever.
    fn delay(&mut self) -> Duration {
        match self.random.u8(0..16) {
            0 | 1 => Duration::ZERO,
            2..10 => Duration::from_micros(self.random.u64(0..5_000)),
            10..14 => Duration::from_micros(self.random.u64(0..5_000_000)),
            14 if !self.has_steps => MS * self.random.u32(0..80_000),
            _ => Duration::MAX,
        }
    }

    /// Sets or moves a value, by a call that counts its deadline from now.
    fn set(
        &mut self,
        value: u64,
        delay: Duration,
        set: impl FnOnce(&mut DelayQueue<u64>) -> TaskId,
    ) {
        let due_ns_min = self.clock.peek_ns().saturating_add(nanos(delay));
        let key = set(&mut self.queue);
        let now_ns = self.clock.peek_ns();
        let due_tick_max = match delay {
            Duration::ZERO => TICK.round_down(now_ns),
            _ => TICK.deadline(now_ns, delay),
        };
        let kept = Kept {
            key,
            due_ns_min,
            due_tick_max,
            woken_at: Instant::now() + delay.min(100 * HOUR) + LATE_MAX,
        };
        self.kept.insert(value, kept);
    }

    fn insert(&mut self) {
        let value = self.next_value;
        self.next_value += 1;
        let delay = self.delay();
        self.set(value, delay, |queue| {
            queue.insert(value, delay).expect("it is open")
        });
    }

    fn pick(&mut self) -> Option<(u64, TaskId)> {
        let nth = self.random.usize(0..self.kept.len().max(1));
        let (value, kept) = self.kept.iter().nth(nth)?;
        Some((*value, kept.key))
    }

    fn reset(&mut self) {
        let Some((value, key)) = self.pick() else {
            return;
        };
        let delay = self.delay();
        self.set(value, delay, |queue| {
            assert_eq!(queue.get_mut(&key).copied(), Some(value));
            assert!(queue.reset(&key, delay));
            key
        });
    }

    fn remove(&mut self) {
        let Some((value, key)) = self.pick() else {
            return;
        };
        self.kept.remove(&value);
        self.gone.push(key);
        assert_eq!(self.queue.get(&key), Some(&value));
        assert_eq!(self.queue.remove(&key), Some(value));
    }

    /// Checks that the key of a value that is gone names no value.
    fn touch_gone(&mut self) {
        if let Some(key) = self.random.choice(&self.gone) {
            assert!(!self.queue.reset(key, MS) && self.queue.get(key).is_none());
            assert_eq!(self.queue.remove(key), None);
        }
    }

    fn first_due_tick(&self) -> Option<u64> {
        self.kept.values().map(|kept| kept.due_tick_max).min()
    }

    /// Checks the queue's next time after a step, in runs in which the clock moves only between
    /// steps.
    fn check_time(&mut self) {
        let Some(due_tick) = self.first_due_tick() else {
            assert_eq!(self.queue.next_due_in(), None);
            return;
        };
        let due_ns = due_tick.saturating_mul(1_000_000);
        let until = Duration::from_nanos(due_ns.saturating_sub(self.clock.peek_ns()));
        let due_in = self.queue.next_due_in().expect("it holds values");
        assert!(self.has_grace || due_in <= until, "{due_in:?}");
    }

    /// Polls as the owner, again at once if the queue woke it.
    fn poll_once(&mut self) -> Poll<Option<Result<Expired<u64>, TimerError>>> {
        let waker = self.owner.clone().into();
        loop {
            let woken = self.owner.times();
            let polled = self.queue.poll_expired(&mut Context::from_waker(&waker));
            if polled.is_ready() || self.owner.times() == woken {
                return polled;
            }
        }
    }

    fn poll(&mut self) {
        let before = TICK.round_down(self.clock.peek_ns());
        self.waits = None;
        let polled = self.poll_once();
        let was_pending = polled.is_pending();
        match polled {
            Poll::Ready(Some(expired)) => {
                let Expired { key, value, .. } = expired.expect("it is open");
                let first = self.first_due_tick();
                let kept = self.kept.remove(&value).expect("a value comes out once");
                assert_eq!(kept.key, key);
                let is_first = first == Some(kept.due_tick_max);
                assert!(is_first || self.has_steps, "{value} is out of order");
                self.gone.push(key);
                assert!(kept.due_ns_min <= self.clock.peek_ns(), "{value} is early");
                return;
            }
            Poll::Ready(None) => assert!(self.kept.is_empty(), "it is not empty"),
            Poll::Pending => {
                assert!(!self.kept.is_empty(), "it is empty");
                let is_later = |kept: &Kept| kept.due_tick_max > before;
                assert!(self.has_grace || self.kept.values().all(is_later), "late");
            }
        }
        let woken = self.owner.times();
        self.waits = Some(Waits { woken, was_pending });
    }

    /// Runs the timer's task for a while of the runtime's time.
    async fn run(&mut self, by: Duration) {
        sleep(by).await;
        let is_due = |kept: &Kept| kept.woken_at <= Instant::now();
        // In a grace period due values wait; `finish` shows that the period ends.
        if !self.has_grace && self.kept.values().any(is_due) {
            assert!(
                !self.still_waits(),
                "a value is due: the owner was not woken"
            );
        }
    }

    /// Returns whether the owner has not been woken since a poll that yielded no value.
    fn still_waits(&self) -> bool {
        let is_now = |waits: &Waits| self.owner.times() == waits.woken;
        self.waits.as_ref().is_some_and(is_now)
    }

    async fn step(&mut self) {
        self.set_steps();
        match self.random.u8(0..100) {
            0..20 if self.holds_few && !self.kept.is_empty() => self.remove(),
            0..30 => self.insert(),
            30..45 => self.remove(),
            45..53 => self.reset(),
            53..55 => self.touch_gone(),
            55..80 => self.poll(),
            80..98 => {
                let us_max = match self.random.u8(0..16) {
                    0 if !self.has_steps => 60_000_000,
                    1..4 => 40_000,
                    _ => 2_000,
                };
                let by = Duration::from_micros(self.random.u64(0..us_max));
                self.run(by).await;
            }
            _ => {
                self.queue.clear();
                self.gone.extend(self.kept.values().map(|kept| kept.key));
                self.kept.clear();
            }
        }
        assert_eq!(self.queue.len(), self.kept.len());
        if !self.has_steps {
            self.check_time();
        }
        let waited_for_a_value = self.waits.as_ref().is_some_and(|waits| waits.was_pending);
        if self.kept.is_empty() && waited_for_a_value {
            assert!(!self.still_waits(), "it is empty: the owner was not woken");
        }
    }

    /// Takes out all values that are ever due, polling only after wake-ups.
    async fn finish(mut self) {
        let is_some_time = |kept: &Kept| kept.due_tick_max < u64::MAX / 2;
        let mut runs = 0;
        while self.kept.values().any(is_some_time) {
            if !self.still_waits() {
                self.poll();
                continue;
            }
            self.run(SECOND).await;
            runs += 1;
            assert!(runs < 100, "values are left: {}", self.kept.len());
        }
    }
}

fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

#[test]
fn a_queue_by_a_stepping_clock_agrees_with_a_map() {
    for seed in 0..effort(400) {
        println!("seed {seed}"); // shown when it fails
        on_paused_time(async {
            let mut model = Model::new(seed);
            for _ in 0..100 {
                model.step().await;
            }
            model.finish().await;
        });
    }
}
