//! `KeyedTimer`: at most one pending task a key. What Kafka's coordinators use for sessions and
//! rebalances: schedule replaces, cancel goes by the key.
//!
//! A map keeps each key's task, with a serial number and the handle of what lies on the wheel: the
//! key and that number. What falls due runs the key's task if the number is still its own, so
//! whoever replaces, delays or cancels a task before it runs wins, even after its time.

use std::{
    borrow::Borrow,
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
    driver::{
        exclusive::Exclusive,
        handle::TimerHandle,
        panics::{Apart, contain, drop_each},
        spi::TimerClosed,
    },
    timers::{
        errors::{ScheduleError, ScheduleErrorReason},
        task_timer::TaskTimer,
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
/// assert_eq!(sessions.cancel("alice"), Some(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *Debounce*: what comes for a key is written out once nothing came for 100 ms, but at the latest
/// a second after the first.
///
/// ```
/// use std::{sync::mpsc, time::Duration};
/// use timer_core::{Clock, KeyedTimer, ManualTimer};
///
/// struct Batch { lines: Vec<u32>, at_latest_ns: u64 }
///
/// const QUIET: Duration = Duration::from_millis(100);
/// const LONGEST: Duration = Duration::from_secs(1);
///
/// let timer = ManualTimer::new();
/// let clock = timer.clock();
/// let (send, written) = mpsc::channel();
/// let batches = KeyedTimer::new(&timer, move |file: &str, batch: Batch| {
///     send.send((file, batch.lines)).unwrap();
/// })?;
/// let write = |file: &'static str, line| {
///     let now_ns = clock.now_ns();
///     let left = batches.with(file, |batch| {
///         batch.lines.push(line);
///         Duration::from_nanos(batch.at_latest_ns.saturating_sub(now_ns))
///     });
///     match left {
///         // False: it was written just now.
///         Some(left) => _ = batches.reschedule(file, QUIET.min(left)),
///         None => {
///             let at_latest_ns = now_ns + LONGEST.as_nanos() as u64;
///             let batch = Batch { lines: vec![line], at_latest_ns };
///             batches.schedule(file, QUIET, batch).unwrap();
///         }
///     }
/// };
/// for line in 0..30 {
///     write("log", line);
///     timer.advance(Duration::from_millis(50)); // never quiet for long enough
/// }
/// assert_eq!(written.try_recv()?, ("log", (0..20).collect()));
/// timer.advance(QUIET);
/// assert_eq!(written.try_recv()?, ("log", (20..30).collect()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// (Threads that write the same file at once agree by a lock around `write`, or the second
/// `schedule` would replace the first.)
///
/// Keys are looked up as in a `HashMap`: by anything that they can be borrowed as.
///
/// # Memory
/// The map gives a peak back: at each 1024th removal it shrinks, if it has room for eight times as
/// many keys as there are and for more than 4096. That one is O(keys).
///
/// # Locks
/// The handler runs with nothing locked. A key's `Hash`, `Eq` and `Clone` (its `Drop`, when a task
/// is refused), what is given to [`with`](Self::with), and a clock of your own, run under a lock of
/// the map, and must not call back.
#[must_use = "when the last handle is dropped, its tasks are dropped unrun"]
pub struct KeyedTimer<K: Hash + Eq, T> {
    pending: TaskTimer<Pending<K>>,
    tasks: Arc<Tasks<K, T>>,
    serials: Arc<AtomicU64>,
}

struct Tasks<K: Hash + Eq, T> {
    map: DashMap<K, Keyed<T>>,
    /// How many keys were removed.
    removed: AtomicU64,
}

impl<K: Hash + Eq, T> Drop for Tasks<K, T> {
    /// Drops what is left one after the other: two that panic as they are dropped would end the
    /// process.
    fn drop(&mut self) {
        for (key, keyed) in std::mem::take(&mut self.map) {
            drop_each([key]);
            drop_each([keyed]);
        }
    }
}

/// So many keys are removed from one look at the map's room to the next.
const LOOK_EVERY: u64 = 1024;

/// A map with room for so many keys does not shrink.
const ROOM_KEPT: usize = 4096;

impl<K: Hash + Eq, T> Tasks<K, T> {
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

/// A key's task.
struct Keyed<T> {
    /// Reached through the map's lock alone.
    task: Exclusive<T>,
    serial: u64,
    handle: TimerHandle,
}

impl<T> Keyed<T> {
    /// Something else lies on the wheel for it.
    fn again(&mut self, again: Option<(u64, TimerHandle)>) {
        if let Some((serial, handle)) = again {
            (self.serial, self.handle) = (serial, handle);
        }
    }
}

/// What lies on the wheel.
struct Pending<K> {
    key: K,
    serial: u64,
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
        let tasks = Arc::new(Tasks { map: DashMap::new(), removed: AtomicU64::new(0) });
        let known = tasks.clone();
        let pending = timer.with_handler(move |due: Pending<K>| {
            let own = known.map.remove_if(&due.key, |_, keyed| keyed.serial == due.serial);
            if let Some((key, keyed)) = own {
                let _key = Apart::new(key); // dropped after the handler has run
                let task = Apart::new(keyed.task.into_inner());
                let _ = contain(|| known.count_removed()); // a key's `Hash`
                handler(due.key, task.take());
            }
        })?;
        Ok(KeyedTimer { pending, tasks, serials: Arc::default() })
    }

    /// Schedules the key's task, in place of the one it had, which is handed back. O(1).
    ///
    /// # Errors
    /// [`ScheduleError`] hands the task back after shutdown, or when the timer is full and the key
    /// has no task yet; what the key had stays. A key that has one takes its place, so a heartbeat
    /// is accepted at the bound, too.
    pub fn schedule(
        &self,
        key: K,
        delay: Duration,
        task: T,
    ) -> Result<Option<T>, ScheduleError<T>> {
        match self.tasks.map.entry(key) {
            Entry::Vacant(entry) => {
                let keyed = self.start(entry.key().clone(), delay, task)?;
                entry.insert(keyed);
                Ok(None)
            }
            Entry::Occupied(mut entry) => {
                let handle = entry.get().handle;
                match self.restart(handle, delay, || entry.key().clone()) {
                    Ok(again) => {
                        entry.get_mut().again(again);
                        Ok(Some(std::mem::replace(entry.get_mut().task.get_mut(), task)))
                    }
                    Err(reason) => Err(ScheduleError::new(task, reason)),
                }
            }
        }
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
        match self.tasks.map.entry(key) {
            Entry::Vacant(entry) => {
                let keyed = self.start(entry.key().clone(), delay, task)?;
                entry.insert(keyed);
                Ok(true)
            }
            Entry::Occupied(entry) => {
                drop(entry);
                Ok(false)
            }
        }
    }

    /// Gives the key's task `delay` from now, earlier or later than before; it stays as it is, and
    /// nothing is allocated unless it has just fallen due. False if the key has none, or after
    /// shutdown. O(1).
    pub fn reschedule<Q: Hash + Eq + ?Sized>(&self, key: &Q, delay: Duration) -> bool
    where
        K: Borrow<Q>,
    {
        let Some(mut entry) = self.tasks.map.get_mut(key) else { return false };
        let restarted = self.restart(entry.handle, delay, || entry.key().clone());
        restarted.map(|again| entry.again(again)).is_ok()
    }

    /// Reaches the key's task; `None` if it has none. `reach` runs under a lock of the map: it must
    /// be short and must not call the timer. O(1).
    pub fn with<Q: Hash + Eq + ?Sized, R>(
        &self,
        key: &Q,
        reach: impl FnOnce(&mut T) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.tasks.map.get_mut(key).map(|mut keyed| reach(keyed.task.get_mut()))
    }

    /// A task for a key that has none.
    fn start(&self, key: K, delay: Duration, task: T) -> Result<Keyed<T>, ScheduleError<T>> {
        let serial = self.serial();
        match self.pending.schedule(delay, Pending { key, serial }) {
            Ok(handle) => Ok(Keyed { task: Exclusive::new(task), serial, handle }),
            Err(refused) => Err(ScheduleError::new(task, refused.reason)),
        }
    }

    /// Another delay for a key's task. When what lies on the wheel for it has fallen due already,
    /// that will do nothing, and this is what lies there instead.
    fn restart(
        &self,
        handle: TimerHandle,
        delay: Duration,
        key: impl FnOnce() -> K,
    ) -> Result<Option<(u64, TimerHandle)>, ScheduleErrorReason> {
        if self.pending.try_reschedule(handle, delay)? {
            return Ok(None);
        }
        let serial = self.serial();
        let again = self.pending.schedule_again(delay, Pending { key: key(), serial });
        Ok(Some((serial, again.map_err(|refused| refused.reason)?)))
    }

    fn serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes the key's task back, which will not run then; `None` if the key has none. O(1).
    pub fn cancel<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
    {
        let (key, keyed) = self.tasks.map.remove(key)?;
        let task = Apart::new(keyed.task.into_inner());
        drop_each([key]);
        drop_each(self.pending.cancel(keyed.handle));
        let _ = contain(|| self.tasks.count_removed()); // a key's `Hash`
        Some(task.take())
    }

    /// Cancels every task there is when it comes by; returns how many. O(n).
    pub fn cancel_all(&self) -> usize {
        let keys = self.tasks.map.iter().map(|entry| Apart::new(entry.key().clone()));
        let keys: Vec<Apart<K>> = keys.collect();
        keys.iter().filter(|key| self.cancel(key.get()).is_some()).count()
    }

    /// How many tasks panicked. Each panic was contained. (The timer's own count leaves them out.)
    pub fn panicked(&self) -> u64 {
        self.pending.panicked()
    }

    /// True while the key has a task that has not run.
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.tasks.map.contains_key(key)
    }

    /// Keys that have a task. O(the map's shards).
    pub fn len(&self) -> usize {
        self.tasks.map.len()
    }

    /// True when no key has a task.
    pub fn is_empty(&self) -> bool {
        self.tasks.map.is_empty()
    }
}

impl<K: Hash + Eq, T> Clone for KeyedTimer<K, T> {
    fn clone(&self) -> Self {
        KeyedTimer {
            pending: self.pending.clone(),
            tasks: self.tasks.clone(),
            serials: self.serials.clone(),
        }
    }
}

impl<K: Hash + Eq, T> fmt::Debug for KeyedTimer<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTimer").finish_non_exhaustive()
    }
}
