//! The orders, and the requests that wait for one to change. Every change is stored first, then the
//! event of its order is raised, so each waiting request sees it.
//!
//! *Versions are those of an epoch*: a stream that was made anew numbers its changes from 1 again,
//! so a version means nothing without the epoch that it is of. A client that names another epoch
//! than this one is answered at once, whatever version it has seen.
//!
//! *Memory bounded*: beyond `orders_max` the order that has not changed for the longest is
//! forgotten, as if it had never been.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use purgatory::{BoxedOperation, Purgatory, WaitFuture};
use serde::Serialize;

/// The name of an order, shared by everything that holds it.
pub type OrderId = Arc<str>;

/// What a client is told of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Which one.
    pub id: OrderId,
    /// What its version is of: another one when the changes are numbered anew. Not ordered.
    pub epoch: u64,
    /// The number of its last change; later changes, of any order, have higher numbers.
    pub version: u64,
    /// What the last change made it.
    pub state: Arc<str>,
}

/// What a client has seen of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// See [`Order::epoch`].
    pub epoch: u64,
    /// See [`Order::version`].
    pub version: u64,
}

/// What a client waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It has changed.
    Changed(Order),
    /// What the client has seen is of another epoch, and in this one the order has not changed yet.
    Anew {
        /// This one.
        epoch: u64,
    },
}

/// The orders that this gateway knows. A handle: clones share them.
#[derive(Clone)]
pub struct Orders {
    kept: Arc<Mutex<Kept>>,
    waits: Purgatory<OrderId, BoxedOperation>,
}

struct Kept {
    orders: HashMap<OrderId, Order>,
    /// The same by version, the next to be forgotten first.
    by_version: BTreeMap<u64, OrderId>,
    orders_max: usize,
    epoch: u64,
    /// The highest version there was.
    position: u64,
}

/// Not the id of any order. Clients that name an epoch wait under this key, beside their order's.
const EPOCH: &str = "";

impl Orders {
    /// None yet; requests for them wait in this purgatory. The epoch is a random one, for a gateway
    /// alone: it forgets everything when it ends.
    pub fn new(waits: Purgatory<OrderId, BoxedOperation>, orders_max: usize) -> Orders {
        let (orders, by_version) = (HashMap::new(), BTreeMap::new());
        let epoch = RandomState::new().hash_one(0) >> 11; // a whole number in JavaScript, too
        let kept = Kept {
            orders,
            by_version,
            orders_max,
            epoch,
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

    /// Changes an order in a gateway that is alone and numbers the changes itself; returns the new
    /// version.
    pub fn change_here(&self, id: OrderId, state: Arc<str>) -> Seen {
        let mut kept = self.kept.lock();
        let (epoch, version) = (kept.epoch, kept.position + 1);
        kept.store(Order {
            id: id.clone(),
            epoch,
            version,
            state,
        });
        drop(kept);
        self.waits.check_and_complete(&id);
        Seen { epoch, version }
    }

    /// A future of what is later than `seen`, or than now. Dropped, it waits no more.
    pub fn wait(&self, id: &OrderId, seen: Option<Seen>, timeout: Duration) -> WaitFuture<News> {
        let now = {
            let kept = self.kept.lock();
            let version = kept.orders.get(id).map_or(0, |order| order.version);
            Seen {
                epoch: kept.epoch,
                version,
            }
        };
        let (since, told) = (seen.unwrap_or(now), seen.is_some());
        let (kept, order) = (self.kept.clone(), id.clone());
        let later = move || kept.lock().later(&order, since, told);
        let keys = [id.clone(), EPOCH.into()];
        self.waits
            .wait(&keys[..if told { 2 } else { 1 }], timeout, later)
    }

    /// What the versions are of.
    pub fn epoch(&self) -> u64 {
        self.kept.lock().epoch
    }

    /// The highest version there was, of any order.
    pub fn position(&self) -> u64 {
        self.kept.lock().position
    }

    /// If this is another epoch, forgets all orders: the versions begin anew. Returns whether it
    /// was.
    pub fn begin(&self, epoch: u64) -> bool {
        let mut kept = self.kept.lock();
        if kept.epoch == epoch {
            return false;
        }
        (kept.orders, kept.by_version, kept.position) = Default::default();
        kept.epoch = epoch;
        drop(kept);
        self.waits.check_and_complete(EPOCH);
        true
    }

    /// Where requests wait.
    pub fn waits(&self) -> &Purgatory<OrderId, BoxedOperation> {
        &self.waits
    }
}

impl Kept {
    /// The news for a client. One that named an epoch which is over is told so; one that named none
    /// waits for a change.
    fn later(&self, id: &OrderId, seen: Seen, told: bool) -> Option<News> {
        let known = self.orders.get(id);
        if seen.epoch == self.epoch {
            let later = known.filter(|order| order.version > seen.version);
            return later.cloned().map(News::Changed);
        }
        let anew = told.then_some(News::Anew { epoch: self.epoch });
        known.cloned().map(News::Changed).or(anew)
    }

    fn store(&mut self, order: Order) {
        if order.version <= self.position {
            return; // changes come in order: this one has been here
        }
        self.position = order.version;
        self.by_version.insert(order.version, order.id.clone());
        if let Some(before) = self.orders.insert(order.id.clone(), order) {
            self.by_version.remove(&before.version);
        }
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
        let orders = Orders::new(
            Purgatory::builder("orders").timer(&timer).build().unwrap(),
            max,
        );
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

    fn seen(epoch: u64, version: u64) -> Option<Seen> {
        Some(Seen { epoch, version })
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

    /// With a lower version than before: it is another stream's.
    #[test]
    fn who_waits_when_the_versions_begin_anew_hears_of_it() {
        let orders = orders(9);
        orders.change(order("a", EPOCH_1, 7));
        let wait = |id: &str, seen| orders.wait(&id.into(), seen, SECOND);
        let (told, unknown, next) = (
            wait("a", seen(EPOCH_1, 7)),
            wait("b", seen(EPOCH_1, 0)),
            wait("a", None),
        );
        assert!(!orders.begin(EPOCH_1), "the same again");
        assert_eq!(orders.waits.len(), 3);
        assert!(orders.begin(2));
        for one in [told, unknown] {
            assert_eq!(one.wait_blocking(), Ok(News::Anew { epoch: 2 }));
        }
        assert_eq!(
            orders.waits.len(),
            1,
            "who was told nothing waits for the next change"
        );
        orders.change(order("a", 2, 1));
        assert_eq!(version(next.wait_blocking()), Some(1));
    }
}
