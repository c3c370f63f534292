//! Faults of Kafka's timer. Each test does the same to Kafka's wheel in small
//! (`KafkaTimer`), where it shows the harm, and to the wheel here, where it does not. They have no
//! numbers in Kafka's tracker.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use timer_core::{Clock, ManualTimer, TickLength, TimingWheel, WheelSize};

const MS: u64 = 1_000_000;

/// One level of Kafka's wheel, and through it the levels above. Milliseconds and slots are Java's
/// `long`s: they round towards zero, and wrap.
struct Level {
    tick: i64,
    now: i64,
    buckets: Vec<Bucket>,
    above: Option<Box<Level>>,
}

#[derive(Clone, Default)]
struct Bucket {
    /// The time at which the bucket is due; `None` when it is not queued.
    due: Option<i64>,
    expirations: Vec<i64>,
}

const SLOTS: i64 = 20;

impl Level {
    fn new(tick: i64, start: i64) -> Self {
        let buckets = vec![Bucket::default(); SLOTS as usize];
        Level {
            tick,
            now: start - start % tick,
            buckets,
            above: None,
        }
    }

    /// Puts a task into a bucket; false when it has expired.
    fn add(&mut self, expiration: i64) -> bool {
        let turn = self.tick.wrapping_mul(SLOTS);
        if expiration < self.now.wrapping_add(self.tick) {
            return false;
        }
        if expiration >= self.now.wrapping_add(turn) {
            let start = self.now;
            return self
                .above
                .get_or_insert_with(|| Box::new(Level::new(turn, start)))
                .add(expiration);
        }
        let slot = expiration / self.tick;
        let bucket = &mut self.buckets[(slot % SLOTS) as usize];
        bucket.due = Some(slot.wrapping_mul(self.tick));
        bucket.expirations.push(expiration);
        true
    }

    fn advance(&mut self, to: i64) {
        if to >= self.now.wrapping_add(self.tick) {
            self.now = to - to % self.tick;
            if let Some(above) = &mut self.above {
                above.advance(self.now);
            }
        }
    }

    /// The earliest queued bucket of this level and those above.
    fn earliest(&mut self) -> Option<&mut Bucket> {
        let here = self
            .buckets
            .iter_mut()
            .filter(|bucket| bucket.due.is_some());
        let above = self.above.iter_mut().filter_map(|above| above.earliest());
        here.chain(above).min_by_key(|bucket| bucket.due)
    }
}

/// Kafka's timer: its clock, the wheel's and the queue of buckets.
struct KafkaTimer {
    wheel: Level,
    clock_ns: u64,
}

/// The result of advancing it.
#[derive(Debug, Default, PartialEq, Eq)]
struct KafkaTurn {
    fired: usize,
    /// Buckets emptied.
    buckets: usize,
}

impl KafkaTimer {
    /// More buckets than any test here has: who empties so many goes round for ever.
    const WEDGED: usize = 1000;

    fn new(tick_ms: i64) -> Self {
        KafkaTimer {
            wheel: Level::new(tick_ms, 0),
            clock_ns: 0,
        }
    }

    fn now_ms(&self) -> i64 {
        (self.clock_ns / MS) as i64
    }

    /// Starts a task; true if it fired at once.
    fn add(&mut self, delay_ms: i64) -> bool {
        let expiration = self.now_ms().wrapping_add(delay_ms);
        !self.wheel.add(expiration)
    }

    /// Empties the buckets that are due, each by putting its tasks where they belong now.
    fn turn(&mut self) -> KafkaTurn {
        let mut turn = KafkaTurn::default();
        let now = self.now_ms();
        while turn.buckets < Self::WEDGED {
            let due = self
                .wheel
                .earliest()
                .filter(|bucket| bucket.due <= Some(now));
            let Some(Bucket {
                due: Some(due),
                expirations,
            }) = due.map(std::mem::take)
            else {
                break;
            };
            turn.buckets += 1;
            self.wheel.advance(due);
            turn.fired += expirations
                .into_iter()
                .filter(|&task| !self.wheel.add(task))
                .count();
        }
        turn
    }
}

/// Returns the time at which Kafka's timer fires a task that is started at `start_ns`.
fn kafka_fires_at(tick_ms: i64, start_ns: u64, delay_ms: i64) -> u64 {
    let mut timer = KafkaTimer::new(tick_ms);
    timer.clock_ns = start_ns;
    let mut fired = timer.add(delay_ms);
    while !fired {
        timer.clock_ns = (timer.clock_ns / MS + 1) * MS;
        fired = timer.turn().fired > 0;
    }
    timer.clock_ns
}

