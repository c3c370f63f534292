//! What a thread has parked and holds in its hands, and what becomes of it: it is completed,
//! rescheduled, cancelled, given up or left to its time; and the events that are for no operation
//! in particular.

use std::{
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Waker},
    time::Duration,
};

use fastrand::Rng;
use purgatory::{OperationId, WaitError};

use crate::{
    books::{Ending, Record, Value},
    key::{Key, with_fuse},
    world::{HOT, LEVEL_KEYS, LEVELS, SHARED_KEYS, World},
};

/// So many wait for the hot key at least, once there have been so many.
const HOT_WAITERS: u64 = 2000;
/// There is no more on the shelf of each thing.
const SHELF_MAX: u64 = 8;

/// Something that was parked.
pub(crate) struct Mine {
    pub(crate) record: Arc<Record>,
    pub(crate) world: Weak<World>,
    pub(crate) what: What,
    /// What is waited for; without it a callback is told the outcome.
    pub(crate) wait: Option<Wait>,
}

/// What may bring it about.
pub(crate) enum What {
    /// It completes when the flag is set; its name in the plain purgatory.
    Flag(Arc<AtomicBool>, Key, Option<OperationId>),
    /// When the level of a key reaches a value.
    Level(u64, u64, Option<OperationId>),
    /// When there is something on the shelf.
    Shelf(u64),
    Reply(Key),
    /// When the watermark of a key reaches a value, or two of three do.
    Watermarks(Vec<(Key, u64)>),
}

/// A wait that tells the books how it ended.
pub(crate) type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A wait with a record, and what is done with what it yields.
pub(crate) fn wait<T: Send + 'static>(
    record: &Arc<Record>,
    future: impl Future<Output = Result<T, WaitError>> + Send + 'static,
    completed: impl FnOnce(T, &Record) + Send + 'static,
) -> Option<Wait> {
    let record = record.clone();
    Some(Box::pin(async move {
        match future.await {
            Ok(value) => completed(value, &record),
            Err(error) => record.end(error),
        }
    }))
}

impl Mine {
    /// Takes what it waits for, if it waits. True when there is nothing to be waited for.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.wait.as_mut().is_none_or(|wait| wait.as_mut().poll(&mut context).is_ready())
    }

    /// Its name in the plain purgatory, if it is there.
    pub(crate) fn id(&self) -> Option<OperationId> {
        match self.what {
            What::Flag(_, _, id) | What::Level(_, _, id) => id,
            _ => None,
        }
    }

    /// Gives it up, if it is waited for; what is not goes on without us. What is to end with its
    /// world, which is going, comes back.
    pub(crate) fn leave(mut self) -> Option<Mine> {
        if self.is_over() {
            return None;
        }
        let Some(_open) = self.world.upgrade() else { return Some(self) };
        self.record.end(Ending::Dropped); // before: the hook looks
        drop(self);
        None
    }
}

/// Does something to what was parked; gives back what is still to be waited for.
pub(crate) fn act(mut mine: Mine, random: &mut Rng) -> Option<Mine> {
    if mine.wait.is_some() && mine.is_over() {
        return None;
    }
    let Some(world) = mine.world.upgrade() else { return mine.leave() };
    if random.u32(0..100) < 8 {
        return if random.bool() { mine.leave() } else { let_expire(&world, mine, random) };
    }
    let fuse = if random.u32(0..400) == 0 { random.u32(1..16) } else { 0 };
    with_fuse(fuse, || bring_about(&world, &mine, fuse > 0, random));
    (!mine.is_over()).then_some(mine)
}

/// Leaves it to its time, which may be made another before.
fn let_expire(world: &World, mine: Mine, random: &mut Rng) -> Option<Mine> {
    if let Some(id) = mine.id() {
        let timeout = random.u64(0..1_000_000_000);
        let given = || world.plain.reschedule(id, Duration::from_nanos(timeout));
        mine.record.reschedule(timeout, given);
    }
    mine.wait.is_some().then_some(mine)
}

