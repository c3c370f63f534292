//! Single flight: one loads, and the next in line takes a failed load over.

use std::{sync::Arc, task::Poll};

use timer_core::ManualTimer;

use super::{MS, SECOND, by_hand, guide::single_flight::Flights, nothing_is_left, poll};

fn flights() -> (ManualTimer, Flights) {
    let (timer, waits) = by_hand();
    (timer, Flights { values: Arc::default(), waits })
}

/// What a wait that is over came to: a value, or the right to load it.
macro_rules! over {
    ($wait:expr) => {
        match poll($wait) {
            Poll::Ready(turn) => turn.unwrap(),
            Poll::Pending => panic!("it still waits"),
        }
    };
}

#[test]
fn all_that_wait_get_the_value_and_later_ones_too() {
    let (_timer, flights) = flights();
    let load = over!(&mut flights.get(1)).unwrap_err();
    let mut waits = [(); 3].map(|()| flights.get(1));
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    load.loaded(100);
    assert!(waits.iter_mut().all(|wait| over!(wait).ok() == Some(100)));
    assert_eq!(over!(&mut flights.get(1)).ok(), Some(100));
    assert!(over!(&mut flights.get(2)).is_err());
    nothing_is_left(&flights.waits);
}

#[test]
fn a_failed_load_is_taken_over_by_one() {
    let (_timer, flights) = flights();
    let load = over!(&mut flights.get(1)).unwrap_err();
    let [mut second, mut third] = [(); 2].map(|()| flights.get(1));
    drop(load);
    let load = over!(&mut second).unwrap_err();
    assert!(poll(&mut third).is_pending());
    load.loaded(100);
    assert_eq!(over!(&mut third).ok(), Some(100));
    nothing_is_left(&flights.waits);
}

/// It goes before it learns that the load is its own now.
#[test]
fn a_successor_that_goes_passes_the_load_on() {
    let (_timer, flights) = flights();
    let load = over!(&mut flights.get(1)).unwrap_err();
    let [second, mut third] = [(); 2].map(|()| flights.get(1));
    drop(load);
    assert!(poll(&mut third).is_pending());
    drop(second);
    over!(&mut third).unwrap_err().loaded(100);
    assert_eq!(over!(&mut flights.get(1)).ok(), Some(100));
    nothing_is_left(&flights.waits);
}

#[test]
fn a_load_with_nobody_in_line_is_begun_anew() {
    let (_timer, flights) = flights();
    drop(over!(&mut flights.get(1)));
    assert!(flights.values.lock().unwrap().is_empty());
    over!(&mut flights.get(1)).unwrap_err().loaded(100);
    assert_eq!(over!(&mut flights.get(1)).ok(), Some(100));
}

#[test]
fn a_wait_that_expires_leaves_the_line() {
    let (timer, flights) = flights();
    let load = over!(&mut flights.get(1)).unwrap_err();
    let mut second = flights.get(1);
    timer.advance(5 * SECOND - MS);
    assert!(poll(&mut second).is_pending());
    timer.advance(MS);
    assert!(matches!(poll(&mut second), Poll::Ready(Err(error)) if error.is_expired()));
    load.loaded(100);
    nothing_is_left(&flights.waits);
}
