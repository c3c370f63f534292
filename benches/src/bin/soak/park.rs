//! Parking, in every way there is.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use purgatory::{BoxedOperation, OperationId, ParkResult, Timeout, Watches};

use crate::{
    books::{Ending, Kind, Opened, Record, Value},
    key::{Key, with_fuse},
    mine::{Mine, What},
    operation::{Extra, Operation, Until, park_chain},
    world::{FRESH, HOT, HOT_KEYS, LEVEL_KEYS, LEVELS, SHARED_KEYS, Shelf, World},
};

const MILLISECOND: u64 = 1_000_000;

/// Parks one operation somewhere in the world; what its parker may do something about comes back.
pub(crate) fn park(world: &Arc<World>, random: &mut Rng) -> Option<Mine> {
    let kind = match random.u32(0..100) {
        0..34 => Kind::Shared,
        34..50 => Kind::Fresh,
        50..56 => Kind::Hot,
        56..64 => Kind::Levels,
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
    let opened = world.account.open(kind, timeout_ns);
    let timeout = match timeout_ns {
        None => Timeout::Never,
        Some(ns) if random.u32(0..8) == 0 => Timeout::At(opened.now_ns + ns),
        Some(ns) => Timeout::After(Duration::from_nanos(ns)),
    };
    let record = opened.record;
    // One in some hundreds has a key that panics on the way.
    let fuse = if random.u32(0..400) == 0 { random.u32(1..16) } else { 0 };
    let way = Way { world, record: &record, timeout, random };
    match with_fuse(fuse, || way.park(kind)) {
        Some(what) => Some(Mine { world: Arc::downgrade(world), what: what?, record }),
        None => {
            record.unparked();
            None
        }
    }
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

/// One operation on its way into a world.
struct Way<'a> {
    world: &'a Arc<World>,
    record: &'a Arc<Record>,
    timeout: Timeout,
    random: &'a mut Rng,
}

impl Way<'_> {
    fn park(self, kind: Kind) -> Option<What> {
        match kind {
            Kind::Hot => self.hot(),
            Kind::Levels => self.levels(),
            Kind::Future => Some(self.future()),
            Kind::Monitor => self.monitor(),
            Kind::Reply => self.reply(),
            Kind::Watermark => self.watermark(),
            _ => self.flag(kind),
        }
    }

    fn world(&self) -> Weak<World> {
        Arc::downgrade(self.world)
    }

    /// Some of the keys of one sort, maybe one twice.
    fn keys(&mut self, above: u64, of: u64) -> Vec<u64> {
        let count = if self.random.u32(0..4) == 0 { self.random.usize(2..7) } else { 1 };
        (0..count).map(|_| above + self.random.u64(0..of)).collect()
    }

    fn extra(&mut self) -> Extra {
        match self.random.u32(0..400) {
            0 | 1 => Extra::CheckPanics(self.random.u32(0..3)),
            2 | 3 => Extra::CallbackPanics,
            _ => Extra::Nothing,
        }
    }

    fn operation(
        &self,
        until: Until,
        extra: Extra,
        watches: Watches<'_, Key>,
    ) -> Option<OperationId> {
        let operation = Operation { record: self.record.clone(), until, extra };
        let operation = BoxedOperation::new(operation);
        match self.world.plain.try_complete_else_watch(operation, watches, self.timeout) {
            Ok(ParkResult::Parked(id)) => Some(id),
            Ok(_) => None,
            Err(refused) => {
                drop(refused.into_operation());
                self.record.end(Ending::Refused);
                None
            }
        }
    }

    /// Under keys that others share, or that nobody else ever uses.
    fn flag(mut self, kind: Kind) -> Option<What> {
        let keys = match kind {
            Kind::Fresh => (0..self.random.u64(1..3)).map(|at| self.fresh(at)).collect(),
            _ => self.keys(0, SHARED_KEYS),
        };
        let keys: Vec<_> = keys.into_iter().map(Key).collect();
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let (until, extra) = (Until::Flag(flag.clone()), self.extra());
        let id = self.operation(until, extra, Watches::keys(&keys))?;
        Some(What::Flag(flag, Key(keys[0].0), id))
    }

    fn fresh(&self, at: u64) -> u64 {
        FRESH + self.record.number * 2 + at
    }

    fn hot(self) -> Option<What> {
        let key = self.random.u64(0..HOT_KEYS);
        let turn = self.world.hot[key as usize].next.fetch_add(1, SeqCst);
        let until = Until::Turn(self.world(), key as usize, turn);
        self.operation(until, Extra::Nothing, Watches::keys(&[Key(HOT + key)]));
        None
    }

    fn levels(mut self) -> Option<What> {
        let keys = self.keys(0, LEVEL_KEYS);
        let ahead = |&key: &u64| {
            (key, self.world.levels[key as usize].load(SeqCst) + self.random.u64(0..5))
        };
        let levels: Vec<_> = keys.iter().map(ahead).collect();
        let watches: Vec<_> = levels.iter().map(|&(key, at)| (Key(LEVELS + key), at)).collect();
        let plain: Vec<_> = keys.iter().map(|key| Key(LEVELS + key)).collect();
        let watches = match self.random.u32(0..3) {
            0 => Watches::up_to(&watches).checked(),
            1 => Watches::up_to(&watches).with_keys(&plain),
            _ => Watches::up_to(&watches),
        };
        let (key, at) = levels[0];
        let until = Until::Levels(self.world(), levels);
        let extra = self.extra();
        Some(What::Level(key, at, self.operation(until, extra, watches)?))
    }

    fn future(mut self) -> What {
        let keys: Vec<_> = self.keys(0, SHARED_KEYS).into_iter().map(Key).collect();
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let (seen, record) = (flag.clone(), self.record.clone());
        let condition = move || seen.load(SeqCst).then(|| Value::of(&record));
        let future = self.world.plain.wait_or(&keys, self.timeout, condition, Value::unclaimed);
        What::Future(flag, Key(keys[0].0), future)
    }

    fn monitor(self) -> Option<What> {
        let (key, record) = (self.random.u64(0..LEVEL_KEYS), self.record.clone());
        let keys = [Key(key)];
        let condition = move |shelf: &mut Shelf| {
            let stock = &mut shelf[key as usize];
            *stock = stock.checked_sub(1)?;
            Some(Value::of(&record))
        };
        let (monitor, timeout) = (&self.world.monitor, self.timeout);
        if self.random.u32(0..4) > 0 {
            let put_back = move |shelf: &mut Shelf, value: Value| {
                shelf[key as usize] += 1;
                value.unclaimed();
            };
            let future = monitor.wait_taking(&keys, timeout, &keys, condition, put_back);
            return Some(What::Shelf(key, future));
        }
        let (record, world) = (self.record.clone(), self.world());
        let then = move |result| match result {
            Ok(value) => {
                Value::take(value);
                world.upgrade().into_iter().for_each(|world| _ = world.taken.fetch_add(1, SeqCst));
            }
            Err(error) => record.end(Ending::from(error)),
        };
        match monitor.park(&keys, timeout, condition, then) {
            Ok(ParkResult::Parked(_)) => Some(What::Shelves(key)),
            Ok(_) => None,
            Err(_) => {
                self.record.end(Ending::Refused);
                None
            }
        }
    }

    /// Under a key of its own, or one that may be taken.
    fn reply(self) -> Option<What> {
        let shared = self.random.u32(0..8) == 0;
        let key = if shared { self.random.u64(0..SHARED_KEYS) } else { self.fresh(0) };
        let record = self.record.clone();
        let hook = move |value: Value| {
            value.back();
            record.end_unclaimed();
        };
        match self.world.replies.expect_or(Key(key), self.timeout, hook) {
            Ok(reply) => Some(What::Reply(Key(key), reply)),
            Err(_) => {
                self.record.end(Ending::Refused);
                None
            }
        }
    }

    fn watermark(self) -> Option<What> {
        let Way { world, record, timeout, random } = self;
        let watermarks = &world.watermarks;
        let mut ahead = |above: u64| {
            let key = Key(above + random.u64(0..LEVEL_KEYS));
            let value = watermarks.value(&key).unwrap_or(0) + random.u64(0..5);
            (key, value)
        };
        let ((key, value), others) = (ahead(0), [ahead(1 << 20), ahead(2 << 20)]);
        let parked = match random.u32(0..4) {
            0 => {
                let told = record.clone();
                let parked = watermarks.park(&key, value, timeout, move |ended| told.end(ended));
                parked.ok().map(|_| What::Watermarks(key, value))
            }
            1 => {
                let [second, third] = others;
                let of = [(key, value), second, third];
                let future = watermarks.wait_for_k(2, &of, timeout);
                future.ok().map(|future| What::Quorum(of, future))
            }
            _ => {
                let future = watermarks.wait_for(&key, value, timeout);
                Some(What::Watermark(key, value, future))
            }
        };
        if parked.is_none() {
            record.end(Ending::Refused);
        }
        parked
    }
}

/// Waits on this thread, for what another does or for nothing.
pub(crate) fn block(world: &Arc<World>, random: &mut Rng) {
    let timeout = Duration::from_nanos(random.u64(0..20 * MILLISECOND));
    let Opened { record, .. } = world.account.open(Kind::Blocking, Some(timeout.as_nanos() as u64));
    let (key, value) = (Key(random.u64(0..SHARED_KEYS)), record.clone());
    let looks = random.u32(0..3);
    let mut looked = 0;
    let condition = move || {
        looked += 1;
        (looked > looks).then(|| Value::of(&value))
    };
    match world.plain.wait_blocking(&[key], timeout, condition) {
        Ok(value) => value.take(),
        Err(error) => record.end(error),
    }
}
