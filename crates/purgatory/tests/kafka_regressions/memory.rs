//! What stays in memory of operations that are over. Counted are this thread's allocations, of
//! which nothing else here makes any.

use allocation_counter::measure;

use crate::{
    naive::{Busy, Naive},
    script::{AnyPurgatory, Ours, Probe},
};

/// What a fetch is answered with: it goes with the operation.
const RESPONSE: i64 = 16 << 10;

/// Kafka purges its lists when so many more operations have completed than are pending.
const PURGE_INTERVAL: u32 = 1000;

/// Parks a fetch under `keys` and completes it by the event of the first, `count` times. Returns by
/// how many bytes that made the memory in use grow.
fn fetches<const N: usize>(
    purgatory: &impl AnyPurgatory,
    count: u32,
    keys: impl Fn(u32) -> [u32; N],
) -> i64 {
    let counted = measure(|| {
        for number in 0..count {
            let (probe, response) = (Probe::new(), vec![0_u8; RESPONSE as usize]);
            let operation = probe.acting(move |ready| ready && !response.is_empty());
            let keys = keys(number);
            purgatory.park(operation, &keys);
            probe.make_ready();
            assert_eq!(purgatory.event(keys[0]), 1);
        }
    });
    counted.bytes_current
}

/// What stays of slots when all has ended: a few pages of each home shard used, here one; and in
/// each of the registry's 4096 stripes ever used a page (512 bytes), and a table where two keys met
/// there. That much once, however many have ended.
const HOME_KEEPS: i64 = 32 << 10;
const STRIPES_KEEP: i64 = 4096 * (2 << 10);

/// KAFKA-19389: a share fetch is watched under its group and its partition; the event of one
/// answered it, and the other's list kept it, with the answer, until a purge: brokers ran out of
/// memory. Here what has ended is out of every list, and gone, before the event returns.
#[test]
fn kafka_19389_nothing_stays_under_a_second_key() {
    let partition_and_group = |_| [1, 2];
    let naive = Naive::new(Busy::Waits);
    let held = RESPONSE * i64::from(PURGE_INTERVAL);
    assert!(fetches(&naive, PURGE_INTERVAL, partition_and_group) >= held, "all of them are held");
    assert_eq!(naive.watched(), PURGE_INTERVAL as usize);
    assert!(measure(|| naive.purge()).bytes_current <= -held, "until the purge");

    let ours = Ours::new();
    assert!(fetches(&ours, PURGE_INTERVAL, partition_and_group) <= HOME_KEEPS);
    ours.assert_empty();
    assert_eq!(fetches(&ours, 10 * PURGE_INTERVAL, partition_and_group), 0);
}

/// KAFKA-19763: a fetch that reads from remote storage is watched under each of its partitions, and
/// the lists of the others kept it with what was read: brokers ran out of memory again. Here the
/// same as above, under a key that all share and keys that are never used again.
#[test]
fn kafka_19763_nothing_stays_under_keys_used_once() {
    const HOT: u32 = u32::MAX;
    let under_its_own = |number| [3 * number, 3 * number + 1, 3 * number + 2, HOT];
    let naive = Naive::new(Busy::Waits);
    let held = RESPONSE * i64::from(PURGE_INTERVAL);
    assert!(fetches(&naive, PURGE_INTERVAL, under_its_own) >= held, "all of them are held");
    assert_eq!(naive.watched(), 3 * PURGE_INTERVAL as usize, "under all keys but the event's");

    let ours = Ours::new();
    let many = 10 * PURGE_INTERVAL; // 160 MB of responses
    assert!(fetches(&ours, many, under_its_own) <= HOME_KEEPS + STRIPES_KEEP);
    ours.assert_empty();
    // To a purgatory they are new keys again. Which room an operation is at home in is chance, so
    // some rooms' lists of late tasks grow to their full size later; what leaks grows for ever.
    let grown: Vec<_> = (0..20).map(|_| fetches(&ours, many, under_its_own)).collect();
    assert!(grown.contains(&0), "{grown:?} bytes");
}
