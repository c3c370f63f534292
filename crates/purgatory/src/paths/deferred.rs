//! Events left for later: a queue in which each key is once.
//!
//! What is deferred again before it has begun changes nothing, but for a rise to a higher value:
//! the event to come is the later one, too. So the queue is no longer than there are keys, however
//! often and for however long they are deferred; and after shutdown nothing comes in.

use std::collections::VecDeque;

use hashbrown::HashTable;

/// A queue with room for more than this is given back when it empties.
const KEPT: usize = 1024;

/// An event, or a rise to `value`.
struct Item<K> {
    key: K,
    hash: u64,
    value: Option<u64>,
}

/// Events left for later, and rises to a value: a key at most once as each.
pub(crate) struct Deferred<K> {
    queue: VecDeque<Item<K>>,
    /// The numbers of those in the queue, by the hash of their keys. The first has the number
    /// `begun`.
    known: HashTable<u64>,
    begun: u64,
    /// A job that raises them is on its way to the executor.
    pub(crate) job: bool,
    closed: bool,
}

impl<K> Default for Deferred<K> {
    fn default() -> Self {
        let (queue, known) = (VecDeque::new(), HashTable::new());
        Deferred { queue, known, begun: 0, job: false, closed: false }
    }
}

impl<K: Eq> Deferred<K> {
    /// True when an event is not to be queued: it is queued already, now with the higher value, or
    /// nothing is taken any more. Runs the key's `Eq`. O(1).
    pub(crate) fn has(&mut self, key: &K, hash: u64, value: Option<u64>) -> bool {
        if self.closed {
            return true;
        }
        let Deferred { queue, known, begun, .. } = self;
        let found = known.find(hash, |&number| {
            let item = &queue[(number - *begun) as usize];
            item.hash == hash && item.value.is_some() == value.is_some() && item.key == *key
        });
        let Some(&number) = found else { return false };
        let item = &mut queue[(number - *begun) as usize];
        item.value = item.value.max(value);
        true
    }

    /// Queues what it [has](Self::has) not. O(1) amortised.
    pub(crate) fn push(&mut self, key: K, hash: u64, value: Option<u64>) {
        let Deferred { queue, known, begun, .. } = self;
        let number = *begun + queue.len() as u64;
        queue.push_back(Item { key, hash, value });
        known.insert_unique(hash, number, |number| queue[(number - *begun) as usize].hash);
    }

    /// Takes the first one out. O(1).
    pub(crate) fn next(&mut self) -> Option<(K, Option<u64>)> {
        let Item { key, hash, value } = self.queue.pop_front()?;
        let number = self.begun;
        self.begun += 1;
        if let Ok(entry) = self.known.find_entry(hash, |&known| known == number) {
            entry.remove();
        }
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            (self.queue, self.known) = (VecDeque::new(), HashTable::new()); // a peak is given back
        }
        Some((key, value))
    }

    /// Takes nothing from now on, and hands out the keys of what is left.
    pub(crate) fn close(&mut self) -> impl ExactSizeIterator<Item = K> + use<K> {
        self.closed = true;
        self.known = HashTable::new();
        self.begun += self.queue.len() as u64;
        std::mem::take(&mut self.queue).into_iter().map(|item| item.key)
    }
}

impl<K> Deferred<K> {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_queued_once_as_an_event_and_once_as_a_rise_and_again_once_it_has_begun() {
        let mut deferred = Deferred::default();
        let mut random = fastrand::Rng::with_seed(3);
        let mut plain: Vec<(u32, Option<u64>)> = Vec::new();
        for _ in 0..20_000 {
            let (key, value) = (random.u32(..40), random.bool().then(|| random.u64(..100)));
            if random.u8(..4) == 0 {
                let first = (!plain.is_empty()).then(|| plain.remove(0));
                assert_eq!(deferred.next(), first);
                continue;
            }
            let same = |known: &&mut (u32, Option<u64>)| {
                (known.0, known.1.is_some()) == (key, value.is_some())
            };
            let known = plain.iter_mut().find(same).map(|known| known.1 = known.1.max(value));
            let hash = u64::from(key % 7) << 57 | u64::from(key % 7); // some hash alike
            assert_eq!(deferred.has(&key, hash, value), known.is_some());
            if known.is_none() {
                plain.push((key, value));
                deferred.push(key, hash, value);
            }
            assert_eq!(deferred.len(), plain.len());
        }
        assert!(deferred.close().eq(plain.into_iter().map(|(key, _)| key)));
        assert!(deferred.has(&1, 1, None) && deferred.len() == 0);
    }
}
