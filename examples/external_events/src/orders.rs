//! The orders, and the requests that wait for one to change. Every change is stored first, then the
//! key of its order is signalled, so each waiting request sees it.
//!
//! *Versions are those of an epoch*: a stream that was made anew numbers its changes from 1 again,
//! so a version means nothing without its epoch. A client that names another epoch than the current
//! one is answered at once, whatever version it has seen.
//!
//! *Memory bounded*: beyond `orders_max` the order that has not changed for the longest is
//! forgotten, as if it had never existed.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use purgatory::{Purgatory, WaitFuture};
use serde::Serialize;

/// The name of an order, shared by everything that holds it.
pub type OrderId = Arc<str>;

/// An order as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// The order's name.
    pub id: OrderId,
    /// The numbering that the version belongs to; changes numbered anew get another epoch. Epochs
    /// are not ordered.
    pub epoch: u64,
    /// The number of the order's last change; later changes, of all orders, have higher numbers.
    pub version: u64,
    /// The text of the last change.
    pub state: Arc<str>,
}

/// The version of an order that a client has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// See [`Order::epoch`].
    pub epoch: u64,
    /// See [`Order::version`].
    pub version: u64,
}

/// The point from which a client asks for news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// The client has seen nothing: it asks for the order as it is, or for its first change, in any
    /// epoch.
    Nothing,
    /// The client asks for the next change, in any epoch.
    Now,
    /// The client asks for a later version than this one, or the end of its epoch.
    Version(Seen),
}

/// The answer that a client waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The order has changed.
    Changed(Order),
    /// The client has seen a version of another epoch; in the current epoch the order has not
    /// changed yet.
    Anew {
        /// The current epoch.
        epoch: u64,
    },
}

/// A handle to the orders that this gateway knows; clones share them.
#[derive(Clone)]
pub struct Orders {
    kept: Arc<Mutex<Kept>>,
    waits: Purgatory<OrderId>,
}

struct Kept {
    orders: HashMap<OrderId, Order>,
    /// The ids by version: the first is forgotten next.
    by_version: BTreeMap<u64, OrderId>,
    orders_max: usize,
    epoch: u64,
    /// The highest version so far.
    position: u64,
}

/// The key under which clients that name an epoch wait, beside their order's; no order has this id.
const EPOCH: &str = "";

impl Orders {
    /// Makes a handle without orders; requests for them wait in the purgatory. The epoch is random,
    /// for a gateway that runs alone: it forgets everything when it ends.
    pub fn new(waits: Purgatory<OrderId>, orders_max: usize) -> Orders {
        let kept = Kept {
            orders: HashMap::new(),
            by_version: BTreeMap::new(),
            orders_max,
            // 53 bits, which JavaScript represents exactly.
            epoch: RandomState::new().hash_one(0) >> 11,
            position: 0,
        };
        Orders {
            kept: Arc::new(Mutex::new(kept)),
            waits,
        }
    }

    /// Stores a change from elsewhere. A change that is not new is ignored.
    pub fn change(&self, order: Order) {
        let id = order.id.clone();
        self.kept.lock().store(order); // the condition first ...
        self.waits.check_and_complete(&id); // ... then its event
    }

    /// Changes an order in a gateway that runs alone and numbers the changes itself; returns the
    /// new version.
    pub fn change_here(&self, id: OrderId, state: Arc<str>) -> Seen {
        let mut kept = self.kept.lock();
        let epoch = kept.epoch;
        let version = kept.position + 1;
        kept.store(Order {
            id: id.clone(),
            epoch,
            version,
            state,
        });
        // Unlock before the event: the checks of waiting requests take the lock.
        drop(kept);
        self.waits.check_and_complete(&id);
        Seen { epoch, version }
    }

    /// Waits for news of an order. Dropping the future ends the wait.
    pub fn wait(&self, id: &OrderId, since: Since, timeout: Duration) -> WaitFuture<News> {
        let seen = match since {
            Since::Nothing => None,
            Since::Now => Some(self.last_change(id)),
            Since::Version(seen) => Some(seen),
        };
        let named_epoch = matches!(since, Since::Version(_));
        let kept = self.kept.clone();
        let order = id.clone();
        let later = move || kept.lock().later(&order, seen, named_epoch);

        // A client that names an epoch hears of its end; any other client waits for its order only.
        let keys = [id.clone(), EPOCH.into()];
        let watched = if named_epoch { &keys[..] } else { &keys[..1] };
        self.waits.wait(watched, timeout, later)
    }

    /// Returns the current version of an order; 0 if the order is not known.
    fn last_change(&self, id: &OrderId) -> Seen {
        let kept = self.kept.lock();
        let version = kept.orders.get(id).map_or(0, |order| order.version);
        Seen {
            epoch: kept.epoch,
            version,
        }
    }

    /// Returns the current epoch: the numbering that versions belong to.
    pub fn epoch(&self) -> u64 {
        self.kept.lock().epoch
    }

    /// Returns the highest version so far, of all orders.
    pub fn position(&self) -> u64 {
        self.kept.lock().position
    }

    /// Begins an epoch. Unless it is the current one, forgets all orders, begins versions anew, and
    /// returns true.
    pub fn begin(&self, epoch: u64) -> bool {
        let mut kept = self.kept.lock();
        if kept.epoch == epoch {
            return false;
        }
        // Versions of the old epoch mean nothing in the new one.
        kept.orders.clear();
        kept.by_version.clear();
        kept.position = 0;
        kept.epoch = epoch;
        drop(kept);
        self.waits.check_and_complete(EPOCH);
        true
    }

