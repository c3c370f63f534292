//! The orders, and who waits for one to change. There is one way in for a change, wherever it comes from:
//! it is first stored, then the event of its order is raised, so whoever waits sees it.
//!
//! *Memory bounded*: so many orders are kept; of more, the one that has not changed for the longest is
//! forgotten, as if it had never been.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

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
    /// The number of its last change; later changes, of whichever order, have higher ones.
    pub version: u64,
    /// What the last change made it.
    pub state: Arc<str>,
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
    /// The highest version there was.
    position: u64,
}

impl Orders {
    /// None yet; requests for them wait in this purgatory.
    pub fn new(waits: Purgatory<OrderId, BoxedOperation>, orders_max: usize) -> Orders {
        let (orders, by_version) = (HashMap::new(), BTreeMap::new());
        let kept = Kept { orders, by_version, orders_max, position: 0 };
        Orders { kept: Arc::new(Mutex::new(kept)), waits }
    }

    /// An order has changed elsewhere. What is not new changes nothing.
    pub fn change(&self, order: Order) {
        let id = order.id.clone();
        self.kept.lock().store(order); // the condition first ...
        self.waits.check_and_complete(&id); // ... then its event
    }

    /// Changes an order here, where there is nobody else to number the changes; returns its version.
    pub fn change_here(&self, id: OrderId, state: Arc<str>) -> u64 {
        let mut kept = self.kept.lock();
        let version = kept.position + 1;
        kept.store(Order { id: id.clone(), version, state });
        drop(kept);
        self.waits.check_and_complete(&id);
        version
    }

    /// A future of the order in a later version than `seen`, or than now. Dropped, it waits no more.
    pub fn wait(&self, id: &OrderId, seen: Option<u64>, timeout: Duration) -> WaitFuture<Order> {
        let seen = seen
            .unwrap_or_else(|| self.kept.lock().orders.get(id).map_or(0, |order| order.version));
        let (kept, order) = (self.kept.clone(), id.clone());
        let later = move || kept.lock().orders.get(&order).filter(|it| it.version > seen).cloned();
        self.waits.wait(std::slice::from_ref(id), timeout, later)
    }

    /// The highest version there was, of any order.
    pub fn position(&self) -> u64 {
        self.kept.lock().position
    }

    /// How many are kept.
    pub fn count(&self) -> usize {
        self.kept.lock().orders.len()
    }

    /// Forgets all of them: the versions begin anew.
    pub fn forget(&self) {
        let mut kept = self.kept.lock();
        (kept.orders, kept.by_version, kept.position) = Default::default();
    }

    /// Where requests wait.
    pub fn waits(&self) -> &Purgatory<OrderId, BoxedOperation> {
        &self.waits
    }
}

impl Kept {
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

    fn orders(max: usize) -> Orders {
        let timer = ManualTimer::new();
        Orders::new(Purgatory::builder("orders").timer(&timer).build().unwrap(), max)
    }

    fn order(id: &str, version: u64) -> Order {
        Order { id: id.into(), version, state: "new".into() }
    }

    #[test]
    fn the_longest_unchanged_is_forgotten() {
        let orders = orders(2);
        for (id, version) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            orders.change(order(id, version));
        }
        assert_eq!((orders.count(), orders.position()), (2, 4));
        for (id, known) in [("a", Some(3)), ("b", None), ("c", Some(4))] {
            let found = orders.wait(&id.into(), Some(0), Duration::ZERO).block();
            assert_eq!(found.ok().map(|order| order.version), known, "{id}");
        }
        assert_eq!(orders.kept.lock().by_version.len(), 2);
    }

    #[test]
    fn a_repeated_or_older_change_changes_nothing() {
        let orders = orders(9);
        for version in [5, 5, 4] {
            orders.change(order("a", version));
        }
        let expected = Err(WaitError::Expired);
        assert_eq!(orders.wait(&"a".into(), Some(5), Duration::ZERO).block(), expected);
        assert_eq!(orders.position(), 5);
    }

    #[test]
    fn a_wait_is_for_what_comes_after() {
        let orders = orders(9);
        orders.change(order("a", 1));
        let (next, known) =
            (orders.wait(&"a".into(), None, SECOND), orders.wait(&"a".into(), Some(0), SECOND));
        assert_eq!((known.block(), orders.waits.len()), (Ok(order("a", 1)), 1));
        orders.change(order("b", 2));
        assert_eq!(orders.waits.len(), 1);
        orders.change(order("a", 3));
        assert_eq!(next.block(), Ok(order("a", 3)));
    }

    #[test]
    fn versions_may_begin_anew() {
        let orders = orders(9);
        orders.change(order("a", 7));
        orders.forget();
        let next = orders.wait(&"a".into(), None, SECOND);
        orders.change(order("a", 1));
        assert_eq!(next.block(), Ok(order("a", 1)));
    }
}
