//! Moments; the end of a clock's time, and deadlines beyond it.

use crate::support::*;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[test]
fn no_manual_clock_shows_never() {
    let timer = ManualTimer::new();
    let (send, fired) = mpsc::channel::<()>();
    let scheduled = timer.schedule_at(Moment::NEVER, move || drop(send));
    scheduled.unwrap();
    let mut never = timer.sleep_until(Moment::NEVER);
    let mut far = timer.sleep(580 * YEAR);
    assert!(poll(&mut never).is_pending() && poll(&mut far).is_pending());
    // Time never reaches `NEVER`, however far and however often the clock is advanced.
    timer.advance(Duration::MAX);
    timer.pass(Duration::MAX);
    timer.advance(SECOND);
    assert!(timer.now() < Moment::NEVER && timer.clock().now() < Moment::NEVER);
    assert!(poll(&mut never).is_pending() && !never.is_due());
    assert_eq!(fired.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert_eq!(over(&mut far), Ok(()));
    assert!(!timer.advance_to_next(), "nothing more comes");
}

/// A clock's nanoseconds end in the year 584; ticks do not.
#[test]
fn deadline_beyond_the_clocks_time_is_never() {
    for years in [585, 600, 690, 1000, 100_000] {
        let timer = ManualTimer::new();
        timer.schedule(years * YEAR, || unreachable!()).unwrap();
        assert_eq!(timer.next_due_in(), None, "{years} years");
        assert!(!timer.advance_to_next(), "{years} years");
        assert_eq!(timer.now(), Moment::default());
        assert_eq!(timer.len(), 1, "it is pending, and can be cancelled");
    }
}

#[test]
fn deadlines_of_the_last_years_are_exact() {
    for years in [500, 556, 557, 558, 570, 580, 584] {
        let timer = ManualTimer::new();
        let (send, fired) = mpsc::channel();
        let clock = timer.clock();
        let scheduled = timer.schedule(years * YEAR, move || send.send(clock.now()).unwrap());
        scheduled.unwrap();
        timer.advance(years * YEAR - MS);
        assert!(fired.try_recv().is_err(), "{years} years: early");
        timer.advance(MS);
        assert_eq!(fired.try_recv(), Ok(Moment::default() + years * YEAR));
    }
}

#[test]
fn moments_add_and_subtract_without_overflow() {
    let moment = Moment::from_nanos(7);
    assert_eq!((moment + MS).as_nanos(), 1_000_007);
    assert_eq!((moment + MS).since(moment), MS);
    assert_eq!(moment.since(moment + MS), Duration::ZERO);
    assert_eq!(moment + Duration::MAX, Moment::NEVER);
    assert_eq!(Moment::NEVER + MS, Moment::NEVER);
    assert!(Moment::default() < moment && moment < Moment::NEVER);
    assert_eq!(size_of::<Moment>(), 8);
}

/// Users' structs hold timers, so their `{:?}` must not be a page of the timer's fields.
#[test]
fn debug_names_the_time_alone() {
    let timer = ManualTimer::new();
    timer.advance(MS);
    assert_eq!(
        format!("{timer:?}"),
        "ManualTimer { now: Moment(1000000), .. }"
    );
    let plain: Timer = timer.clone().into();
    assert_eq!(format!("{plain:?}"), "Timer { .. }");
    let sleep = timer.sleep(MS);
    assert_eq!(
        format!("{sleep:?}"),
        "Sleep { deadline: Moment(2000000), .. }"
    );
    let beat = timer.interval(MS).unwrap();
    assert_eq!(
        format!("{beat:?}"),
        "Interval { next: Moment(2000000), .. }"
    );
}
