//! `KeyedTimer`: at most one pending task a key. What Kafka's coordinators use for sessions and
//! rebalances: schedule replaces, cancel goes by the key.
//!
//! A map says which task is a key's own: (serial, handle). A task that falls due runs only if it
//! still is, so whoever replaces or cancels it before it runs wins, even after its time.

use std::{
    fmt,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::{DashMap, Entry};

use crate::{
    driver::{handle::TimerHandle, panics::Apart, spi::TimerClosed},
    timers::{
        errors::ScheduleError,
        task_timer::{Replaced, TaskTimer},
        timer::Timer,
    },
};

/// Tasks `T` under keys `K`, at most one pending for each, run by one handler. A handle: clones are
/// the same timer.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{KeyedTimer, ManualTimer};
///
/// let timer = ManualTimer::new();
/// let (send, expired) = mpsc::channel();
/// let sessions = KeyedTimer::new(&timer, move |member: &str, ()| send.send(member).unwrap())?;
/// let session = Duration::from_secs(30);
///
/// sessions.schedule("alice", session, ())?;
/// sessions.schedule("bob", session, ())?;
/// timer.advance(Duration::from_secs(20));
/// sessions.schedule("alice", session, ())?; // a heartbeat replaces the task
/// timer.advance(Duration::from_secs(10));
/// assert_eq!(expired.try_iter().collect::<Vec<_>>(), ["bob"]);
/// assert!(sessions.cancel(&"alice"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Memory
/// The map gives a peak back: at each 1024th removal it shrinks, if it has room for eight times as many
/// keys as there are. That one is O(keys).
///
/// # Locks
/// The handler runs with nothing locked. A key's `Hash`, `Eq` and `Clone`, and a clock of your own,
/// run under a lock of the map, and must not call back.
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct KeyedTimer<K, T> {
    tasks: TaskTimer<Keyed<K, T>>,
    owners: Arc<Owners<K>>,
    serials: Arc<AtomicU64>,
}

/// Which task is a key's own.
struct Owners<K> {
    map: DashMap<K, Owner>,
    /// How many keys were removed.
    removed: AtomicU64,
}

/// So many keys are removed from one look at the map's room to the next.
const LOOK_EVERY: u64 = 1024;

/// A map with room for so many keys does not shrink.
const ROOM_KEPT: usize = 4096;

impl<K: Hash + Eq> Owners<K> {
    /// Counts a key that was removed; a peak is given back. Not for the holder of an entry to call.
    fn count_removed(&self) {
        if self.removed.fetch_add(1, Ordering::Relaxed) % LOOK_EVERY != LOOK_EVERY - 1 {
            return;
        }
        let room = self.map.capacity();
        if room > ROOM_KEPT && room > 8 * self.map.len() {
            self.map.shrink_to_fit();
        }
    }
}

/// A task, whose it is.
struct Keyed<K, T> {
    key: K,
    serial: u64,
    task: T,
}

#[derive(Clone, Copy)]
struct Owner {
    serial: u64,
    handle: TimerHandle,
}

impl<K, T> KeyedTimer<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Send + 'static,
{
    /// Keys and tasks of their own on `timer`, run by `handler`.
    ///
    /// # Errors
    /// [`TimerClosed`] after the timer's shutdown.
    pub fn new(
        timer: &impl Timer,
        handler: impl Fn(K, T) + Send + Sync + 'static,
    ) -> Result<Self, TimerClosed> {
        let owners = Arc::new(Owners { map: DashMap::new(), removed: AtomicU64::new(0) });
        let known = owners.clone();
        let tasks = timer.with_handler(move |keyed: Keyed<K, T>| {
            let is_own = known.map.remove_if(&keyed.key, |_, owner| owner.serial == keyed.serial);
            let is_own = Apart::new(is_own); // the map's key is dropped after the handler has run
            if is_own.get().is_some() {
                known.count_removed();
                handler(keyed.key, keyed.task);
            }
        })?;
        Ok(KeyedTimer { tasks, owners, serials: Arc::default() })
    }

    /// Schedules the key's task, in place of the one it had. O(1).
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full and the key has no
    /// task yet; what the key had stays. A key that has one takes its place, so a heartbeat is accepted
    /// at the bound, too.
    pub fn schedule(&self, key: K, delay: Duration, task: T) -> Result<(), ScheduleError<T>> {
        let replaced = match self.owners.map.entry(key) {
            Entry::Vacant(entry) => {
                let owner = self.start(entry.key().clone(), delay, task)?;
                entry.insert(owner);
                None
            }
            Entry::Occupied(mut entry) => {
                let (key, serial) = (entry.key().clone(), self.serial());
                let keyed = Keyed { key, serial, task };
                let replaced = self.tasks.replace(entry.get().handle, delay, keyed);
                let Replaced { handle, before } = replaced.map_err(unkeyed)?;
                entry.insert(Owner { serial, handle });
                before
            }
        };
        drop(replaced); // with nothing locked
        Ok(())
    }

    /// Schedules the key's task unless it has one; true if it did.
    ///
    /// # Errors
    /// As [`schedule`](Self::schedule). The task of a key that has one is dropped.
    pub fn schedule_if_absent(
        &self,
        key: K,
        delay: Duration,
        task: T,
    ) -> Result<bool, ScheduleError<T>> {
        match self.owners.map.entry(key) {
            Entry::Vacant(entry) => {
                let owner = self.start(entry.key().clone(), delay, task)?;
                entry.insert(owner);
                Ok(true)
            }
            Entry::Occupied(entry) => {
                drop(entry);
                Ok(false)
            }
        }
    }

    fn start(&self, key: K, delay: Duration, task: T) -> Result<Owner, ScheduleError<T>> {
        let serial = self.serial();
        let scheduled = self.tasks.schedule(delay, Keyed { key, serial, task });
        Ok(Owner { serial, handle: scheduled.map_err(unkeyed)? })
    }

    fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Cancels the key's task; true if that keeps it from running. O(1).
    pub fn cancel(&self, key: &K) -> bool {
        let Some((_, owner)) = self.owners.map.remove(key) else { return false };
        drop(self.tasks.cancel(owner.handle));
        self.owners.count_removed();
        true
    }

    /// Cancels every task there is when it comes by; returns how many. O(n).
    pub fn cancel_all(&self) -> usize {
        let keys = self.owners.map.iter().map(|entry| Apart::new(entry.key().clone()));
        let keys: Vec<Apart<K>> = keys.collect();
        keys.iter().filter(|key| self.cancel(key.get())).count()
    }

    /// True while the key has a task that has not run.
    pub fn contains(&self, key: &K) -> bool {
        self.owners.map.contains_key(key)
    }

    /// Keys that have a task. O(the map's shards).
    pub fn len(&self) -> usize {
        self.owners.map.len()
    }

    /// True when no key has a task.
    pub fn is_empty(&self) -> bool {
        self.owners.map.is_empty()
    }
}

fn unkeyed<K, T>(refused: ScheduleError<Keyed<K, T>>) -> ScheduleError<T> {
    ScheduleError { task: refused.task.task, reason: refused.reason }
}

impl<K, T> Clone for KeyedTimer<K, T> {
    fn clone(&self) -> Self {
        KeyedTimer {
            tasks: self.tasks.clone(),
            owners: self.owners.clone(),
            serials: self.serials.clone(),
        }
    }
}

impl<K, T> fmt::Debug for KeyedTimer<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTimer").finish_non_exhaustive()
    }
}
