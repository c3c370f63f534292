//! One deadline for several waits, whichever of them takes the time.

use std::task::Poll;

use purgatory::{Monitor, WaitError};
use timer_core::ManualTimer;

use super::{MS, SECOND, guide::deadline::Produces, poll};

fn produces() -> (ManualTimer, Produces<ManualTimer>) {
    let timer = ManualTimer::new();
    let waits = || purgatory::Purgatory::builder("waits").timer(&timer).build().unwrap();
    let (places, high_watermark) = (Monitor::with(waits(), 0), Monitor::with(waits(), 0));
    (timer.clone(), Produces { timer, places, high_watermark })
}

#[test]
fn the_second_wait_has_what_the_first_left() {
    let (timer, produces) = produces();
    let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
    assert!(poll(&mut produce).is_pending());
    timer.advance(8 * SECOND);
    produces.places.update(|free| *free += 1);
    assert!(poll(&mut produce).is_pending());
    timer.advance(2 * SECOND - MS);
    assert!(poll(&mut produce).is_pending());
    timer.advance(MS);
    assert_eq!(poll(&mut produce), Poll::Ready(Err(WaitError::Expired)));
    assert_eq!(produces.places.read(|free| *free), 1); // given back
}

#[test]
fn the_first_wait_expires_at_the_same_deadline() {
    let (timer, produces) = produces();
    let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
    assert!(poll(&mut produce).is_pending());
    timer.advance(10 * SECOND);
    assert_eq!(poll(&mut produce), Poll::Ready(Err(WaitError::Expired)));
    assert!(produces.high_watermark.purgatory().stats().parked == 0);
}

/// The place was won in time, and its task comes to run only after the deadline.
#[test]
fn a_second_wait_after_the_deadline_looks_once() {
    for (at, ended) in [(7, Ok(7)), (6, Err(WaitError::Expired))] {
        let (timer, produces) = produces();
        let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
        assert!(poll(&mut produce).is_pending());
        produces.places.update(|free| *free += 1);
        produces.high_watermark.update(|high_watermark| *high_watermark = at);
        timer.advance(11 * SECOND);
        assert_eq!(poll(&mut produce), Poll::Ready(ended));
    }
}

#[test]
fn a_client_that_goes_gives_its_place_back() {
    let (_timer, produces) = produces();
    let (mut first, mut second) =
        (Box::pin(produces.produce(7, SECOND)), Box::pin(produces.produce(7, SECOND)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    produces.places.update(|free| *free += 1);
    assert!(poll(&mut first).is_pending()); // it waits for the replicas
    drop(first);
    produces.high_watermark.update(|at| *at = 7);
    assert_eq!(poll(&mut second), Poll::Ready(Ok(7)));
    assert_eq!(produces.places.read(|free| *free), 1);
}
