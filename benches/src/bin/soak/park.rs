//! Parking, in every way there is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use fastrand::Rng;
use purgatory::{Timeout, Watches};

use crate::{
    act::{Mine, Wait, What, wait},
    books::{Ending, Kind, Opened, Record, Value},
    key::{Key, with_fuse},
    operation::{Extra, Until, name, park_chain, park_operation},
    world::{FRESH, HOT, LEVEL_KEYS, LEVELS, SHARED_KEYS, Shelf, World},
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
        Some(ns) => match (random.u32(0..8), Duration::from_nanos(ns)) {
            (0, _) => Timeout::At(opened.now_ns + ns),
            (_, delay) => Timeout::After(delay),
        },
    };
    let record = opened.record;
    // One in some hundreds has a key that panics on the way.
    let fuse = if random.u32(0..400) == 0 { random.u32(1..16) } else { 0 };
    let way = Way { world, record: &record, timeout, random };
    match with_fuse(fuse, || way.park(kind)) {
        Some(Ok(parked)) => {
            let (what, wait) = parked?;
            return Some(Mine { world: Arc::downgrade(world), what, wait, record });
        }
        Some(Err(())) => record.end(Ending::Refused),
        None => record.unparked(),
    }
    None
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

/// What its parker may do something about; an error when it was refused.
type Parked = Result<Option<(What, Option<Wait>)>, ()>;

/// One operation on its way into a world.
struct Way<'a> {
    world: &'a Arc<World>,
    record: &'a Arc<Record>,
    timeout: Timeout,
    random: &'a mut Rng,
}

