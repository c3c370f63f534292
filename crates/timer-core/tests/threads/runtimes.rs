//! Sleeps, timeouts and intervals on real threads, driven by tokio and by an executor that only
//! blocks. No test depends on how long anything takes.
#![cfg(not(loom))]

use crate::support::*;

#[test]
fn on_an_executor_that_only_blocks() {
    let (timer, clock) = (SystemTimer::new().unwrap(), SystemClock::new());
    pollster::block_on(async {
        let before_ns = clock.now_ns();
        timer.sleep(3 * MS).await.unwrap();
        assert!(clock.now_ns() - before_ns >= 3_000_000); // never early
        let late = timeout(timer.sleep(MS), timer.sleep(HOUR)).await;
        assert_eq!(late, Err(TimerError::Elapsed));
        let in_time = timeout(timer.sleep(HOUR), timer.sleep(MS)).await;
        assert_eq!(in_time, Ok(Ok(())));
        let mut beat = timer.interval(MS).unwrap();
        let first_ns = beat.tick().await.unwrap().as_nanos();
        let mut before_ns = first_ns;
        for _ in 1..5 {
            let tick_ns = beat.tick().await.unwrap().as_nanos();
            assert!(tick_ns > before_ns);
            assert_eq!((tick_ns - first_ns) % 1_000_000, 0, "off the beat");
            before_ns = tick_ns;
        }
    });
    assert_eq!(timer.sleepers(), 0);
    timer.shutdown(Duration::MAX);
}

#[test]
fn a_sleep_keeps_its_timer_running() {
    let sleep = SystemTimer::new().unwrap().sleep(5 * MS);
    pollster::block_on(sleep).unwrap();
}

#[test]
fn a_sleep_due_at_its_first_poll_is_over_soon() {
    let timer = SystemTimer::new().unwrap();
    let (first, second) = (timer.sleep(MS), timer.sleep(MS));
    while !second.is_due() {
        std::hint::spin_loop();
    }
    pollster::block_on(first).unwrap();
    timer.shutdown(Duration::MAX);
    pollster::block_on(second).unwrap();
    let expected = Err(TimerError::Closed);
    assert_eq!(pollster::block_on(timer.sleep(HOUR)), expected);
}

/// Two tasks pass a token back and forth, each after a sleep, and a third task gives up on them.
#[tokio::test]
async fn settling_lets_tasks_follow_time_step_by_step() {
    let timer = ManualTimer::new();
    let (to, mut from) = tokio::sync::mpsc::channel(1);
    let (back, mut again) = tokio::sync::mpsc::channel(1);
    let (one, other, clock) = (timer.clone(), timer.clone(), timer.clock());
    tokio::spawn(async move {
        loop {
            one.sleep(3 * MS).await.unwrap();
            to.send(()).await.unwrap();
            again.recv().await.unwrap();
        }
    });
    let rounds = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Ok(Some(())) = timeout(other.sleep(5 * MS), from.recv()).await {
            other.sleep(MS * (seen.len() as u32 + 1)).await.unwrap();
            back.send(()).await.unwrap();
            seen.push(clock.now_ns() / 1_000_000);
            if seen.len() == 4 {
                from.close();
            }
        }
        seen
    });
    timer.settle(Duration::ZERO).await;
    assert_eq!(timer.sleepers(), 2);
    timer.settle(8 * MS).await;
    assert!(!rounds.is_finished());
    timer.settle(HOUR).await;
    assert_eq!(rounds.await.unwrap(), [4, 9, 15, 22]);
    assert_eq!(timer.clock().now_ns(), 3_600_008_000_000);
}
