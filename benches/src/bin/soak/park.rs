//! Parks operations in every way. A parked operation is later completed, rescheduled, cancelled,
//! abandoned or left to its timeout.

use std::{
    mem,
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::Duration,
};

use fastrand::Rng;
use purgatory::{
    BoxedOperation, OperationId, Outcome, ParkResult, Timeout, WaitError, Watches,
    timer_core::Moment, when,
};

use crate::{
    books::{Ending, Kind, Record, Value},
    world::{CHAIN, FRESH, LEVEL_KEYS, LEVELS, SHARED_KEYS, Shelf, World},
};

const MILLISECOND: u64 = 1_000_000;
/// The maximum number of each thing on the shelf.
const SHELF_MAX: u64 = 8;

/// A wait that records how it ended.
type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A parked operation, to act on.
pub(crate) struct Mine {
    record: Arc<Record>,
    world: Weak<World>,
    /// Its id, if it is in the plain purgatory.
    id: Option<OperationId>,
    /// Its future; `None` if a callback gets the outcome.
    wait: Option<Wait>,
    /// Makes its condition true and signals the key.
    satisfy: Box<dyn Fn(&World) + Send>,
}

impl Mine {
    /// Polls its future; true when it was ready, or there is none.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.wait
            .as_mut()
            .is_none_or(|wait| wait.as_mut().poll(&mut context).is_ready())
    }

    /// Acts on it; returns it if its future is not ready.
    pub(crate) fn act(mut self, random: &mut Rng) -> Option<Mine> {
        // Its future may be ready already.
        if self.wait.is_some() && self.is_over() {
            return None;
        }
        let Some(world) = self.world.upgrade() else {
            // Its world is closed: only a future may still be ready later.
            return if self.wait.is_some() {
                Some(self)
            } else {
                None
            };
        };

        // Drop it, change it by its id, or satisfy it.
        match (random.u32(0..100), self.id) {
            (0..4, _) => {
                // Recorded before the future drops its value.
                if self.wait.is_some() {
                    self.record.end(Ending::Dropped);
                }
                return None;
            }
            (4..8, Some(id)) => {
                let timeout = random.u64(0..1000 * MILLISECOND);
                let reschedule = || world.plain.reschedule(id, Duration::from_nanos(timeout));
                self.record.reschedule(timeout, reschedule);
            }
            (8..11, Some(id)) => _ = world.plain.cancel(id, "by its handle"),
            (11..14, Some(id)) => _ = world.plain.complete(id),
            _ => (self.satisfy)(&world),
        }
        if self.is_over() { None } else { Some(self) }
    }
}

/// Parks one operation somewhere in the world; returns it if it can be acted on.
pub(crate) fn park(world: &Arc<World>, random: &mut Rng) -> Option<Mine> {
    // Draw the kind and the timeout.
    let kind = match random.u32(0..100) {
        0..34 => Kind::Shared,
        34..50 => Kind::Fresh,
        50..64 => Kind::Levels,
        64..66 => {
            park_chain(world, random.u32(0..8));
            return None;
        }
        66..78 => Kind::Future,
        78..84 => Kind::Monitor,
        84..93 => Kind::Reply,
        _ => Kind::Watermark,
    };
    let timeout_ns = timeout_ns(random);
    let record = world.books.open(kind, timeout_ns);
    let timeout = match timeout_ns {
        None => Timeout::Never,
        Some(_) if random.u32(0..8) == 0 => Timeout::At(Moment::from_nanos(record.due_ns())),
        Some(ns) => Timeout::After(Duration::from_nanos(ns)),
    };

    // Park it. One that is refused has ended.
    let way = Way {
        world,
        record: &record,
        timeout,
        random,
    };
    let parked = match kind {
        Kind::Levels => way.levels(),
        Kind::Future => Ok(way.future()),
        Kind::Monitor => Ok(way.monitor()),
        Kind::Reply => way.reply(),
        Kind::Watermark => way.watermark(),
        _ => way.flag(kind),
    };
    match parked {
        Ok(mine) => Some(mine),
        Err(Refused) => {
            record.end(Ending::Refused);
            None
        }
    }
}

/// The error of an operation that was not accepted.
struct Refused;

