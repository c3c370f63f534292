//! A long-poll fetch: how many bytes it is answered with.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use timer_core::ManualTimer;

use super::{EXPIRED, MS, SECOND, Wait, by_hand, every_order, got, guide::long_poll::Logs, poll};

fn logs<const N: usize>(ends: [u64; N]) -> (ManualTimer, Arc<Logs>) {
    let (timer, fetches) = by_hand();
    let ends = Arc::new(ends.map(AtomicU64::new).into());
    (timer, Arc::new(Logs { ends, fetches }))
}

/// One that is answered with too little has run out of time.
#[test]
fn a_fetch_waits_for_enough_bytes() {
    every_order(|| {
        let (timer, logs) = logs([100, 40]);
        logs.append(1, 63);
        let (waits, appends) = (logs.fetches.clone(), logs.clone());
        let wait = Wait { timer, waits, limit: 500 * MS, remembers: true };
        let begin = move || {
            let fetch = logs.fetch(&[100, 40], 64, 500 * MS);
            async {
                match fetch.await.map_err(|error| error.to_string())? {
                    63 => Err(EXPIRED.to_owned()),
                    bytes => Ok(bytes),
                }
            }
        };
        (wait, begin, move || _ = appends.append(0, 1))
    });
}

#[test]
fn appends_add_up_over_partitions() {
    let (_timer, logs) = logs([100, 40]);
    assert_eq!(got(&mut Box::pin(logs.fetch(&[70, 6], 64, SECOND))), 64);
    assert_eq!(got(&mut Box::pin(logs.fetch(&[99, 40], 64, Duration::ZERO))), 1);
    let mut fetch = Box::pin(logs.fetch(&[101, 40], 64, SECOND));
    // Both watermarks are met, and each further rise is looked at until there is enough.
    assert_eq!((logs.append(1, 1), logs.append(0, 60), logs.append(0, 3)), (0, 0, 0));
    assert!(poll(&mut fetch).is_pending());
    assert_eq!((logs.append(0, 1), got(&mut fetch)), (1, 64));
}

/// As a follower's log is, when its leader has changed: the consumer is ahead of it.
#[test]
fn a_position_beyond_the_end_counts_as_nothing() {
    let (timer, logs) = logs([100, 40]);
    logs.ends[0].store(80, SeqCst);
    let mut fetch = Box::pin(logs.fetch(&[100, 40], 10, SECOND));
    assert_eq!((logs.append(0, 20), logs.append(0, 9)), (0, 0));
    timer.advance(SECOND);
    assert_eq!(got(&mut fetch), 9);
}
