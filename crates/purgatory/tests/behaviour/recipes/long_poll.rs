//! A long-poll fetch in every order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use purgatory::WaitError;
use timer_core::ManualTimer;

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, guide::long_poll::Logs, off_runtime, on_runtimes,
};

type Bytes = Result<u64, WaitError>;

fn logs<const N: usize>(ends: [u64; N]) -> (ManualTimer, Arc<Logs>) {
    let (timer, fetches) = by_hand();
    let ends = Arc::new(ends.map(AtomicU64::new).into());
    (timer, Arc::new(Logs { ends, fetches }))
}

#[test]
fn what_is_there_before_is_answered_at_once() {
    on_runtimes(|runtime| {
        let (_timer, logs) = logs([100, 40]);
        assert_eq!(runtime.block_on(logs.fetch(&[70, 6], 64, SECOND)), Ok(64));
        assert_eq!(runtime.block_on(logs.fetch(&[100, 40], 0, SECOND)), Ok(0));
        assert_eq!(runtime.block_on(logs.fetch(&[99, 40], 64, Duration::ZERO)), Ok(1));
    });
}

/// The fetch is parked by the call, before it is polled; appends come on the runtime and off it.
#[test]
fn appends_add_up_and_those_before_the_first_poll_count() {
    on_runtimes(|runtime| {
        let (_timer, logs) = logs([100, 40]);
        let early = logs.fetch(&[100, 40], 64, SECOND);
        assert_eq!((logs.append(1, 63), logs.append(0, 1)), (0, 1));
        assert_eq!(runtime.block_on(early), Ok(64));

        let waiting = runtime.spawn(logs.fetch(&[101, 103], 64, SECOND));
        let on_it = logs.clone();
        let first = runtime.spawn(async move { on_it.append(0, 60) });
        assert_eq!(runtime.block_on(first).unwrap(), 0);
        // The first partition's watermark is met: each of its rises is looked at.
        assert_eq!(off_runtime(|| [2, 1, 1, 50].map(|bytes| logs.append(0, bytes))), [0, 0, 1, 0]);
        let told = runtime.block_on(waiting).unwrap().unwrap();
        assert_eq!(told, 64);
        super::nothing_is_left(&logs.fetches);
    });
}

#[test]
fn when_time_is_up_the_answer_is_what_there_is() {
    on_runtimes(|runtime| {
        let (timer, logs) = logs([100, 40]);
        let fetch = runtime.spawn(logs.fetch(&[100, 40], 64, 500 * MS));
        logs.append(0, 50);
        timer.advance(499 * MS);
        assert_eq!(logs.fetches.len(), 1);
        off_runtime(|| timer.advance(MS));
        assert_eq!(logs.fetches.len(), 0);
        assert_eq!(runtime.block_on(fetch).unwrap(), Ok(50));
        assert_eq!(logs.append(1, 50), 0);

        let nothing = logs.fetch(&[150, 90], 1, 500 * MS);
        timer.advance(500 * MS);
        assert_eq!(runtime.block_on(nothing), Ok(0));
    });
}

#[test]
fn a_client_that_goes_leaves_nothing_and_may_fetch_the_same_again() {
    on_runtimes(|runtime| {
        let (_timer, logs) = logs([0, 0]);
        drop(logs.fetch(&[0, 0], 10, SECOND));
        let task = runtime.spawn(logs.fetch(&[0, 0], 10, SECOND));
        runtime.block_on(tokio::task::yield_now());
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        super::nothing_is_left(&logs.fetches);
        assert_eq!((logs.append(0, 5), logs.append(1, 4)), (0, 0));
        let again = logs.fetch(&[0, 0], 10, SECOND);
        assert_eq!(logs.append(1, 1), 1);
        assert_eq!(runtime.block_on(again), Ok(10));
    });
}

/// As a follower's log is, when its leader has changed: the consumer is ahead of it.
#[test]
fn a_position_beyond_the_end_counts_as_nothing() {
    let (timer, logs) = logs([100, 40]);
    on_runtimes(|runtime| {
        logs.ends[0].store(80, SeqCst);
        let fetch = logs.fetch(&[100, 40], 10, SECOND);
        assert_eq!((logs.append(0, 20), logs.append(0, 9)), (0, 0));
        timer.advance(SECOND);
        assert_eq!(runtime.block_on(fetch), Ok(9));
        super::nothing_is_left(&logs.fetches);
    });
}

#[test]
fn a_shutdown_ends_what_waits() {
    on_runtimes(|runtime| {
        let (_timer, logs) = logs([0, 100]);
        let fetch = runtime.spawn(logs.fetch(&[0, 100], 10, SECOND));
        let early = logs.fetch(&[0, 100], 10, SECOND);
        runtime.block_on(tokio::task::yield_now());
        off_runtime(|| logs.fetches.shutdown(SECOND));
        let told: [Bytes; 2] = [runtime.block_on(early), runtime.block_on(fetch).unwrap()];
        assert!(told.iter().all(|told| [Err(SHUTDOWN), Err(CLOSED)].contains(told)), "{told:?}");
        assert_eq!(told[0], Err(SHUTDOWN));
        assert_eq!(runtime.block_on(logs.fetch(&[0, 100], 10, SECOND)), Err(CLOSED));
        assert_eq!(runtime.block_on(logs.fetch(&[0, 0], 10, SECOND)), Ok(100));
    });
}

/// Consumers that read on and on have each byte once, whatever appends they race with.
#[test]
fn of_many_appends_no_byte_is_missed() {
    const APPENDS: u64 = 1000;
    on_runtimes(|runtime| {
        let (_timer, logs) = logs([0; 2]);
        let all: u64 = (1..=APPENDS).map(|at| at % 90).sum::<u64>() + 64;
        let consumers = [0, 1, 0, 1].map(|partition: usize| {
            let logs = logs.clone();
            runtime.spawn(async move {
                let (mut read, mut answers) = (0, 0);
                while read < all {
                    let mut positions = [u64::MAX - 1; 2];
                    positions[partition] = read;
                    let bytes = logs.fetch(&positions, 64, SECOND).await.unwrap();
                    assert!(bytes >= 64 || read + bytes == all, "{bytes} bytes from {read} on");
                    (read, answers) = (read + bytes, answers + 1);
                }
                (read, answers)
            })
        });
        let appends = [0, 1].map(|partition| {
            let logs = logs.clone();
            thread::spawn(move || {
                for at in 1..=APPENDS {
                    logs.append(partition, at % 90);
                    thread::yield_now();
                }
                logs.append(partition, 64);
            })
        });
        let mut answers = 0;
        for consumer in consumers {
            let (read, answered) = runtime.block_on(consumer).unwrap();
            assert_eq!(read, all);
            answers += answered;
        }
        appends.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = logs.fetches.stats();
        assert_eq!((stats.ended_at_once + stats.completed, stats.expired), (answers, 0));
        super::nothing_is_left(&logs.fetches);
    });
}