    /// Returns the purgatory in which requests wait.
    pub fn waits(&self) -> &Purgatory<OrderId> {
        &self.waits
    }
}

impl Kept {
    /// Finds the news for a client. A client that named an epoch which is over hears of the new
    /// one; a client that named none waits for a change.
    fn later(&self, id: &OrderId, seen: Option<Seen>, named_epoch: bool) -> Option<News> {
        let known = self.orders.get(id);
        if let Some(seen) = seen.filter(|seen| seen.epoch == self.epoch) {
            let later = known.filter(|order| order.version > seen.version)?;
            return Some(News::Changed(later.clone()));
        }
        // Versions of another epoch cannot be compared: the order is news if it is known.
        match known {
            Some(order) => Some(News::Changed(order.clone())),
            None if named_epoch => Some(News::Anew { epoch: self.epoch }),
            None => None,
        }
    }

    /// Stores a change; if there are too many orders, forgets the one unchanged for the longest.
    fn store(&mut self, order: Order) {
        if order.version <= self.position {
            return; // changes come in order: this one was stored before
        }
        // The order, the index by version and the position change together.
        self.position = order.version;
        self.by_version.insert(order.version, order.id.clone());
        if let Some(before) = self.orders.insert(order.id.clone(), order) {
            self.by_version.remove(&before.version);
        }
        // Beyond the bound, the order with the oldest change is forgotten.
        if self.orders.len() > self.orders_max
            && let Some((_, oldest)) = self.by_version.pop_first()
        {
            self.orders.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use purgatory::{WaitError, timer_core::ManualTimer};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const EPOCH_1: u64 = 1;

    fn orders(max: usize) -> Orders {
        let timer = ManualTimer::new();
        let waits = Purgatory::builder("orders").timer(&timer).build();
        let orders = Orders::new(waits.unwrap(), max);
        orders.begin(EPOCH_1);
        orders
    }

    fn order(id: &str, epoch: u64, version: u64) -> Order {
        Order {
            id: id.into(),
            epoch,
            version,
            state: "new".into(),
        }
    }

    fn seen(epoch: u64, version: u64) -> Since {
        Since::Version(Seen { epoch, version })
    }

    fn version(news: Result<News, WaitError>) -> Option<u64> {
        match news {
            Ok(News::Changed(order)) => Some(order.version),
            _ => None,
        }
    }

    #[test]
    fn the_longest_unchanged_is_forgotten() {
        let orders = orders(2);
        for (id, version) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            orders.change(order(id, EPOCH_1, version));
        }
        let kept = orders.kept.lock().orders.len();
        assert_eq!((kept, orders.position()), (2, 4));
        for (id, known) in [("a", Some(3)), ("b", None), ("c", Some(4))] {
            let found = orders
                .wait(&id.into(), seen(EPOCH_1, 0), Duration::ZERO)
                .wait_blocking();
            assert_eq!(version(found), known, "{id}");
        }
        assert_eq!(orders.kept.lock().by_version.len(), 2);
    }

    #[test]
    fn a_repeated_or_older_change_changes_nothing() {
        let orders = orders(9);
        for version in [5, 5, 4] {
            orders.change(order("a", EPOCH_1, version));
        }
        let expected = Err(WaitError::Expired);
        let wait = orders.wait(&"a".into(), seen(EPOCH_1, 5), Duration::ZERO);
        assert_eq!(wait.wait_blocking(), expected);
        assert_eq!(orders.position(), 5);
    }

    /// The new epoch is of another stream, whose versions are lower.
    #[test]
    fn waits_hear_of_a_new_epoch() {
        let orders = orders(9);
        orders.change(order("a", EPOCH_1, 7));
        let wait = |id: &str, since| orders.wait(&id.into(), since, SECOND);
        let known = wait("a", seen(EPOCH_1, 7));
        let unknown = wait("b", seen(EPOCH_1, 0));
        let without_epoch = [wait("a", Since::Now), wait("b", Since::Nothing)];
        assert!(!orders.begin(EPOCH_1), "the same again");
        assert_eq!(orders.waits.len(), 4);
        assert!(orders.begin(2));
        for one in [known, unknown] {
            assert_eq!(one.wait_blocking(), Ok(News::Anew { epoch: 2 }));
        }
        assert_eq!(orders.waits.len(), 2, "the others wait for a change");
        orders.change(order("a", 2, 1));
        orders.change(order("b", 2, 2));
        for (one, changed) in without_epoch.into_iter().zip([1, 2]) {
            assert_eq!(version(one.wait_blocking()), Some(changed));
        }
        // A client that has seen nothing is told the order as it is.
        assert_eq!(version(wait("b", Since::Nothing).wait_blocking()), Some(2));
    }

    #[test]
    fn waits_at_the_ends_of_time_do_not_overflow() {
        let orders = orders(9);
        let wait = |timeout| orders.wait(&"a".into(), Since::Now, timeout);
        assert_eq!(
            wait(Duration::ZERO).wait_blocking(),
            Err(WaitError::Expired)
        );
        let longest = wait(Duration::MAX);
        assert_eq!(orders.waits.len(), 1);
        orders.change(order("a", EPOCH_1, 1));
        assert_eq!(version(longest.wait_blocking()), Some(1));
    }
}
