//! Quorums of 64 keys, on real threads, while the value of one key is taken back before another one
//! comes: the two are never there together, so no quorum may count both. `TEST_EFFORT` sets the
//! number of quorums: 2000 without it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use purgatory::Watermarks;

use crate::{
    effort::effort,
    support::{MINUTE, by_hand, poll, race},
};

/// Without `TEST_EFFORT`.
const QUORUMS: u64 = 2_000;
const KEYS: u32 = 64;
/// Two keys of which one at most is met at a time. Of the others all are.
const FIRST: u32 = 0;
const SECOND: u32 = 1;

/// Takes one value back and brings the other one, in turn, until the other thread is done. The
/// first key is advanced by that one, in an odd epoch of it alone.
fn take_back(watermarks: &Watermarks<u32>, is_done: &AtomicBool) {
    let mut epoch = 1;
    while !is_done.load(SeqCst) {
        watermarks.reset(&FIRST, epoch, 0).unwrap();
        watermarks.advance_in(&FIRST, epoch, 1).unwrap();
        watermarks.reset(&FIRST, epoch + 1, 0).unwrap();
        watermarks.advance(&SECOND, 1).unwrap();
        watermarks.reset(&SECOND, epoch, 0).unwrap();
        epoch += 2;
    }
}

/// Each quorum races twice: as it parks, and as it is judged, since its first key is met.
#[test]
fn quorum_counts_no_value_that_was_taken_back() {
    let (_timer, purgatory) = by_hand();
    let watermarks = Watermarks::over(purgatory);
    for key in SECOND + 1..KEYS {
        watermarks.advance(&key, 1).unwrap();
    }
    let is_done = AtomicBool::new(false);
    let counted = race(2, |thread| {
        if thread == 1 {
            take_back(&watermarks, &is_done);
            return 0;
        }
        let mut false_acknowledgements = 0;
        // The second key is read last: the values in this order, the watches from the last one back
        // once the first one is read.
        let quorum: Vec<(u32, u64)> = (0..KEYS).map(|key| (key, 1)).collect();
        for _ in 0..effort(QUORUMS) {
            let mut wait = watermarks.wait_for_k(KEYS as usize, &quorum, MINUTE);
            let epoch = watermarks.epoch(&FIRST).unwrap_or(0);
            // Refused, once the epoch is over.
            _ = watermarks.advance_in(&FIRST, epoch | 1, 1);
            false_acknowledgements += usize::from(poll(&mut wait).is_ready());
        }
        is_done.store(true, SeqCst);
        false_acknowledgements
    });
    assert_eq!(counted[0], 0, "false acknowledgements");
}
