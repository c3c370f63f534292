//! Timers whose clock moves between two reads of one call (feature `tokio`).

use tokio::time::sleep;

use crate::on_stepped_clock::{SteppedClock, on_paused_time};
use crate::support::*;

const NONE: Duration = Duration::ZERO;

/// The queue sleeps until a tick at which it no longer has a value. One poll reads the clock twice;
/// the tick comes between these reads, and the poll finds the queue empty.
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
        sleep(10 * MS).await;
        assert_eq!(task.times(), 1);
    });
}

/// Runs a session. The thread that reads its heartbeats takes half a bound after a pause.
async fn heartbeat_after_a_pause_at_read(number: usize, is_inline: bool) -> bool {
    let bound = 100 * MS;
    let clock = SteppedClock::new();
    let timer = clock.timer(|builder| {
        let builder = builder.grace(bound);
        if is_inline { builder.inline() } else { builder }
    });
    let (send, expired) = mpsc::channel();
    let sessions = timer.with_handler(move |session: &str| send.send(session).unwrap());
    let kept_alive = sessions.schedule(SECOND, "kept alive").unwrap();
    sessions.schedule(SECOND, "gone").unwrap();
    // Other work, so that a round reads the clock the greatest number of times.
    let beat = timer
        .schedule_at_fixed_rate(30 * MS, 30 * MS, || ())
        .unwrap();
    sleep(35 * MS).await;

    // 1. The process is stopped just before one of the next reads, for longer than the session.
    let paused = 1600 * MS;
    let mut steps = vec![NONE; number];
    steps.push(paused);
    clock.step(&steps);
    let until_ns = clock.peek_ns() + paused.as_nanos() as u64;
    let mut waits = 0;
    while clock.peek_ns() < until_ns {
        sleep(5 * MS).await;
        waits += 1;
        if waits == 50 {
            return false; // there are fewer reads
        }
    }
    // 2. The heartbeat that came meanwhile is read, and the session lives on.
    sleep(bound / 2).await;
    assert!(
        sessions.reschedule(kept_alive, SECOND),
        "read {number}, inline: {is_inline}"
    );
    // 3. The other session expires.
    sleep(2 * bound).await;
    assert_eq!(expired.try_iter().collect::<Vec<_>>(), ["gone"]);
    assert_eq!(
        timer.stats().graces,
        1,
        "read {number}, inline: {is_inline}"
    );
    assert!(beat.cancel());
    true
}

#[test]
fn a_pause_at_any_read_of_the_reaper_is_noticed() {
    for is_inline in [false, true] {
        let mut number = 0;
        let mut is_reached = true;
        while is_reached {
            on_paused_time(async {
                is_reached = heartbeat_after_a_pause_at_read(number, is_inline).await;
            });
            number += 1;
        }
        assert!(number > 20, "{number} reads");
    }
}
