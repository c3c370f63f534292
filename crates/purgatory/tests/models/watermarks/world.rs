//! The real `Watermarks`, and tasks that act when they are woken.

use std::{panic::resume_unwind, sync::Arc, task::Waker, time::Duration};

use purgatory::{OperationId, Outcome, WaitError, WaitFuture, WatermarkValue, Watermarks};
use timer_core::ManualTimer;

use super::{Act, End, Key, Kind, Plan, Saw};
use crate::acting::{Acting, Polled, poll, task};

/// A type of values: how it stands for the numbers of the model.
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

/// The lowest number is the lowest value, and the highest number the highest value.
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

pub(super) enum Future1<V> {
    One(Key, WaitFuture<V>),
    Unwanted(Key, WaitFuture<()>),
    Several(WaitFuture<Vec<(Key, V)>>),
}

impl<V: Value> Polled for Future1<V> {
    type End = End;

    fn poll(&mut self, waker: &Waker) -> Option<End> {
        let number = |(key, value): (Key, V)| (key, value.number());
        Some(match self {
            Future1::One(key, wait) => poll(wait, waker)?.map(|value| vec![(*key, value.number())]),
            Future1::Unwanted(key, wait) => poll(wait, waker)?.map(|()| vec![(*key, 0)]),
            Future1::Several(wait) => {
                poll(wait, waker)?.map(|of| of.into_iter().map(number).collect())
            }
        })
    }
}

impl<V> Future1<V> {
    fn id(&self) -> Option<OperationId> {
        match self {
            Future1::One(_, wait) => wait.id(),
            Future1::Unwanted(_, wait) => wait.id(),
            Future1::Several(wait) => wait.id(),
        }
    }
}

pub(super) struct World<V: Value> {
    timer: ManualTimer,
    pub(super) watermarks: Watermarks<Key, V>,
    pub(super) acting: Acting<Saw, Future1<V>, OperationId>,
}

impl<V: Value> World<V> {
    pub(super) fn new(shards: usize, max: Option<usize>, keys_max: usize) -> Arc<Self> {
        let timer = ManualTimer::new();
        let mut builder = Watermarks::builder("model").timer(&timer).shards(shards);
        builder = builder.keys_max(keys_max);
        if let Some(max) = max {
            builder = builder.max_parked(max);
        }
        Arc::new(World {
            watermarks: builder.build().unwrap().with_values(),
            timer,
            acting: Acting::default(),
        })
    }

    fn saw(&self, saw: Saw) {
        self.acting.saw(saw);
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

    pub(super) fn act(self: &Arc<Self>, act: &Act) {
        let watermarks = &self.watermarks;
        match *act {
            Act::Wait(ref plan) => self.wait(plan),
            Act::Advance(key, None, value) => {
                self.saw(Saw::Changed(watermarks.advance(&key, V::of(value))));
            }
            Act::Advance(key, Some(epoch), value) => {
                let in_epoch = watermarks.in_epoch(&key, epoch);
                self.saw(Saw::Changed(in_epoch.advance(V::of(value))));
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
            Act::Drop(back) => self.acting.drop_future(back),
            Act::Cancel(back) => {
                if let Some(id) = self.acting.id(back) {
                    self.saw(Saw::Attempt(watermarks.waits().cancel(id, "by id")));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(id) = self.acting.id(back) {
                    let to = Duration::from_millis(ms);
                    self.saw(Saw::Rescheduled(watermarks.waits().reschedule(id, to)));
                }
            }
            Act::Pass(ms) => self.timer.advance(Duration::from_millis(ms)),
        }
    }

    fn wait(self: &Arc<Self>, plan: &Arc<Plan>) {
        // 1. Park it.
        let number = self.acting.begin();
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
                let wait = self
                    .watermarks
                    .in_epoch(&key, epoch)
                    .wait_for(threshold, timeout);
                Future1::One(key, wait)
            }
            Kind::Wanted => Future1::One(key, self.watermarks.wanted(&key, timeout)),
            Kind::Unwanted => Future1::Unwanted(key, self.watermarks.unwanted(&key, timeout)),
            Kind::Each => Future1::Several(self.watermarks.wait_for_each(&members, timeout)),
        };
        // 2. Its task polls it at once, so that the task is woken later.
        self.acting.named(number, future.id());
        let world = self.clone();
        let plan = plan.clone();
        let waker = task(move || {
            world.saw(Saw::Woken(number));
            world.then(&plan);
        });
        let is_over = self.acting.poll(number, future, waker);
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
        match parked {
            Ok(id) => {
                self.acting.named(number, id);
                self.saw(Saw::Came(number, id.is_none()));
            }
            Err(refused) => self.saw(Saw::Refused(number, refused.reason.clone())),
        }
    }
}
