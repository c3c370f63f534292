//! Kafka's mechanism in small, as it was when it broke: a check runs under the operation's lock,
//! and what has completed stays in the lists of its keys until somebody walks them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use parking_lot::{Mutex, MutexGuard};
use purgatory::Outcome;

use crate::script::{AnyPurgatory, Op, OuterLock};

/// What a thread does that finds an operation's lock taken.
#[derive(Clone, Copy)]
pub enum Busy {
    /// Waits. Who would wait for ever in a script is counted, and goes on as if it had given up.
    Waits,
    /// Gives up: somebody else is checking.
    GivesUp,
    /// Leaves a flag, for the checker to look again; and tries once more, lest it has gone.
    LeavesAFlag,
}

#[derive(Clone)]
pub struct Naive(Arc<Inner>);

struct Inner {
    busy: Busy,
    lists: Mutex<HashMap<u32, Vec<Arc<Delayed>>>>,
    timer: Mutex<Vec<Arc<Delayed>>>,
    would_wait: AtomicUsize,
}

struct Delayed {
    op: Op,
    lock: OwnOrOuter,
    flag: AtomicBool,
    completed: AtomicBool,
}

/// The lock of an operation: its own, or one of the broker's.
enum OwnOrOuter {
    Own(Mutex<()>),
    Outer(Arc<OuterLock>),
}

impl OwnOrOuter {
    fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        match self {
            OwnOrOuter::Own(lock) => lock.try_lock(),
            OwnOrOuter::Outer(lock) => lock.try_lock(),
        }
    }
}

impl Naive {
    pub fn new(busy: Busy) -> Self {
        let (lists, timer, would_wait) = Default::default();
        Naive(Arc::new(Inner { busy, lists, timer, would_wait }))
    }

    fn park_with(&self, op: Op, lock: OwnOrOuter, keys: &[u32], meanwhile: impl FnOnce()) {
        let (flag, completed) = Default::default();
        let delayed = Arc::new(Delayed { op, lock, flag, completed });
        if self.try_complete(&delayed) {
            return;
        }
        for &key in keys {
            self.0.lists.lock().entry(key).or_default().push(delayed.clone());
        }
        meanwhile();
        if !self.try_complete(&delayed) {
            self.0.timer.lock().push(delayed);
        }
    }

    /// The check, under the operation's lock; and the completion, if it is true.
    fn try_complete(&self, delayed: &Arc<Delayed>) -> bool {
        loop {
            if let Some(_held) = delayed.lock.try_lock() {
                delayed.flag.store(false, SeqCst);
                if (delayed.op.check)() {
                    return self.force_complete(delayed, Outcome::Completed);
                }
            } else {
                match self.0.busy {
                    Busy::Waits => _ = self.0.would_wait.fetch_add(1, SeqCst),
                    Busy::LeavesAFlag if !delayed.flag.swap(true, SeqCst) => continue,
                    Busy::GivesUp | Busy::LeavesAFlag => {}
                }
                return false;
            }
            if !delayed.flag.load(SeqCst) {
                return false;
            }
        }
    }

    /// Whoever is first ends it. Under the operation's lock when a check came true, without it when
    /// the time ran out.
    fn force_complete(&self, delayed: &Arc<Delayed>, outcome: Outcome) -> bool {
        let first = !delayed.completed.swap(true, SeqCst);
        if first {
            self.off_the_timer(delayed);
            (delayed.op.ended)(outcome);
        }
        first
    }

    fn off_the_timer(&self, delayed: &Arc<Delayed>) {
        self.0.timer.lock().retain(|other| !Arc::ptr_eq(other, delayed));
    }

    /// What the reaper does when a thousand more have completed: walks all lists of all keys.
    pub fn purge(&self) {
        self.0.lists.lock().retain(|_, list| {
            list.retain(|delayed| !delayed.completed.load(SeqCst));
            !list.is_empty()
        });
    }
}

impl AnyPurgatory for Naive {
    fn park(&self, operation: Op, keys: &[u32]) {
        self.park_with(operation, OwnOrOuter::Own(Mutex::new(())), keys, || ());
    }

    fn park_meanwhile(
        &self,
        operation: Op,
        keys: &[u32],
        meanwhile: impl FnOnce() + Send + 'static,
    ) {
        self.park_with(operation, OwnOrOuter::Own(Mutex::new(())), keys, meanwhile);
    }

    fn park_under(&self, lock: &Arc<OuterLock>, operation: Op, keys: &[u32]) {
        self.park_with(operation, OwnOrOuter::Outer(lock.clone()), keys, || ());
    }

    fn event(&self, key: u32) -> usize {
        let list = self.0.lists.lock().get(&key).cloned().unwrap_or_default();
        let pending = list.iter().filter(|delayed| !delayed.completed.load(SeqCst));
        let completed = pending.filter(|delayed| self.try_complete(delayed)).count();
        let mut lists = self.0.lists.lock();
        if let Some(list) = lists.get_mut(&key) {
            list.retain(|delayed| !delayed.completed.load(SeqCst));
            if list.is_empty() {
                lists.remove(&key);
            }
        }
        completed
    }

    fn event_from_under_a_lock(&self, key: u32) {
        self.event(key);
    }

    fn cancel(&self, key: u32) -> usize {
        let cancelled = self.0.lists.lock().remove(&key).unwrap_or_default();
        cancelled.iter().for_each(|delayed| self.off_the_timer(delayed));
        cancelled.len()
    }

    fn expire(&self) {
        let due = std::mem::take(&mut *self.0.timer.lock());
        due.iter().for_each(|delayed| _ = self.force_complete(delayed, Outcome::Expired));
    }

    fn watched(&self) -> usize {
        self.0.lists.lock().values().map(Vec::len).sum()
    }

    fn would_wait(&self) -> usize {
        self.0.would_wait.load(SeqCst)
    }
}
