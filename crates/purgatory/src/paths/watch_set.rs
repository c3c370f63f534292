//! The watches that a park is to set, each key once, with the version it had before the check.

use std::{collections::HashMap, hash::Hash};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::versions::KeyVersion;
use crate::{
    room::{Room, Watched, Watermark},
    words::watches::Watches,
};

/// From so many keys on, repeated ones are found by a hash set instead of by comparing each pair.
const KEYS_COMPARED: usize = 16;

/// A watch to be set: its key, the version it had before the check, and its watermark if it has
/// one.
pub(crate) struct Watch<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) version: KeyVersion,
    pub(crate) watermark: Option<Watermark>,
}

pub(crate) type WatchSet<'a, K> = SmallVec<[Watch<'a, K>; 4]>;

/// How many watermarks are to be counted down.
#[inline]
pub(crate) fn counted<K>(watch_set: &[Watch<'_, K>]) -> usize {
    let counts = |watch: &&Watch<'_, K>| watch.watermark.is_some_and(|watermark| watermark.counted);
    watch_set.iter().filter(counts).count()
}

impl Watermark {
    /// What tells two watches of a key apart. In the check form one does for all thresholds: once
    /// the lowest is met, its watch is checked at every rise.
    fn distinct(watermark: Option<Watermark>) -> Option<Watermark> {
        watermark.map(|watermark| {
            if watermark.counted { watermark } else { Watermark { threshold: 0, ..watermark } }
        })
    }
}

impl<K> Watch<'_, K> {
    /// Watches for the lower of two levels.
    fn lower_to(&mut self, watermark: Option<Watermark>) {
        if let (Some(kept), Some(watermark)) = (&mut self.watermark, watermark) {
            kept.threshold = kept.threshold.min(watermark.threshold);
        }
    }
}

impl<K: Eq + Clone> Watch<'_, K> {
    /// Looks the key up in its room. Runs the key's `Eq` and `Clone`; a panic of theirs changes
    /// nothing.
    #[inline]
    pub(crate) fn in_room<O>(&self, room: &Room<K, O>) -> Watched<K> {
        room.known(self.key, self.version.hash, self.watermark)
    }
}

impl<'a, K: Hash + Eq> Watches<'a, K> {
    /// The watches to be set, once where one is repeated; `read` looks at a key.
    #[inline]
    pub(crate) fn watch_set(self, read: impl Fn(&K) -> KeyVersion) -> WatchSet<'a, K> {
        let mut watch_set = WatchSet::new();
        if let ([key], []) = (self.keys, self.watermarks) {
            watch_set.push(Watch { key, version: read(key), watermark: None });
            return watch_set;
        }
        let plain = self.keys.iter().map(|key| (key, None));
        let watermarks = self.watermarks.iter().map(|(key, threshold)| {
            (key, Some(Watermark { threshold: *threshold, counted: self.counted }))
        });
        if self.keys.len() + self.watermarks.len() > KEYS_COMPARED {
            let count = self.keys.len() + self.watermarks.len();
            let mut known = HashMap::with_capacity_and_hasher(count, RandomState::default());
            for (key, watermark) in plain.chain(watermarks) {
                let at =
                    *known.entry((key, Watermark::distinct(watermark))).or_insert(watch_set.len());
                match watch_set.get_mut(at) {
                    Some(other) => other.lower_to(watermark),
                    None => watch_set.push(Watch { key, version: read(key), watermark }),
                }
            }
        } else {
            for (key, watermark) in plain.chain(watermarks) {
                let (version, distinct) = (read(key), Watermark::distinct(watermark));
                let same = |other: &&mut Watch<'_, K>| {
                    other.version.hash == version.hash
                        && Watermark::distinct(other.watermark) == distinct
                        && other.key == key
                };
                match watch_set.iter_mut().find(same) {
                    Some(other) => other.lower_to(watermark),
                    None => watch_set.push(Watch { key, version, watermark }),
                }
            }
        }
        watch_set
    }
}
