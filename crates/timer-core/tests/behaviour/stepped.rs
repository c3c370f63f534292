//! Timers by a clock that moves between two reads of one call (feature `tokio`).

use std::{
    task::{Context, Poll},
    time::Duration,
};

use timer_core::DelayQueue;

use crate::{
    on_stepped_clock::{SteppedClock, on_paused_time},
    support::{MS, Woken},
};

const NONE: Duration = Duration::ZERO;

/// The queue sleeps until a tick at which it no longer has a value. That tick comes between the two
/// reads of the clock by one poll, which finds the queue empty.
#[test]
fn a_poll_of_an_empty_queue_always_leaves_its_waker() {
    on_paused_time(async {
        let clock = SteppedClock::new();
        let timer = clock.timer(|builder| builder);
        let task = Woken::task();
        let mut queue = DelayQueue::new(&timer);
        let removed = queue.insert(0, MS).unwrap();
        queue.remove(&removed).unwrap();
        clock.step(&[NONE, MS]);
        let waker = task.clone().into();
        let polled = queue.poll_expired(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Ready(None));
        queue.insert(1, MS).unwrap();
        tokio::time::sleep(10 * MS).await;
        assert_eq!(task.times(), 1);
    });
}
