//! Errors name the wrong value, and the bound.

use std::{error::Error, io};

use crate::support::*;

#[test]
fn sizes_outside_their_bounds_are_refused() {
    assert!(
        [0, 1, 32_769, 65_538]
            .map(WheelSize::new)
            .iter()
            .all(Result::is_err)
    );
    assert!([2, 32_768].map(WheelSize::new).iter().all(Result::is_ok));
    let size = WheelSize::new(1).unwrap_err();
    assert_eq!(size.to_string(), "1 is not between 2 and 32768");
    let tick = TickLength::new(Duration::from_micros(99)).unwrap_err();
    assert_eq!(tick.to_string(), "99µs is not between 100µs and 86400s");
    let built = |shards| SystemTimer::builder().shards(shards).build();
    assert!(built(256).is_ok() && built(512).is_err());
    let shards = built(3).unwrap_err();
    let expected = "3 shards: not a power of two in 1..=256";
    assert_eq!(shards.to_string(), expected);
    assert!(shards.source().is_none());
}

#[test]
fn a_timer_that_was_not_built_says_why() {
    let thread = BuildError::Thread(io::Error::other("no more threads"));
    assert_eq!(thread.to_string(), "no thread for the timer");
    assert_eq!(thread.source().unwrap().to_string(), "no more threads");
    let odd = SystemTimer::builder().name("a\0b").build().unwrap();
    assert_eq!(odd.name(), "a?b");
}

#[test]
fn a_task_that_was_not_scheduled_leaves_its_reason() {
    let timer = ManualTimer::new();
    let zero = timer
        .schedule_at_fixed_rate(Duration::ZERO, Duration::ZERO, || ())
        .unwrap_err();
    assert_eq!(zero.to_string(), "a period must be above zero");
    timer.shutdown(Duration::MAX);
    let second = Duration::from_secs(1);
    let closed = timer
        .schedule_at_fixed_rate(second, second, || ())
        .unwrap_err();
    assert_eq!(closed, TimerError::Closed);
    let schedule = || -> Result<(), TimerError> {
        timer.schedule(second, || ())?;
        Ok(())
    };
    assert_eq!(schedule(), Err(TimerError::Closed));
    let late = timer
        .with_handler(drop::<u32>)
        .schedule(second, 7)
        .unwrap_err();
    assert_eq!(
        late.to_string(),
        "not scheduled: the timer has been shut down"
    );
    assert_eq!((late.reason, late.into_task()), (TimerError::Closed, 7));
}

/// The timer that is built then has them.
#[test]
fn a_builder_takes_tick_and_size() {
    let tick = TickLength::new(Duration::from_millis(4)).unwrap();
    let timer = system_timer(|builder| builder.tick(tick).wheel_size(WheelSize::KAFKA));
    assert_eq!(timer.tick(), tick);
    let shards = timer.driver().shards(1, (), |(), plan| plan.wheel::<()>());
    let mut wheel = shards.lock(0);
    let far = wheel.now() + 2000;
    wheel.insert(far, ()).unwrap();
    assert_eq!(wheel.level_count(), 3, "levels of 20 slots");
}
