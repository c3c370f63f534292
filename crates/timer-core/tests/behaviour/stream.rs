//! An interval as a stream.
#![cfg(feature = "stream")]

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_core::Stream;
use timer_core::{Interval, ManualTimer, MissedTicks, Timer};

fn next(beat: &mut Interval) -> Poll<Option<u64>> {
    let due_ns = Pin::new(beat).poll_next(&mut Context::from_waker(Waker::noop()));
    due_ns.map(|due_ns| due_ns.map(|due_ns| due_ns / 1_000_000))
}

#[test]
fn an_interval_is_a_stream_of_its_ticks_until_the_timer_is_shut_down() {
    let ms = Duration::from_millis(1);
    let timer = ManualTimer::new();
    let mut beat = timer.interval(10 * ms).unwrap().missed_ticks(MissedTicks::Skip);
    assert_eq!(next(&mut beat), Poll::Pending);
    timer.advance(35 * ms);
    assert_eq!((next(&mut beat), next(&mut beat)), (Poll::Ready(Some(10)), Poll::Pending));
    timer.advance(5 * ms);
    assert_eq!((next(&mut beat), next(&mut beat)), (Poll::Ready(Some(40)), Poll::Pending));
    timer.shutdown();
    assert_eq!(next(&mut beat), Poll::Ready(None));
}
