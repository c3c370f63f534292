//! Intervals, under a hand-turned clock.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use timer_core::{Interval, ManualTimer, MissedTickBehavior, Moment, TimerError};

use crate::support::{HOUR, MS, Woken};

const CLOSED: TimerError = TimerError::Closed;

fn setup() -> (ManualTimer, Arc<Woken>) {
    (ManualTimer::new(), Arc::default())
}

fn tick(interval: &mut Interval, task: &Arc<Woken>) -> Poll<Result<u64, TimerError>> {
    let waker = task.clone().into();
    let due = interval.poll_tick(&mut Context::from_waker(&waker));
    due.map_ok(|due| due.as_nanos() / 1_000_000)
}

/// Advances to so many milliseconds after the timer's beginning.
fn advance_to(timer: &ManualTimer, ms: u64) {
    let moment = Moment::default() + Duration::from_millis(ms);
    timer.advance(moment.since(timer.now()));
}

/// Ticks not taken in time fall out; a wait that is dropped takes none; a reset begins anew.
#[test]
fn an_interval_ticks_each_period_from_the_call() {
    let (timer, task) = setup();
    timer.advance(7 * MS);
    let mut beat = timer.interval(10 * MS).unwrap();
    for due in [17, 27] {
        assert!(tick(&mut beat, &task).is_pending());
        assert!(tick(&mut beat, &task).is_pending());
        timer.advance(10 * MS);
        assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(due)));
    }
    timer.advance(25 * MS); // it is 52
    assert_eq!(
        (task.times(), tick(&mut beat, &task)),
        (2, Poll::Ready(Ok(37)))
    );
    assert!(task.poll(&mut pin!(beat.tick())).is_pending()); // and dropped
    timer.advance(5 * MS);
    assert_eq!(
        task.poll(&mut pin!(beat.tick())),
        Poll::Ready(Ok(Moment::from_nanos(57_000_000)))
    );
    beat.reset();
    timer.advance(7 * MS);
    beat.reset();
    assert!(tick(&mut beat, &task).is_pending());
    timer.advance(9 * MS);
    assert_eq!((task.times(), tick(&mut beat, &task)), (3, Poll::Pending));
    timer.advance(MS);
    assert_eq!(
        (task.times(), tick(&mut beat, &task)),
        (4, Poll::Ready(Ok(74)))
    );
}

/// (The rule, and the ticks that follow: when each was due.) The tick of 10 is taken at 35.
#[test]
fn missed_ticks_follow_the_rule_that_is_set() {
    use MissedTickBehavior::{Burst, Delay, Skip};
    let table = [
        (Skip, [40, 50, 60]),
        (Delay, [45, 55, 65]),
        (Burst, [20, 30, 40]),
    ];
    for (rule, expected) in table {
        let (timer, task) = setup();
        let mut beat = timer.interval(10 * MS).unwrap();
        assert_eq!(beat.missed_tick_behavior(), Skip);
        beat.set_missed_tick_behavior(rule);
        timer.advance(35 * MS);
        assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(10)), "{rule:?}");
        for due in expected {
            // Never early; those of a burst are due already.
            let mut taken = tick(&mut beat, &task);
            assert_eq!(taken.is_ready(), rule == Burst && due < 40, "{rule:?}");
            if taken.is_pending() {
                advance_to(&timer, due - 1);
                assert!(tick(&mut beat, &task).is_pending(), "{rule:?}");
                timer.advance(MS);
                taken = tick(&mut beat, &task);
            }
            assert_eq!(taken, Poll::Ready(Ok(due)), "{rule:?}");
        }
    }
}

/// Less than 5 ms late is a wake-up; from then on the beat shifts.
#[test]
fn delay_rule_shifts_the_beat_by_late_ticks_alone() {
    let (timer, task) = setup();
    let mut beat = timer.interval(10 * MS).unwrap();
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for (at, due) in [(10, 10), (24, 20), (35, 30), (45, 45), (59, 55), (70, 65)] {
        advance_to(&timer, at);
        assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(due)), "at {at}");
    }
    timer.advance(9 * MS);
    assert!(tick(&mut beat, &task).is_pending());
    timer.advance(MS);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(80)));
}

#[test]
fn burst_rule_takes_up_every_tick_of_a_long_pause() {
    let (timer, task) = setup();
    let mut beat = timer.interval(MS).unwrap();
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    timer.advance(1000 * MS);
    for due in 1..=1000 {
        assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(due)));
    }
    assert!(tick(&mut beat, &task).is_pending());
}

#[test]
fn new_period_counts_from_the_next_tick() {
    let (timer, task) = setup();
    let mut beat = timer.interval(10 * MS).unwrap();
    assert!(tick(&mut beat, &task).is_pending());
    assert_eq!(beat.set_period(Duration::ZERO), Err(TimerError::ZeroPeriod));
    assert_eq!(beat.period(), 10 * MS);
    beat.set_period(25 * MS).unwrap();
    for due in [10, 35, 60] {
        advance_to(&timer, due - 1);
        assert!(tick(&mut beat, &task).is_pending());
        timer.advance(MS);
        assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(due)));
    }
    // A reset counts by it at once.
    beat.set_period(5 * MS).unwrap();
    beat.reset();
    timer.advance(5 * MS);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(65)));
}

#[test]
fn interval_resets_to_now_later_and_a_moment() {
    let (timer, task) = setup();
    let mut beat = timer.interval(10 * MS).unwrap();
    beat.reset_immediately(); // nothing waits for a tick yet
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(0)));
    assert!(tick(&mut beat, &task).is_pending());
    timer.advance(3 * MS);
    beat.reset_immediately();
    timer.advance(Duration::ZERO);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(3)));
    beat.reset_after(4 * MS);
    timer.advance(4 * MS);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(7)));
    beat.reset_at(Moment::from_nanos(20_000_000));
    timer.advance(13 * MS);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(20)));
    assert!(tick(&mut beat, &task).is_pending());
    beat.reset_at(Moment::NEVER);
    timer.advance(HOUR);
    assert!(tick(&mut beat, &task).is_pending());
    beat.reset_at(Moment::default()); // in the past
    timer.advance(Duration::ZERO);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(0)));
}

#[test]
fn an_interval_of_a_closed_timer_is_an_error() {
    let (timer, task) = setup();
    assert_eq!(
        timer.interval(Duration::ZERO).unwrap_err(),
        TimerError::ZeroPeriod
    );
    let mut beat = timer.interval(10 * MS).unwrap();
    assert!(tick(&mut beat, &task).is_pending());
    timer.pass(10 * MS);
    timer.shutdown(Duration::MAX);
    assert_eq!(
        (task.times(), tick(&mut beat, &task)),
        (1, Poll::Ready(Ok(10)))
    ); // it was due
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Err(CLOSED)));
}