impl Way<'_> {
    fn park(self, kind: Kind) -> Parked {
        match kind {
            Kind::Hot => self.hot(),
            Kind::Levels => self.levels(),
            Kind::Future => Ok(self.future()),
            Kind::Monitor => self.monitor(),
            Kind::Reply => self.reply(),
            Kind::Watermark => self.watermark(),
            _ => self.flag(kind),
        }
    }

    /// Some of the keys of one sort, maybe one twice.
    fn keys(&mut self, of: u64) -> Vec<u64> {
        let count = if self.random.u32(0..4) == 0 { self.random.usize(2..7) } else { 1 };
        (0..count).map(|_| self.random.u64(0..of)).collect()
    }

    fn extra(&mut self) -> Extra {
        match self.random.u32(0..400) {
            0 | 1 => Extra::CheckPanics(self.random.u32(0..3)),
            2 | 3 => Extra::CallbackPanics,
            _ => Extra::Nothing,
        }
    }

    /// Under keys that others share, or that nobody else ever uses.
    fn flag(mut self, kind: Kind) -> Parked {
        let keys = match kind {
            Kind::Fresh => (0..self.random.u64(1..3)).map(|at| self.fresh(at)).collect(),
            _ => self.keys(SHARED_KEYS),
        };
        let keys: Vec<_> = keys.into_iter().map(Key).collect();
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let what = (Until::Flag(flag.clone()), self.extra());
        let watches = Watches::keys(&keys);
        let id = park_operation(self.world, self.record, what, watches, self.timeout)?;
        Ok(id.map(|id| (What::Flag(flag, Key(keys[0].0), Some(id)), None)))
    }

    fn fresh(&self, at: u64) -> u64 {
        FRESH + self.record.number * 2 + at
    }

    fn hot(self) -> Parked {
        let turn = self.world.hot.next.fetch_add(1, SeqCst);
        let (what, watches) = ((Until::Turn(turn), Extra::Nothing), Watches::keys(&[HOT]));
        park_operation(self.world, self.record, what, watches, self.timeout)?;
        Ok(None)
    }

    fn levels(mut self) -> Parked {
        let keys = self.keys(LEVEL_KEYS);
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
        let what = (Until::Levels(levels), self.extra());
        let id = park_operation(self.world, self.record, what, watches, self.timeout)?;
        Ok(id.map(|id| (What::Level(key, at, Some(id)), None)))
    }

    fn future(mut self) -> Option<(What, Option<Wait>)> {
        let keys: Vec<_> = self.keys(SHARED_KEYS).into_iter().map(Key).collect();
        let flag = Arc::new(AtomicBool::new(self.random.u32(0..30) == 0));
        let (seen, record) = (flag.clone(), self.record.clone());
        let condition = move || seen.load(SeqCst).then(|| Value::of(&record));
        let future = self.world.plain.wait_or(&keys, self.timeout, condition, Value::unclaimed);
        let what = What::Flag(flag, Key(keys[0].0), future.id());
        Some((what, wait(self.record, future, |value: Value, _| value.take())))
    }

    fn monitor(self) -> Parked {
        let (key, record) = (self.random.u64(0..LEVEL_KEYS), self.record.clone());
        let keys = [Key(key)];
        let condition = move |shelf: &mut Shelf| {
            let stock = &mut shelf[key as usize];
            *stock = stock.checked_sub(1)?;
            Some(Value::of(&record))
        };
        let world = Arc::downgrade(self.world);
        let take = move |value: Value| {
            world.upgrade().into_iter().for_each(|world| _ = world.taken.fetch_add(1, SeqCst));
            value.take();
        };
        let (monitor, timeout) = (&self.world.monitor, self.timeout);
        if self.random.u32(0..4) > 0 {
            let put_back = move |shelf: &mut Shelf, value: Value| {
                shelf[key as usize] += 1;
                value.unclaimed();
            };
            let future = monitor.wait_taking(&keys, timeout, &keys, condition, put_back);
            return Ok(Some((
                What::Shelf(key),
                wait(self.record, future, move |value, _| take(value)),
            )));
        }
        let record = self.record.clone();
        let then = move |result| match result {
            Ok(value) => take(value),
            Err(error) => record.end(Ending::from(error)),
        };
        let parked = monitor.park(&keys, timeout, condition, then).map_err(drop)?;
        Ok(name(parked).map(|_| (What::Shelf(key), None)))
    }

    /// Under a key of its own, or one that may be taken.
    fn reply(self) -> Parked {
        let shared = self.random.u32(0..8) == 0;
        let key = if shared { self.random.u64(0..SHARED_KEYS) } else { self.fresh(0) };
        let record = self.record.clone();
        let hook = move |value: Value| {
            value.back();
            record.end_unclaimed();
        };
        let reply = self.world.replies.expect_or(Key(key), self.timeout, hook).map_err(drop)?;
        let wait = wait(self.record, reply, |value, record| {
            value.back(); // the thread that delivered it may have meant another of this key
            record.complete(true);
        });
        Ok(Some((What::Reply(Key(key)), wait)))
    }

    fn watermark(self) -> Parked {
        let Way { world, record, timeout, random } = self;
        let watermarks = &world.watermarks;
        let mut ahead = |above: u64| {
            let key = Key(above + random.u64(0..LEVEL_KEYS));
            let value = watermarks.value(&key).unwrap_or(0) + random.u64(0..5);
            (key, value)
        };
        let (one, others) = (ahead(0), [ahead(1 << 20), ahead(2 << 20)]);
        let (key, value) = (Key(one.0.0), one.1);
        match random.u32(0..4) {
            0 => {
                let told = record.clone();
                let then = move |ended| told.end(ended);
                watermarks.park(&key, value, timeout, then).map_err(drop)?;
                Ok(Some((What::Watermarks(vec![one]), None)))
            }
            1 => {
                let of: Vec<_> = [one].into_iter().chain(others).collect();
                let future = watermarks.wait_for_k(2, &of, timeout).map_err(drop)?;
                let right = |reached: Vec<_>, record: &Record| record.complete(reached.len() >= 2);
                Ok(Some((What::Watermarks(of), wait(record, future, right))))
            }
            _ => {
                let future = watermarks.wait_for(&key, value, timeout);
                let right = move |reached, record: &Record| record.complete(reached >= value);
                Ok(Some((What::Watermarks(vec![one]), wait(record, future, right))))
            }
        }
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