/// Draws a timeout: none, zero, below a twentieth of a second, or up to three seconds.
fn timeout_ns(random: &mut Rng) -> Option<u64> {
    match random.u32(0..100) {
        0 => None,
        1 => Some(0),
        2..15 => Some(random.u64(1..50 * MILLISECOND)),
        _ => Some(random.u64(200 * MILLISECOND..3000 * MILLISECOND)),
    }
}

/// Returns the id, unless the operation ended at once.
fn parked_id(parked: ParkResult) -> Option<OperationId> {
    if let ParkResult::Parked(id) = parked {
        Some(id)
    } else {
        None
    }
}

/// One operation on its way into a world, with a method for each way.
struct Way<'a> {
    world: &'a Arc<World>,
    record: &'a Arc<Record>,
    timeout: Timeout,
    random: &'a mut Rng,
}

impl Way<'_> {
    /// Creates the handle of an operation with a callback.
    fn mine(&self, id: Option<OperationId>, satisfy: impl Fn(&World) + Send + 'static) -> Mine {
        Mine {
            record: self.record.clone(),
            world: Arc::downgrade(self.world),
            id,
            wait: None,
            satisfy: Box::new(satisfy),
        }
    }

    /// Creates the handle of an operation with a future; `completed` takes its value.
    fn awaited<T: Send + 'static>(
        &self,
        id: Option<OperationId>,
        future: impl Future<Output = Result<T, WaitError>> + Send + 'static,
        completed: impl FnOnce(T, &Record) + Send + 'static,
        satisfy: impl Fn(&World) + Send + 'static,
    ) -> Mine {
        // The future records how it ended, on any thread.
        let record = self.record.clone();
        let wait: Wait = Box::pin(async move {
            match future.await {
                Ok(value) => completed(value, &record),
                Err(error) => record.end(error),
            }
        });
        Mine {
            wait: Some(wait),
            ..self.mine(id, satisfy)
        }
    }

    /// Parks an operation in the plain purgatory; now and then its check or callback panics.
    fn plain(
        &mut self,
        watches: Watches<'_, u64>,
        mut condition: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Option<OperationId>, Refused> {
        // One in 200 panics in its first, second or third check.
        let fault = self.random.u32(0..200);
        let mut checks = self.random.u32(0..3);
        let check = move || {
            if fault == 0 && checks == 0 {
                resume_unwind(Box::new("a check that panics"));
            }
            checks = checks.saturating_sub(1);
            condition()
        };

        // One in 200 panics in its callback.
        let record = self.record.clone();
        let then = move |outcome: Outcome| {
            record.end(outcome);
            if fault == 1 {
                resume_unwind(Box::new("a callback that panics"));
            }
        };

        // Some have a label.
        let operation = when(check, then);
        let watches = if self.record.number.is_multiple_of(5) {
            watches.labelled("fifth")
        } else {
            watches
        };
        let parked = self
            .world
            .plain
            .try_complete_else_watch(operation, watches, self.timeout);
        parked.map(parked_id).map_err(|_| Refused)
    }

    /// Draws one or more keys; a key may be drawn twice.
    fn keys(&mut self, of: u64) -> Vec<u64> {
        let count = if self.random.u32(0..4) == 0 {
            self.random.usize(2..7)
        } else {
            1
        };
        (0..count).map(|_| self.random.u64(0..of)).collect()
    }

    /// Parks under shared keys, or under one that no other operation ever uses.
    fn flag(mut self, kind: Kind) -> Result<Mine, Refused> {
        let keys = if kind == Kind::Fresh {
            vec![FRESH + self.record.number]
        } else {
            self.keys(SHARED_KEYS)
        };

        // One in thirty is complete from the start.
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let seen = flag.clone();
        let id = self.plain(Watches::keys(&keys), move || seen.load(SeqCst))?;
        let one = self.random.u32(0..16) == 0;
        Ok(self.mine(id, move |world| {
            flag.store(true, SeqCst);
            if one {
                world.plain.check_and_complete_one(&keys[0]);
            } else {
                world.plain.check_and_complete(&keys[0]);
            }
        }))
    }

    /// Parks until each of some keys has reached a level.
    fn levels(mut self) -> Result<Mine, Refused> {
        // Require a level of each key, some of them reached already.
        let keys = self.keys(LEVEL_KEYS);
        let ahead = |&key: &u64| (key, self.world.level(key) + self.random.u64(0..5));
        let levels: Vec<_> = keys.iter().map(ahead).collect();

        let watched: Vec<_> = keys.iter().map(|key| LEVELS + key).collect();

        // The first level is raised to satisfy it.
        let (key, at) = levels[0];
        let weak = Arc::downgrade(self.world);
        let reached =
            move |world: Arc<World>| levels.iter().all(|&(key, at)| world.level(key) >= at);
        let id = self.plain(Watches::keys(&watched), move || {
            weak.upgrade().is_some_and(&reached)
        })?;
        Ok(self.mine(id, move |world| {
            world.levels[key as usize].fetch_max(at, SeqCst);
            world.plain.check_and_complete(&(LEVELS + key));
        }))
    }

    /// Waits under shared keys, as a future.
    fn future(mut self) -> Mine {
        // One in thirty is complete from the start.
        let keys = self.keys(SHARED_KEYS);
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let seen = flag.clone();
        let record = self.record.clone();
        let condition = move || {
            if seen.load(SeqCst) {
                Some(Value::of(&record))
            } else {
                None
            }
        };
        let future = self.world.plain.wait(&keys, self.timeout, condition);
        self.awaited(
            future.id(),
            future,
            |value, _| value.take(),
            move |world| {
                flag.store(true, SeqCst);
                world.plain.check_and_complete(&keys[0]);
            },
        )
    }

    /// Takes a thing from the monitor's shelf. It is put back unless the future yields it.
    fn monitor(self) -> Mine {
        // The condition takes the thing off the shelf under the monitor's lock.
        let key = self.random.u64(0..LEVEL_KEYS);
        let record = self.record.clone();
        let world = Arc::downgrade(self.world);
        let condition = move |shelf: &mut Shelf| {
            let things = &mut shelf[key as usize];
            *things = things.checked_sub(1)?;
            Some(Taken(Some(Thing {
                value: Value::of(&record),
                world: world.clone(),
                key,
            })))
        };

        // Putting a thing there wakes one waiter or all of them.
        let one = self.random.bool();
        let put = move |world: &World| {
            let put = |shelf: &mut Shelf| world.put(shelf, key);
            if one {
                world.monitor.update_one(&key, put);
            } else {
                world.monitor.update_key(&key, put);
            }
        };
        let future = self.world.monitor.wait(&[key], self.timeout, condition);
        self.awaited(None, future, |taken, _| taken.keep(), put)
    }

    /// Expects a reply under a key of its own, or under one that may be in use. The reply is
    /// delivered twice; the second delivery finds no waiter.
    fn reply(self) -> Result<Mine, Refused> {
        // One in eight expects under a key that may be in use, and is refused then.
        let shared = self.random.u32(0..8) == 0;
        let fresh = FRESH + self.record.number;
        let key = if shared {
            self.random.u64(0..SHARED_KEYS)
        } else {
            fresh
        };
        let reply = self.world.replies.expect(key, self.timeout);
        let reply = reply.map_err(|_| Refused)?;
        let check = move |answer, record: &Record| record.complete(answer == key);
        Ok(self.awaited(None, reply, check, move |world| {
            for _ in 0..2 {
                _ = world.replies.deliver(&key, key);
            }
        }))
    }

    /// Waits for the watermark of one key, or for each of two.
    fn watermark(self) -> Result<Mine, Refused> {
        // Draw two keys, each with a value that is reached or nearly so.
        let watermarks = &self.world.watermarks;
        let mut ahead = |first_key: u64| {
            let key = first_key + self.random.u64(0..LEVEL_KEYS);
            let value = watermarks.value(&key).unwrap_or(0) + self.random.u64(0..5);
            (key, value)
        };
        let of = [ahead(0), ahead(1 << 20)];
        let (key, value) = of[0];

        // Two advances satisfy each form.
        let advance = move |world: &World| {
            for (key, value) in &of {
                _ = world.watermarks.advance(key, *value);
            }
        };
        match self.random.u32(0..4) {
            // A callback, a future of both keys, or one of a single key.
            0 => {
                let record = self.record.clone();
                let then = move |outcome| record.end(outcome);
                let parked = watermarks.park(&key, value, self.timeout, then);
                parked.map_err(|_| Refused)?;
                Ok(self.mine(None, advance))
            }
            1 => {
                let future = watermarks.wait_for_each(&of, self.timeout);
                let check = move |reached: Vec<(u64, u64)>, record: &Record| {
                    record.complete(reached[0].1 >= of[0].1 && reached[1].1 >= of[1].1);
                };
                Ok(self.awaited(None, future, check, advance))
            }
            _ => {
                let future = watermarks.wait_for(&key, value, self.timeout);
                let check = move |reached, record: &Record| record.complete(reached >= value);
                Ok(self.awaited(None, future, check, advance))
            }
        }
    }
}

