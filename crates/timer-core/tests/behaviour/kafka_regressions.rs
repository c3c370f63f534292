//! Faults of Kafka's timer that the wheel here does not have. They have no numbers in Kafka's
//! tracker.

use crate::support::*;

const MS: u64 = 1_000_000;

/// Returns the time at which the timer fires a task that is started at `start_ns`.
fn fires_at(tick_ms: u64, start_ns: u64, delay_ms: u64) -> u64 {
    let tick = TickLength::new(Duration::from_millis(tick_ms)).unwrap();
    let timer = ManualTimer::with(tick, WheelSize::KAFKA);
    timer.advance(Duration::from_nanos(start_ns));
    let (clock, (send, fired)) = (timer.clock(), mpsc::channel());
    let task = move || send.send(clock.now_ns()).unwrap();
    let scheduled = timer.schedule(Duration::from_millis(delay_ms), task);
    scheduled.unwrap();
    while timer.advance_to_next() {}
    fired.try_recv().unwrap()
}

/// Kafka rounds the clock and the bucket of a deadline down: a task fires up to a tick too early.
/// Here deadlines round up: the tick makes a task late, never early.
#[test]
fn a_rounded_deadline_is_never_early() {
    let start_ns = 3_980_000; // 3.98 ms
    for tick_ms in [1, 10] {
        for delay_ms in 1..=200 {
            let asked_ns = start_ns + delay_ms * MS;
            let fires_ns = fires_at(tick_ms, start_ns, delay_ms);
            let is_in_time = (asked_ns..asked_ns + tick_ms * MS).contains(&fires_ns);
            assert!(is_in_time, "{delay_ms}: {fires_ns}");
        }
    }
}

/// The spans of Kafka's levels are powers of 20 in a `long`, and wrap from 20^15 on. A delay of
/// 20^14 ms or more lands in a bucket that is due at once, which puts the task back into itself,
/// while the reaper holds the timer's lock. Here every `u64` has its level.
#[test]
fn a_delay_beyond_kafkas_levels_wedges_nothing() {
    for far in [20_u64.pow(14), 1 << 61] {
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

/// Kafka adds the longest delay to the clock; the sum overflows, and the delay fires at once. Here
/// it saturates.
#[test]
fn the_longest_delay_does_not_fire_at_once() {
    let timer = ManualTimer::new();
    timer.advance(Duration::from_millis(1));
    let task = Arc::new(());
    let held = task.clone();
    timer.schedule(Duration::MAX, move || drop(held)).unwrap();
    timer.advance(Duration::from_secs(100 * 365 * 86_400));
    assert_eq!(Arc::strong_count(&task), 2, "still pending");
}

/// Kafka's wheel learns the time only from buckets that fall due. After an idle second its time is
/// a second old: a delay of 0 goes into a coarse bucket, and is handed down through another (2 to 4
/// ms with the wake-ups of its reaper and executor). Here callers tell the wheel the time.
#[test]
fn after_idling_a_delay_of_nothing_is_not_handed_down() {
    let timer = ManualTimer::with(TickLength::MILLISECOND, WheelSize::KAFKA);
    let shards = timer.driver().shards(1, (), |(), plan| plan.wheel());
    let mut ours = shards.lock(0);
    ours.catch_up(1000);
    ours.insert(1000, ()).unwrap();
    assert_eq!(ours.next_due(), Some(1000), "its own bucket");
    assert_eq!(ours.advance(1000, 1, |due| due.take()).fired, 1);
}