/// Makes its condition true and raises the event, in one of the ways there are; or ends it from
/// outside. Keys may panic in it, or not.
fn bring_about(world: &World, mine: &Mine, panics: bool, random: &mut Rng) {
    match (&mine.what, mine.id()) {
        (_, Some(id)) if random.u32(0..100) < 6 => match random.bool() {
            true => _ = world.plain.cancel(id, "by its handle"),
            false => _ = world.plain.complete(id),
        },
        (What::Flag(flag, key, _), _) => {
            flag.store(true, SeqCst);
            raise(world, key, random);
        }
        (What::Level(key, value, _), _) => rise(world, *key, *value, random),
        (What::Shelf(key), _) => put(world, *key, random),
        (What::Reply(key), _) => deliver(world, key, (!panics).then_some(&mine.record)),
        (What::Watermarks(of), _) => {
            let out = if of.len() > 2 { random.usize(0..of.len()) } else { of.len() };
            for (_, (key, value)) in of.iter().enumerate().filter(|(at, _)| *at != out) {
                let _ = world.watermarks.raise(key, *value);
            }
        }
    }
}

/// The event of a key, for all or for one, now or later.
fn raise(world: &World, key: &Key, random: &mut Rng) {
    match random.u32(0..16) {
        0 => _ = world.plain.check_and_complete_one(key),
        1 => world.plain.defer(key.clone()),
        2 => {
            world.plain.defer(key.clone());
            world.plain.run_deferred();
        }
        _ => _ = world.plain.check_and_complete(key),
    }
}

fn rise(world: &World, key: u64, value: u64, random: &mut Rng) {
    world.levels[key as usize].fetch_max(value, SeqCst);
    let key = Key(LEVELS + key);
    match random.u32(0..16) {
        0 => world.plain.defer_up_to(key, value),
        1 => _ = world.plain.check_and_complete(&key), // for those with plain keys, too
        _ => _ = world.plain.complete_up_to(&key, value),
    }
}

/// Puts something on the shelf, unless it is full.
fn put(world: &World, key: u64, random: &mut Rng) {
    let put = |shelf: &mut Vec<u64>| {
        let stock = &mut shelf[key as usize];
        if *stock < SHELF_MAX {
            *stock += 1;
            world.put.fetch_add(1, SeqCst);
        }
    };
    match random.u32(0..2000) {
        0 => world.monitor.update(put),
        1..200 => world.monitor.update_keys(|shelf| (put(shelf), [Key(key)])),
        200..1000 => world.monitor.update_key(&Key(key), put),
        _ => world.monitor.update_one(&Key(key), put),
    }
}

/// Delivers the reply, and once more, which nobody waits for then. Without a record in a call that
/// the key may panic in, which drops what it delivers.
fn deliver(world: &World, key: &Key, record: Option<&Arc<Record>>) {
    for _ in 0..2 {
        if let Err(value) = world.replies.deliver(key, Value(record.cloned())) {
            value.back();
        }
    }
}

/// Events that are for no operation in particular.
pub(crate) fn happen(world: &World, random: &mut Rng) {
    let fuse = if random.u32(0..40) == 0 { random.u32(1..16) } else { 0 };
    with_fuse(fuse, || match random.u32(0..400) {
        0..200 => turn(world),
        200..380 => _ = world.plain.check_and_complete(&Key(random.u64(0..SHARED_KEYS))),
        380..390 => _ = world.plain.cancel_for_key(&Key(random.u64(0..SHARED_KEYS)), "by its key"),
        390..396 => _ = world.plain.complete_for_key(&Key(random.u64(0..SHARED_KEYS))),
        396..398 => {
            let key = LEVELS + random.u64(0..LEVEL_KEYS);
            world.plain.cancel_for_key(&Key(key), "by its key");
        }
        _ => _ = world.watermarks.remove(&Key(random.u64(0..LEVEL_KEYS))),
    });
}

/// The turns of the hot key come, but for the last thousands.
fn turn(world: &World) {
    let come = world.hot.next.load(SeqCst).saturating_sub(HOT_WAITERS);
    world.hot.come.fetch_max(come, SeqCst);
    world.plain.check_and_complete(&HOT);
}