/// A thing that was taken from the shelf, and the value of the wait that took it.
struct Thing {
    value: Value,
    world: Weak<World>,
    key: u64,
}

/// Puts its thing back on the shelf when dropped, unless it was kept.
struct Taken(Option<Thing>);

impl Taken {
    fn keep(mut self) {
        let thing = self.0.take().expect("it is kept once");
        if let Some(world) = thing.world.upgrade() {
            world.taken.fetch_add(1, SeqCst);
        }
        thing.value.take();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(thing) = self.0.take()
            && let Some(world) = thing.world.upgrade()
        {
            let key = thing.key;
            let put_back = |shelf: &mut Shelf| shelf[key as usize] += 1;
            world.monitor.update_one(&key, put_back);
        }
    }
}

impl World {
    /// Puts a thing on the shelf, unless it is full.
    fn put(&self, shelf: &mut Shelf, key: u64) {
        if shelf[key as usize] < SHELF_MAX {
            shelf[key as usize] += 1;
            self.put.fetch_add(1, SeqCst);
        }
    }
}

/// Parks an operation that completes at the next signal of its key. Its callback parks the next
/// one, `remaining` times.
fn park_chain(world: &Arc<World>, remaining: u32) {
    let record = world.books.open(Kind::Chain, None);

    // The signal in the callback takes effect after the callback.
    let ends = record.clone();
    let weak = Arc::downgrade(world);
    let then = move |outcome: Outcome| {
        ends.end(outcome);
        if remaining > 0
            && let Some(world) = weak.upgrade()
        {
            park_chain(&world, remaining - 1);
            world.plain.check_and_complete(&CHAIN);
        }
    };

    // The first check is in vain, the second is not.
    let mut checked = false;
    let check = move || mem::replace(&mut checked, true);
    let operation = BoxedOperation::new(when(check, then));
    let plain = &world.plain;
    let parked = plain.try_complete_else_watch(operation, &[CHAIN], Timeout::Never);
    if parked.is_err() {
        record.end(Ending::Refused);
    }
}

