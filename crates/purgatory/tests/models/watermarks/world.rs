//! The real `Watermarks`, and tasks that act as they are woken.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use purgatory::{OperationId, Outcome, WaitError, WaitFuture, WatermarkValue, Watermarks};
use timer_core::ManualTimer;

use super::{Act, End, Key, Kind, Plan, Saw};

/// A type of values, as it stands for the model's numbers.
pub(super) trait Value: WatermarkValue {
    fn of(number: u64) -> Self;

    fn number(self) -> u64;

    fn add(watermarks: &Watermarks<Key, Self>, key: Key, by: u64) -> Result<usize, WaitError>;
}

impl Value for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(self) -> u64 {
        self
    }

    fn add(watermarks: &Watermarks<Key, Self>, key: Key, by: u64) -> Result<usize, WaitError> {
        watermarks.add(&key, by)
    }
}

/// The lowest number is the lowest value, the highest one the highest.
impl Value for i64 {
    fn of(number: u64) -> Self {
        match number {
            0 => i64::MIN,
            1 => i64::MIN + 1,
            u64::MAX => i64::MAX,
            _ => number as i64 - 10,
        }
    }

    fn number(self) -> u64 {
        match self {
            i64::MIN => 0,
            i64::MAX => u64::MAX,
            _ if self == i64::MIN + 1 => 1,
            _ => (self + 10) as u64,
        }
    }

    fn add(watermarks: &Watermarks<Key, Self>, key: Key, by: u64) -> Result<usize, WaitError> {
        let before = watermarks.value(&key).map_or(0, Value::number);
        watermarks.advance(&key, Value::of(before.saturating_add(by)))
    }
}

enum Future1<V> {
    One(Key, WaitFuture<V>),
    Several(WaitFuture<Vec<(Key, V)>>),
}

