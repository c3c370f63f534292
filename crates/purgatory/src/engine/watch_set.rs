//! The watches that an operation with several keys is to be parked under: each key once.

use smallvec::SmallVec;

use crate::shard::Watch;

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

/// Keeps the first mention of each key, in their order. O(n log n), but for keys of one hash.
#[inline]
pub(super) fn remove_repeated<K: Eq>(watch_set: &mut WatchSet<'_, K>) {
    if !differ(watch_set) {
        sort_and_remove(watch_set);
    }
}

/// Removes the keys that are repeated, as [`remove_repeated`] does.
#[cold]
fn sort_and_remove<K: Eq>(watch_set: &mut WatchSet<'_, K>) {
    // 1. Sort the places so that keys that may be alike are neighbours.
    let mut sorted: SmallVec<[usize; 4]> = (0..watch_set.len()).collect();
    sorted.sort_by_key(|&at| watch_set[at].hash);

    // 2. Mark the ones whose key stands earlier among its neighbours.
    let mut repeated: SmallVec<[bool; 4]> = SmallVec::from_elem(false, watch_set.len());
    for alike in sorted.chunk_by(|&at, &next| watch_set[at].hash == watch_set[next].hash) {
        for (number, &at) in alike.iter().enumerate() {
            let is_same = |&before: &usize| watch_set[before].key == watch_set[at].key;
            repeated[at] = alike[..number].iter().any(is_same);
        }
    }

    // 3. Remove them, in the order given.
    let mut repeated = repeated.into_iter();
    watch_set.retain(|_| repeated.next() == Some(false));
}