/// Blocks this thread in a wait, which another thread may complete.
pub(crate) fn block(world: &Arc<World>, random: &mut Rng) {
    let timeout_ns = random.u64(0..20 * MILLISECOND);
    let timeout = Duration::from_nanos(timeout_ns);
    let record = world.books.open(Kind::Blocking, Some(timeout_ns));

    // Some checks are in vain.
    let key = random.u64(0..SHARED_KEYS);
    let completes = record.clone();
    let mut vain_checks = random.u32(0..3);
    let condition = move || {
        if vain_checks > 0 {
            vain_checks -= 1;
            return None;
        }
        Some(Value::of(&completes))
    };

    // The value completes the operation; an error says how else it ended.
    match world.plain.wait(&[key], timeout, condition).wait_blocking() {
        Ok(value) => value.take(),
        Err(error) => record.end(error),
    }
}

/// Signals, cancels or completes a random key.
pub(crate) fn signal_any(world: &World, random: &mut Rng) {
    let shared = random.u64(0..SHARED_KEYS);
    let level = random.u64(0..LEVEL_KEYS);
    match random.u32(0..40) {
        // Mostly a signal, which no operation may be waiting for.
        0..36 => _ = world.plain.check_and_complete(&shared),
        36 => _ = world.plain.cancel_for_key(&shared, "by its key"),
        37 => _ = world.plain.complete_for_key(&shared),
        38 => _ = world.plain.cancel_for_key(&(LEVELS + level), "by its key"),
        _ => _ = world.watermarks.remove(&level),
    }
}
