//! Parks operations in every way there is. A parked operation is later completed, rescheduled,
//! cancelled, given up or left to its time.

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
    BoxedOperation, DelayedOperation, OperationId, Outcome, ParkResult, Timeout, WaitError,
    Watches, when,
};

use crate::{
    books::{Ending, Kind, Record, Value},
    world::{CHAIN, FRESH, LEVEL_KEYS, LEVELS, SHARED_KEYS, Shelf, World},
};

const MILLISECOND: u64 = 1_000_000;
/// There is no more on the shelf of each thing.
const SHELF_MAX: u64 = 8;

/// A wait that tells the books how it ended.
type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An operation that was parked.
pub(crate) struct Mine {
    record: Arc<Record>,
    world: Weak<World>,
    /// Its name in the plain purgatory, if it is there.
    id: Option<OperationId>,
    /// The future that is waited for; without it a callback is told the outcome.
    wait: Option<Wait>,
    /// Makes its condition true and raises the event.
    bring_about: Box<dyn Fn(&World) + Send>,
}

/// An operation with a weight of its own.
struct Weighed {
    operation: BoxedOperation,
    weight: u64,
}

impl DelayedOperation for Weighed {
    fn try_complete(&mut self) -> bool {
        self.operation.try_complete()
    }

    fn on_complete(self, outcome: Outcome) {
        self.operation.on_complete(outcome);
    }

    fn weight(&self) -> u64 {
        self.weight
    }
}

impl Mine {
    /// Takes what it waits for, if it waits. True when there is nothing to be waited for.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.wait
            .as_mut()
            .is_none_or(|wait| wait.as_mut().poll(&mut context).is_ready())
    }

    /// Does something to it; gives back what is still to be waited for.
    pub(crate) fn act(mut self, random: &mut Rng) -> Option<Mine> {
        if self.wait.is_some() && self.is_over() {
            return None;
        }
        let Some(world) = self.world.upgrade() else {
            return self.wait.is_some().then_some(self);
        };
        match (random.u32(0..100), self.id) {
            (0..4, _) => {
                if self.wait.is_some() {
                    self.record.end(Ending::Dropped); // before its value is dropped
                }
                return None;
            }
            (4..8, Some(id)) => {
                let timeout = random.u64(0..1000 * MILLISECOND);
                let given = || world.plain.reschedule(id, Duration::from_nanos(timeout));
                self.record.reschedule(timeout, given);
            }
            (8..11, Some(id)) => _ = world.plain.cancel(id, "by its handle"),
            (11..14, Some(id)) => _ = world.plain.complete(id),
            _ => (self.bring_about)(&world),
        }
        (!self.is_over()).then_some(self)
    }
}

/// Parks one operation somewhere in the world; it comes back if something may be done about it.
pub(crate) fn park(world: &Arc<World>, random: &mut Rng) -> Option<Mine> {
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
        Some(_) if random.u32(0..8) == 0 => Timeout::At(record.due_ns()),
        Some(ns) => Timeout::After(Duration::from_nanos(ns)),
    };
    let way = Way {
        world,
        record: &record,
        timeout,
        random,
    };
    let parked = match kind {
        Kind::Levels => way.levels(),
        Kind::Future => Ok(way.future()),
        Kind::Monitor => way.monitor(),
        Kind::Reply => way.reply(),
        Kind::Watermark => way.watermark(),
        _ => way.flag(kind),
    };
    parked.map_err(|()| record.end(Ending::Refused)).ok()
}

/// None, hardly any, below a twentieth of a second, or seconds.
fn timeout_ns(random: &mut Rng) -> Option<u64> {
    match random.u32(0..100) {
        0 => None,
        1 => Some(0),
        2..15 => Some(random.u64(1..50 * MILLISECOND)),
        _ => Some(random.u64(200 * MILLISECOND..3000 * MILLISECOND)),
    }
}

/// Its name, unless it was over at once.
fn name(parked: ParkResult) -> Option<OperationId> {
    if let ParkResult::Parked(id) = parked {
        Some(id)
    } else {
        None
    }
}

/// One operation on its way into a world. Each way gives an error when it was refused.
struct Way<'a> {
    world: &'a Arc<World>,
    record: &'a Arc<Record>,
    timeout: Timeout,
    random: &'a mut Rng,
}