impl<V: Value> Future1<V> {
    fn poll(&mut self, waker: &Waker) -> Option<End> {
        let mut context = Context::from_waker(waker);
        let number = |(key, value): (Key, V)| (key, value.number());
        let polled = match self {
            Future1::One(key, wait) => {
                let key = *key;
                let end = Pin::new(wait).poll(&mut context);
                end.map_ok(|value| vec![number((key, value))])
            }
            Future1::Several(wait) => {
                let end = Pin::new(wait).poll(&mut context);
                end.map_ok(|of| of.into_iter().map(number).collect())
            }
        };
        match polled {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    fn id(&self) -> Option<OperationId> {
        match self {
            Future1::One(_, wait) => wait.id(),
            Future1::Several(wait) => wait.id(),
        }
    }
}

/// The task of a wait.
struct Task<V: Value> {
    world: Arc<World<V>>,
    number: usize,
    plan: Arc<Plan>,
}

impl<V: Value> Wake for Task<V> {
    fn wake(self: Arc<Self>) {
        self.world.saw(Saw::Woken(self.number));
        self.world.then(&self.plan);
    }
}

pub(super) struct World<V: Value> {
    timer: ManualTimer,
    pub(super) watermarks: Watermarks<Key, V>,
    log: Mutex<Vec<Saw>>,
    /// Futures that are neither over nor dropped, by the numbers of their waits.
    futures: Mutex<BTreeMap<usize, (Future1<V>, Waker)>>,
    /// The ends of futures that are over.
    ends: Mutex<Vec<(usize, End)>>,
    /// The id of each wait that was parked.
    ids: Mutex<Vec<Option<OperationId>>>,
}

impl<V: Value> World<V> {
    pub(super) fn new(shards: usize) -> Arc<Self> {
        let timer = ManualTimer::new();
        let builder = Watermarks::builder("model").timer(&timer).shards(shards);
        Arc::new(World {
            watermarks: builder.build().unwrap().with_values(),
            timer,
            log: Mutex::default(),
            futures: Mutex::default(),
            ends: Mutex::default(),
            ids: Mutex::default(),
        })
    }

    fn saw(&self, saw: Saw) {
        self.log.lock().unwrap().push(saw);
    }

    pub(super) fn take_log(&self) -> Vec<Saw> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Does the acts of a waker or callback.
    fn then(self: &Arc<Self>, plan: &Plan) {
        for act in &plan.then {
            self.act(act);
        }
        if plan.then_panics {
            resume_unwind(Box::new("a waker or callback")); // past the hook, which would print it
        }
    }

    /// The number of a wait, counted back from the latest.
    fn wait_back(&self, back: usize) -> Option<usize> {
        self.ids.lock().unwrap().len().checked_sub(back + 1)
    }

    fn id_back(&self, back: usize) -> Option<OperationId> {
        let number = self.wait_back(back)?;
        self.ids.lock().unwrap()[number]
    }

    pub(super) fn act(self: &Arc<Self>, act: &Act) {
        let watermarks = &self.watermarks;
        match *act {
            Act::Wait(ref plan) => self.wait(plan),
            Act::Advance(key, None, value) => {
                self.saw(Saw::Changed(watermarks.advance(&key, V::of(value))));
            }
            Act::Advance(key, Some(epoch), value) => {
                self.saw(Saw::Changed(watermarks.advance_in(
                    &key,
                    epoch,
                    V::of(value),
                )));
            }
            Act::Add(key, by) => self.saw(Saw::Changed(V::add(watermarks, key, by))),
            Act::Remove(key) => self.saw(Saw::Changed(Ok(watermarks.remove(&key)))),
            Act::Close(key) => self.saw(Saw::Changed(Ok(watermarks.close(&key, "closed")))),
            Act::Begin(key, epoch, value, false) => {
                let begun = watermarks.begin_epoch(&key, epoch, V::of(value));
                self.saw(Saw::Changed(begun));
            }
            Act::Begin(key, epoch, value, true) => {
                let begun = watermarks.begin_epoch_and_keep(&key, epoch, V::of(value));
                self.saw(Saw::Changed(begun));
            }
            Act::Drop(back) => {
                let number = self.wait_back(back);
                let removed =
                    number.and_then(|number| self.futures.lock().unwrap().remove(&number));
                drop(removed); // with nothing locked
            }
            Act::Cancel(back) => {
                if let Some(id) = self.id_back(back) {
                    self.saw(Saw::Attempt(watermarks.waits().cancel(id, "by id")));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(id) = self.id_back(back) {
                    let to = Duration::from_millis(ms);
                    self.saw(Saw::Rescheduled(watermarks.waits().reschedule(id, to)));
                }
            }
            Act::Pass(ms) => self.timer.advance(Duration::from_millis(ms)),
        }
    }

    fn wait(self: &Arc<Self>, plan: &Arc<Plan>) {
        // 1. Its number.
        let mut ids = self.ids.lock().unwrap();
        let number = ids.len();
        ids.push(None);
        drop(ids);
        // 2. Park it.
        let timeout = Duration::from_millis(plan.ms);
        let mut members = Vec::new();
        for &(key, threshold) in &plan.members {
            members.push((key, V::of(threshold)));
        }
        let (key, threshold) = members[0];
        let future = match plan.kind {
            Kind::Callback => return self.park(number, plan),
            Kind::One => Future1::One(key, self.watermarks.wait_for(&key, threshold, timeout)),
            Kind::OneIn(epoch) => {
                let wait = self.watermarks.wait_for_in(&key, epoch, threshold, timeout);
                Future1::One(key, wait)
            }
            Kind::Each => Future1::Several(self.watermarks.wait_for_each(&members, timeout)),
        };
        // 3. Its task polls it at once, and so is woken.
        self.ids.lock().unwrap()[number] = future.id();
        let task = Task {
            world: self.clone(),
            number,
            plan: plan.clone(),
        };
        let waker = Waker::from(Arc::new(task));
        let is_over = self.poll(number, future, waker);
        self.saw(Saw::Came(number, is_over));
    }

    fn park(self: &Arc<Self>, number: usize, plan: &Arc<Plan>) {
        let (key, threshold) = plan.members[0];
        let timeout = Duration::from_millis(plan.ms);
        let world = self.clone();
        let of = plan.clone();
        let then = move |outcome: Outcome| {
            world.saw(Saw::Called(number, outcome));
            world.then(&of);
        };
        let parked = self.watermarks.park(&key, V::of(threshold), timeout, then);
        let id = parked.unwrap();
        self.ids.lock().unwrap()[number] = id;
        self.saw(Saw::Came(number, id.is_none()));
    }

    /// Polls a future, and keeps it if it is pending.
    fn poll(&self, number: usize, mut future: Future1<V>, waker: Waker) -> bool {
        match future.poll(&waker) {
            Some(end) => {
                self.ends.lock().unwrap().push((number, end));
                true
            }
            None => {
                self.futures.lock().unwrap().insert(number, (future, waker));
                false
            }
        }
    }

    /// Polls all futures, and returns the ends of those that are over.
    pub(super) fn poll_all(&self) -> Vec<(usize, End)> {
        let futures = std::mem::take(&mut *self.futures.lock().unwrap());
        for (number, (future, waker)) in futures {
            self.poll(number, future, waker);
        }
        std::mem::take(&mut *self.ends.lock().unwrap())
    }
}