/// Returns the time at which the timer here fires such a task.
fn ours_fires_at(tick_ms: u64, start_ns: u64, delay_ms: u64) -> u64 {
    let tick = TickLength::new(Duration::from_millis(tick_ms)).unwrap();
    let timer = ManualTimer::with(tick, WheelSize::KAFKA);
    timer.advance(Duration::from_nanos(start_ns));
    let (clock, (send, fired)) = (timer.clock(), mpsc::channel());
    let task = move || send.send(clock.now_ns()).unwrap();
    timer
        .schedule(Duration::from_millis(delay_ms), task)
        .unwrap();
    while timer.advance_to_next() {}
    fired.try_recv().unwrap()
}

/// Kafka rounds the clock and the bucket of a deadline down: a task fires up to a tick too early.
/// Here deadlines round up: the tick makes a task late, never early.
#[test]
fn a_rounded_deadline_is_never_early() {
    let start_ns = 3_980_000; // 3.98 ms
    for (tick_ms, early_by_ns) in [(1, 980_000), (10, 9_980_000)] {
        let mut kafka_early_ns = Vec::new();
        for delay_ms in 1..=200 {
            let asked_ns = start_ns + delay_ms * MS;
            let kafka_ns = kafka_fires_at(tick_ms as i64, start_ns, delay_ms as i64);
            kafka_early_ns.extend(
                asked_ns
                    .checked_sub(kafka_ns)
                    .filter(|&early_ns| early_ns > 0),
            );
            let ours_ns = ours_fires_at(tick_ms, start_ns, delay_ms);
            assert!(
                (asked_ns..asked_ns + tick_ms * MS).contains(&ours_ns),
                "{delay_ms}: {ours_ns}"
            );
        }
        assert_eq!(kafka_early_ns.len(), 200, "each of them");
        assert_eq!(kafka_early_ns.into_iter().max(), Some(early_by_ns));
    }
}

/// The spans of Kafka's levels are powers of 20 in a `long`, and from 20^15 on they wrap: a delay
/// of 20^14 ms or more lands in a bucket that is due at once and puts it back into itself, while
/// the reaper holds the timer's lock. Here every `u64` has its level.
#[test]
fn a_delay_beyond_kafkas_levels_wedges_nothing() {
    for far in [20_u64.pow(14), 1 << 61] {
        let mut kafka = KafkaTimer::new(1);
        kafka.add(5);
        assert!(!kafka.add(far as i64));
        kafka.clock_ns = 5 * MS;
        assert_eq!(
            kafka.turn(),
            KafkaTurn {
                fired: 0,
                buckets: KafkaTimer::WEDGED
            }
        );

        let mut ours = TimingWheel::new(WheelSize::KAFKA, 0);
        ours.insert(5, "near").unwrap();
        ours.insert(far, "far").unwrap();
        let mut fired = Vec::new();
        for now in [5, far - 1, far] {
            ours.advance(now, usize::MAX, |task| fired.push((now, task.take())));
        }
        assert_eq!(fired, [(5, "near"), (far, "far")]);
    }
}

/// The longest delay overflows Kafka's sum of it and the clock, and fires at once. Here it
/// saturates.
#[test]
fn the_longest_delay_does_not_fire_at_once() {
    let mut kafka = KafkaTimer::new(1);
    kafka.clock_ns = MS;
    assert!(kafka.add(i64::MAX), "at once, not in 292 million years");

    let timer = ManualTimer::new();
    timer.advance(Duration::from_millis(1));
    let task = Arc::new(());
    let held = task.clone();
    timer.schedule(Duration::MAX, move || drop(held)).unwrap();
    timer.advance(Duration::from_secs(100 * 365 * 86_400));
    assert_eq!(Arc::strong_count(&task), 2, "still pending");
}

/// Kafka's wheel learns the time only from buckets that fall due. After an idle second it believes
/// that it is still then: a delay of nothing goes into a coarse bucket, and is handed down through
/// another (2 to 4 ms with its reaper's and its executor's wake-ups). Here a wheel is told the time
/// by who comes.
#[test]
fn after_idling_a_delay_of_nothing_is_not_handed_down() {
    let mut kafka = KafkaTimer::new(1);
    kafka.clock_ns = 1000 * MS;
    assert!(!kafka.add(0), "not at once");
    assert_eq!(
        kafka.turn(),
        KafkaTurn {
            fired: 1,
            buckets: 2
        }
    );

    let timer = ManualTimer::with(TickLength::MILLISECOND, WheelSize::KAFKA);
    let shards = timer.driver().shards(1, |_, wheel| wheel);
    let mut ours = shards.lock(0);
    ours.catch_up(1000);
    ours.insert(1000, ()).unwrap();
    assert_eq!(ours.next_due(), Some(1000), "its own bucket");
    assert_eq!(ours.advance(1000, 1, |due| due.take()).fired, 1);
}
