//! Intervals, under a manual clock.

use crate::support::*;

/// Ticks that are not taken in time are skipped; a dropped wait takes no tick; a reset begins anew.
#[test]
fn an_interval_ticks_each_period_from_the_call() {
    let (timer, task) = manual();
    timer.advance(7 * MS);
    let mut beat = timer.interval(10 * MS).unwrap();
    for due in [17, 27] {
        assert!(tick(&mut beat, &task).is_pending());
        assert!(tick(&mut beat, &task).is_pending());
        timer.advance(10 * MS);
        assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(due)));
    }
    timer.advance(25 * MS); // at 52 ms
    assert_eq!(task.times(), 2);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(37)));
    assert!(task.poll(&mut pin!(beat.tick())).is_pending()); // and the wait is dropped
    timer.advance(5 * MS);
    let expected = Poll::Ready(Ok(Moment::from_nanos(57_000_000)));
    assert_eq!(task.poll(&mut pin!(beat.tick())), expected);
    beat.reset();
    timer.advance(7 * MS);
    beat.reset();
    assert!(tick(&mut beat, &task).is_pending());
    timer.advance(9 * MS);
    assert_eq!((task.times(), tick(&mut beat, &task)), (3, Poll::Pending));
    timer.advance(MS);
    assert_eq!(task.times(), 4);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(74)));
}

#[test]
fn an_interval_of_a_closed_timer_is_an_error() {
    let (timer, task) = manual();
    let expected = TimerError::ZeroPeriod;
    assert_eq!(timer.interval(Duration::ZERO).unwrap_err(), expected);
    let mut beat = timer.interval(10 * MS).unwrap();
    assert!(tick(&mut beat, &task).is_pending());
    timer.pass(10 * MS);
    timer.shutdown(Duration::MAX);
    assert_eq!(task.times(), 1);
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Ok(10))); // the tick was due
    assert_eq!(tick(&mut beat, &task), Poll::Ready(Err(TimerError::Closed)));
}
