//! The items of the highest ranks, of any number.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

/// The items of the highest ranks, at most `limit`: of equal ranks those that came first.
pub(crate) struct Highest<T> {
    /// The lowest on top.
    kept: BinaryHeap<Ranked<T>>,
    limit: usize,
    pushed: u64,
}

/// An item of a [`Highest`], ordered by its place there alone.
struct Ranked<T> {
    place: (Reverse<u64>, u64),
    item: T,
}

impl<T> PartialEq for Ranked<T> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl<T> Eq for Ranked<T> {}

impl<T> PartialOrd for Ranked<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ranked<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place.cmp(&other.place)
    }
}

impl<T> Highest<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Highest {
            kept: BinaryHeap::new(),
            limit,
            pushed: 0,
        }
    }

    /// Offers an item, which is made only if its rank is among the highest. Returns the one that it
    /// displaces. O(log limit).
    pub(crate) fn offer(&mut self, rank: u64, item: impl FnOnce() -> T) -> Option<T> {
        let place = (Reverse(rank), self.pushed);
        self.pushed += 1;
        let mut displaced = None;
        if self.kept.len() == self.limit {
            if self.kept.peek().is_none_or(|lowest| lowest.place < place) {
                return None;
            }
            displaced = self.kept.pop();
        }
        self.kept.push(Ranked {
            place,
            item: item(),
        });
        displaced.map(|ranked| ranked.item)
    }

    /// The items with their ranks, the highest first.
    pub(crate) fn into_sorted(self) -> Vec<(u64, T)> {
        let sorted = self.kept.into_sorted_vec().into_iter();
        sorted.map(|of| (of.place.0.0, of.item)).collect()
    }
}

/// Returns the keys with the most waiters, over shards of these numbers. `look` locks one, and
/// tells the keys that it finds there. O(keys).
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
