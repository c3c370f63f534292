//! The items of the highest ranks among any number of items.

use std::{cmp::Reverse, collections::BTreeMap};

/// The items of the highest ranks, at most `limit`. Of items of equal rank, those that came first
/// stay.
pub(crate) struct Highest<T> {
    /// By rank, the highest first, and by the order in which they came.
    kept: BTreeMap<(Reverse<u64>, u64), T>,
    limit: usize,
    pushed: u64,
}

impl<T> Highest<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Highest {
            kept: BTreeMap::new(),
            limit,
            pushed: 0,
        }
    }

    /// Offers an item, which is made only if its rank is among the highest. Returns the item that
    /// it displaces. O(log limit).
    pub(crate) fn offer(&mut self, rank: u64, item: impl FnOnce() -> T) -> Option<T> {
        let place = (Reverse(rank), self.pushed);
        self.pushed += 1;
        let mut displaced = None;
        if self.kept.len() == self.limit {
            let lowest = self.kept.last_key_value();
            if lowest.is_none_or(|(&lowest, _)| lowest < place) {
                return None;
            }
            displaced = self.kept.pop_last();
        }
        self.kept.insert(place, item());
        displaced.map(|(_, item)| item)
    }

    /// Returns the items with their ranks, the highest first.
    pub(crate) fn into_sorted(self) -> Vec<(u64, T)> {
        let kept = self.kept.into_iter();
        kept.map(|((rank, _), item)| (rank.0, item)).collect()
    }
}

/// Returns the keys with the most waiters, over shards of these numbers. `look` locks a shard and
/// visits its keys. O(keys).
pub(crate) fn busiest<K: Clone>(
    limit: usize,
    shards: impl Iterator<Item = usize>,
    look: impl Fn(usize, &mut dyn FnMut(&K, usize)),
) -> Vec<(K, usize)> {
    let mut highest = Highest::new(limit);
    for number in shards {
        let mut displaced = Vec::new(); // dropped with nothing locked
        look(number, &mut |key, waiters| {
            displaced.extend(highest.offer(waiters as u64, || key.clone()));
        });
    }
    let sorted = highest.into_sorted().into_iter();
    sorted
        .map(|(waiters, key)| (key, waiters as usize))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_keeps_the_first_of_equal_ranks() {
        let mut highest = Highest::new(2);
        assert_eq!(highest.offer(1, || 'a'), None);
        assert_eq!(highest.offer(3, || 'b'), None);
        assert_eq!(highest.offer(1, || unreachable!()), None);
        assert_eq!(highest.offer(2, || 'c'), Some('a'));
        assert_eq!(highest.offer(3, || 'd'), Some('c'));
        assert_eq!(highest.into_sorted(), [(3, 'b'), (3, 'd')]);
        assert_eq!(Highest::<u8>::new(0).offer(9, || unreachable!()), None);
    }
}
