//! A model of Kafka's mechanism as it was when it broke: a check runs under the operation's lock,
//! and completed operations stay in the lists of their keys until a thread walks them.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use parking_lot::{Mutex, MutexGuard};
use purgatory::Outcome;

use crate::script::{AnyPurgatory, Meanwhile, Op, OuterLock, Under};

/// The choice of a thread that finds an operation's lock taken.
#[derive(Clone, Copy)]
pub enum Busy {
    /// Waits. A thread that would wait for ever is counted, and goes on as if it had given up.
    Waits,
    /// The thread gives up: another one is checking.
    GivesUp,
    /// It leaves a flag, so that the checker checks again; and tries once more, in case it has
    /// finished.
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
    /// The operation's lock: its own, or one of the broker's.
    lock: Arc<OuterLock>,
    flag: AtomicBool,
    completed: AtomicBool,
}

impl Naive {
    pub fn new(busy: Busy) -> Self {
        Naive(Arc::new(Inner {
            busy,
            lists: Default::default(),
            timer: Default::default(),
            would_wait: Default::default(),
        }))
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

    /// The first call ends it. Under the operation's lock when a check came true, without it when
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
        self.0
            .timer
            .lock()
            .retain(|other| !Arc::ptr_eq(other, delayed));
    }

    /// The reaper's purge after a thousand completions: walks all lists of all keys.
    pub fn purge(&self) {
        self.0.lists.lock().retain(|_, list| {
            list.retain(|delayed| !delayed.completed.load(SeqCst));
            !list.is_empty()
        });
    }
}

impl AnyPurgatory for Naive {
    fn park_with(&self, op: Op, keys: &[u32], under: Under<'_>, meanwhile: Meanwhile) {
        let lock = under.cloned().unwrap_or_else(|| OuterLock::new().0);
        let delayed = Arc::new(Delayed {
            op,
            lock,
            flag: AtomicBool::new(false),
            completed: AtomicBool::new(false),
        });
        if self.try_complete(&delayed) {
            return;
        }
        for &key in keys {
            self.0
                .lists
                .lock()
                .entry(key)
                .or_default()
                .push(delayed.clone());
        }
        if let Some(act) = meanwhile {
            act();
        }
        if !self.try_complete(&delayed) {
            self.0.timer.lock().push(delayed);
        }
    }

    fn event(&self, key: u32) -> usize {
        let list = self.0.lists.lock().get(&key).cloned().unwrap_or_default();
        let pending = list
            .iter()
            .filter(|delayed| !delayed.completed.load(SeqCst));
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

    fn event_under(&self, _held: MutexGuard<'_, ()>, key: u32) {
        self.event(key);
    }

    fn cancel(&self, key: u32) -> usize {
        let cancelled = self.0.lists.lock().remove(&key).unwrap_or_default();
        for delayed in &cancelled {
            self.off_the_timer(delayed);
        }
        cancelled.len()
    }

    fn expire(&self) {
        let due = std::mem::take(&mut *self.0.timer.lock());
        for delayed in &due {
            _ = self.force_complete(delayed, Outcome::Expired);
        }
    }

    fn watched(&self) -> usize {
        self.0.lists.lock().values().map(Vec::len).sum()
    }

    fn would_wait(&self) -> usize {
        self.0.would_wait.load(SeqCst)
    }
}