impl Way<'_> {
    fn mine(&self, id: Option<OperationId>, act: impl Fn(&World) + Send + 'static) -> Mine {
        let world = Arc::downgrade(self.world);
        Mine {
            record: self.record.clone(),
            world,
            id,
            wait: None,
            bring_about: Box::new(act),
        }
    }

    /// The same with a future, and with the function that takes its value.
    fn awaited<T: Send + 'static>(
        &self,
        id: Option<OperationId>,
        future: impl Future<Output = Result<T, WaitError>> + Send + 'static,
        completed: impl FnOnce(T, &Record) + Send + 'static,
        act: impl Fn(&World) + Send + 'static,
    ) -> Mine {
        let record = self.record.clone();
        let wait: Wait = Box::pin(async move {
            match future.await {
                Ok(value) => completed(value, &record),
                Err(error) => record.end(error),
            }
        });
        Mine {
            wait: Some(wait),
            ..self.mine(id, act)
        }
    }

    /// Parks an operation in the plain purgatory; now and then its check or callback panics.
    fn plain(
        &mut self,
        watches: Watches<'_, u64>,
        mut condition: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Option<OperationId>, ()> {
        let (record, fault) = (self.record.clone(), self.random.u32(0..200));
        let mut looks = self.random.u32(0..3);
        let check = move || {
            if fault == 0 && looks == 0 {
                resume_unwind(Box::new("a check that panics"));
            }
            looks = looks.saturating_sub(1);
            condition()
        };
        let then = move |outcome: Outcome| {
            record.end(outcome);
            if fault == 1 {
                resume_unwind(Box::new("a callback that panics"));
            }
        };
        let weight = self.record.number % 5;
        let operation = BoxedOperation::new(Weighed {
            operation: when(check, then),
            weight,
        });
        let watches = if weight == 0 {
            watches.labelled("weightless")
        } else {
            watches
        };
        let parked = self
            .world
            .plain
            .try_complete_else_watch(operation, watches, self.timeout);
        parked.map(name).map_err(drop)
    }

    /// Draws keys of one sort; a key may be drawn twice.
    fn keys(&mut self, of: u64) -> Vec<u64> {
        let count = if self.random.u32(0..4) == 0 {
            self.random.usize(2..7)
        } else {
            1
        };
        (0..count).map(|_| self.random.u64(0..of)).collect()
    }

    /// Parks under keys that others share, or that nothing else ever uses.
    fn flag(mut self, kind: Kind) -> Result<Mine, ()> {
        let fresh = FRESH + self.record.number;
        let keys = if kind == Kind::Fresh {
            vec![fresh]
        } else {
            self.keys(SHARED_KEYS)
        };
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let seen = flag.clone();
        let id = self.plain(Watches::keys(&keys), move || seen.load(SeqCst))?;
        let one = self.random.u32(0..16) == 0;
        Ok(self.mine(id, move |world| {
            flag.store(true, SeqCst);
            match one {
                true => _ = world.plain.check_and_complete_one(&keys[0]),
                false => _ = world.plain.check_and_complete(&keys[0]),
            }
        }))
    }

    /// Parks under watermarks, in each form of watch.
    fn levels(mut self) -> Result<Mine, ()> {
        let (keys, weak) = (self.keys(LEVEL_KEYS), Arc::downgrade(self.world));
        let ahead = |&key: &u64| (key, self.world.level(key) + self.random.u64(0..5));
        let levels: Vec<_> = keys.iter().map(ahead).collect();
        let watches: Vec<_> = levels.iter().map(|&(key, at)| (LEVELS + key, at)).collect();
        let plain: Vec<_> = keys.iter().map(|key| LEVELS + key).collect();
        let watches = match self.random.u32(0..3) {
            0 => Watches::up_to(&watches).checked(),
            1 => Watches::up_to(&watches).with_keys(&plain),
            _ => Watches::up_to(&watches),
        };
        let (key, at) = levels[0];
        let reached = move |world: Arc<World>| levels.iter().all(|&(k, v)| world.level(k) >= v);
        let id = self.plain(watches, move || weak.upgrade().is_some_and(&reached))?;
        Ok(self.mine(id, move |world| {
            world.levels[key as usize].fetch_max(at, SeqCst);
            world.plain.complete_up_to(&(LEVELS + key), at);
        }))
    }

    fn future(mut self) -> Mine {
        let keys = self.keys(SHARED_KEYS);
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let (seen, record) = (flag.clone(), self.record.clone());
        let condition = move || seen.load(SeqCst).then(|| Value::of(&record));
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

    /// Takes something from the monitor's shelf, where it goes back unless it is kept.
    fn monitor(self) -> Result<Mine, ()> {
        let (key, value) = (self.random.u64(0..LEVEL_KEYS), self.record.clone());
        let shelf = Arc::downgrade(self.world);
        let condition = move |stock: &mut Shelf| {
            let left = stock[key as usize].checked_sub(1)?;
            stock[key as usize] = left;
            Some(Taken(Some((Value::of(&value), shelf.clone(), key))))
        };
        let one = self.random.bool();
        let put = move |world: &World| match one {
            true => world
                .monitor
                .update_one(&key, |shelf| world.put(shelf, key)),
            false => world
                .monitor
                .update_key(&key, |shelf| world.put(shelf, key)),
        };
        let future = self.world.monitor.wait(&[key], self.timeout, condition);
        Ok(self.awaited(None, future, |taken, _| taken.keep(), put))
    }

    /// Expects a reply under a key of its own, or one that may be taken. The reply is delivered
    /// twice; the second delivery finds no waiter.
    fn reply(self) -> Result<Mine, ()> {
        let shared = self.random.u32(0..8) == 0;
        let fresh = FRESH + self.record.number;
        let key = if shared {
            self.random.u64(0..SHARED_KEYS)
        } else {
            fresh
        };
        let reply = self.world.replies.expect(key, self.timeout).map_err(drop)?;
        let right = move |answer, record: &Record| record.complete(answer == key);
        Ok(self.awaited(None, reply, right, move |world| {
            let _delivered = [(); 2].map(|()| world.replies.deliver(&key, key));
        }))
    }

    /// Waits for the watermark of one key, or for two of three.
    fn watermark(self) -> Result<Mine, ()> {
        let watermarks = &self.world.watermarks;
        let mut ahead = |above: u64| {
            let key = above + self.random.u64(0..LEVEL_KEYS);
            (
                key,
                watermarks.value(&key).unwrap_or(0) + self.random.u64(0..5),
            )
        };
        let of = [ahead(0), ahead(1 << 20), ahead(2 << 20)];
        let (key, value) = of[0];
        let raise = move |world: &World| {
            for (key, value) in &of[..2] {
                let _ = world.watermarks.advance(key, *value);
            }
        };
        match self.random.u32(0..4) {
            0 => {
                let told = self.record.clone();
                let then = move |ended| told.end(ended);
                watermarks
                    .park(&key, value, self.timeout, then)
                    .map_err(drop)?;
                Ok(self.mine(None, raise))
            }
            1 => {
                let future = watermarks.wait_for_k(2, &of, self.timeout);
                let right = |reached: Vec<_>, record: &Record| record.complete(reached.len() >= 2);
                Ok(self.awaited(None, future, right, raise))
            }
            _ => {
                let future = watermarks.wait_for(&key, value, self.timeout);
                let right = move |reached, record: &Record| record.complete(reached >= value);
                Ok(self.awaited(None, future, right, raise))
            }
        }
    }
}

/// One of a thing on the shelf, which goes back there unless it is kept.
struct Taken(Option<(Value, Weak<World>, u64)>);

impl Taken {
    fn keep(mut self) {
        let (value, world, _) = self.0.take().expect("it is kept once");
        world
            .upgrade()
            .into_iter()
            .for_each(|world| _ = world.taken.fetch_add(1, SeqCst));
        value.take();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some((_, world, key)) = self.0.take()
            && let Some(world) = world.upgrade()
        {
            world
                .monitor
                .update_one(&key, |stock| stock[key as usize] += 1);
        }
    }
}

impl World {
    /// Puts something on the shelf, unless it is full.
    fn put(&self, shelf: &mut Shelf, key: u64) {
        if shelf[key as usize] < SHELF_MAX {
            shelf[key as usize] += 1;
            self.put.fetch_add(1, SeqCst);
        }
    }
}

/// Parks an operation that completes at the next event of its key, and whose callback parks the
/// next one, `left` times.
fn park_chain(world: &Arc<World>, left: u32) {
    let record = world.books.open(Kind::Chain, None);
    let (told, weak, mut looked) = (record.clone(), Arc::downgrade(world), false);
    let then = move |outcome: Outcome| {
        told.end(outcome);
        if left > 0
            && let Some(world) = weak.upgrade()
        {
            park_chain(&world, left - 1);
            world.plain.check_and_complete(&CHAIN); // after this callback
        }
    };
    let operation = BoxedOperation::new(when(move || mem::replace(&mut looked, true), then));
    if world
        .plain
        .try_complete_else_watch(operation, &[CHAIN], Timeout::Never)
        .is_err()
    {
        record.end(Ending::Refused);
    }
}

/// Blocks this thread in a wait, which another thread may complete.
pub(crate) fn block(world: &Arc<World>, random: &mut Rng) {
    let timeout = Duration::from_nanos(random.u64(0..20 * MILLISECOND));
    let record = world
        .books
        .open(Kind::Blocking, Some(timeout.as_nanos() as u64));
    let (key, value) = (random.u64(0..SHARED_KEYS), record.clone());
    let (looks, mut looked) = (random.u32(0..3), 0);
    let condition = move || {
        looked += 1;
        (looked > looks).then(|| Value::of(&value))
    };
    match world.plain.wait(&[key], timeout, condition).wait_blocking() {
        Ok(value) => value.take(),
        Err(error) => record.end(error),
    }
}

/// Raises an event that is for no operation in particular.
pub(crate) fn happen(world: &World, random: &mut Rng) {
    let shared = random.u64(0..SHARED_KEYS);
    let level = random.u64(0..LEVEL_KEYS);
    match random.u32(0..40) {
        0..36 => _ = world.plain.check_and_complete(&shared),
        36 => _ = world.plain.cancel_for_key(&shared, "by its key"),
        37 => _ = world.plain.complete_for_key(&shared),
        38 => _ = world.plain.cancel_for_key(&(LEVELS + level), "by its key"),
        _ => _ = world.watermarks.remove(&level),
    }
}
