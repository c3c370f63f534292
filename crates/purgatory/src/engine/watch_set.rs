//! The watches that an operation with several keys is to be parked under: each key once.

use smallvec::SmallVec;

use crate::{
    error::RefusedReason,
    shard::{Watch, Watermark, WatermarkKind},
    watches::Watches,
};

/// Watches up to this number are compared each with each before they are sorted: 28 comparisons at
/// most.
const FEW_KEYS: usize = 8;

/// The watches of an operation with several keys.
pub(super) type WatchSet<'a, K> = SmallVec<[Watch<'a, K>; 4]>;

/// Returns true for a few watches of which no two have the same hash, as nearly always.
#[inline]
fn differ<K>(watch_set: &[Watch<'_, K>]) -> bool {
    let has_hash_of = |at: usize| move |before: &Watch<'_, K>| before.hash == watch_set[at].hash;
    watch_set.len() <= FEW_KEYS
        && (1..watch_set.len()).all(|at| !watch_set[..at].iter().any(has_hash_of(at)))
}

/// The reason why an operation cannot be parked under these watches, unless it can.
#[inline]
pub(super) fn unfit<K>(watches: &Watches<'_, K>) -> Option<RefusedReason> {
    match (watches.keys, watches.watermarks) {
        ([], []) => Some(RefusedReason::NoKeys),
        ([_], []) => None,
        _ if watches.in_turn => Some(RefusedReason::TurnOfOneKey),
        _ => None,
    }
}

/// Returns the watermark that is to be watched for this threshold.
#[inline]
pub(super) fn watermark_of<K>(threshold: u64, watches: &Watches<'_, K>) -> Watermark {
    let kind = if watches.counted {
        WatermarkKind::Threshold
    } else {
        WatermarkKind::Checked
    };
    Watermark { threshold, kind }
}

/// The number of watermarks that are counted down.
#[inline]
pub(super) fn threshold_watches<K>(watches: &Watches<'_, K>, watch_set: &[Watch<'_, K>]) -> usize {
    if !watches.counted {
        return 0;
    }
    let is_counted = |watch: &&Watch<'_, K>| {
        watch
            .watermark
            .is_some_and(|of| of.kind == WatermarkKind::Threshold)
    };
    watch_set.iter().filter(is_counted).count()
}

/// Keeps the first mention of each watch, in their order. As a checked watch the one with the
/// lowest threshold does for all of a key: once it is met, it is checked at every advance. O(n log
/// n), but for keys of one hash.
#[inline]
pub(super) fn remove_repeated<K: Eq>(watch_set: &mut WatchSet<'_, K>) {
    if !differ(watch_set) {
        sort_and_remove(watch_set);
    }
}

/// Removes the watches that are repeated, as [`remove_repeated`] does.
#[cold]
fn sort_and_remove<K: Eq>(watch_set: &mut WatchSet<'_, K>) {
    // 1. Sort the places so that watches that may be alike are neighbours, the lowest first.
    let threshold = |at: usize| watch_set[at].watermark.map(|of| of.threshold);
    let kind = |at: usize| {
        let watch = &watch_set[at];
        let threshold = watch.watermark.map(|of| {
            let is_counted = of.kind == WatermarkKind::Threshold;
            is_counted.then_some(of.threshold)
        });
        (watch.hash, threshold)
    };
    let mut sorted: SmallVec<[usize; 4]> = (0..watch_set.len()).collect();
    sorted.sort_by_key(|&at| (kind(at), threshold(at)));

    // 2. Mark the ones whose key stands earlier among its neighbours.
    let mut repeated: SmallVec<[bool; 4]> = SmallVec::from_elem(false, watch_set.len());
    for alike in sorted.chunk_by(|&at, &next| kind(at) == kind(next)) {
        for (number, &at) in alike.iter().enumerate() {
            let is_same = |&before: &usize| watch_set[before].key == watch_set[at].key;
            repeated[at] = alike[..number].iter().any(is_same);
        }
    }

    // 3. Remove them, in the order given.
    let mut repeated = repeated.into_iter();
    watch_set.retain(|_| repeated.next() == Some(false));
}
