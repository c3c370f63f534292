//! The real `Replies`, and tasks that act when they are woken.

use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex},
    task::Waker,
    time::Duration,
};

use purgatory::{
    OperationId, ReachResult, Replies, ReplyScope, Stats, WaitError, WaitFuture, Waits,
};
use timer_core::ManualTimer;

use super::{Act, End, SCOPES, Saw, To};
use crate::acting::{Acting, Polled, poll, task};

/// A value: each holds a reference to the world's `alive`.
type Value = Arc<()>;

/// The future of a request; drops the value that it yields.
pub(super) struct Reply(WaitFuture<Value>);

impl Polled for Reply {
    type End = End;

    fn poll(&mut self, waker: &Waker) -> Option<End> {
        Some(poll(&mut self.0, waker)?.map(drop))
    }
}

/// The id of a request, and whether the request is in a scope.
type Id = (OperationId, bool);

pub(super) struct World {
    timer: ManualTimer,
    plain: Replies<u64, Value>,
    plain_waits: Waits<u64>,
    scoped: ReplyScope<Value>,
    scoped_waits: Waits<(u64, u64)>,
    /// The scopes, each with the last number that it handed out.
    scopes: Mutex<Vec<(ReplyScope<Value>, u64)>>,
    alive: Value,
    pub(super) acting: Acting<Saw, Reply, Id>,
}

impl World {
    pub(super) fn new(max: Option<usize>) -> Arc<Self> {
        let timer = ManualTimer::new();
        // The form that is made first expires first.
        let mut scoped = ReplyScope::builder("model").timer(&timer).shards(2);
        if let Some(max) = max {
            scoped = scoped.max_parked(max);
        }
        let scoped = scoped.build().unwrap();
        let mut plain = Replies::builder("model").timer(&timer).shards(2);
        if let Some(max) = max {
            plain = plain.max_parked(max);
        }
        let plain = plain.build().unwrap();
        let scopes = (0..SCOPES).map(|_| (scoped.another(), 0)).collect();
        Arc::new(World {
            plain_waits: plain.waits(),
            plain,
            scopes: Mutex::new(scopes),
            scoped_waits: scoped.waits(),
            scoped,
            timer,
            alive: Value::default(),
            acting: Acting::default(),
        })
    }

    fn saw(&self, saw: Saw) {
        self.acting.saw(saw);
    }

    /// Wakes the task of a request.
    fn woken(self: &Arc<Self>, number: usize, then: &[Act], panics: bool) {
        self.saw(Saw::Woken(number));
        for act in then {
            self.act(act);
        }
        if panics {
            resume_unwind(Box::new("a waker")); // past the hook, which would print it
        }
    }

    pub(super) fn stats(&self, scoped: bool) -> Stats {
        if scoped {
            self.scoped_waits.stats()
        } else {
            self.plain_waits.stats()
        }
    }

    /// Returns the times; they are recorded from the first call on.
    pub(super) fn times(&self, scoped: bool) -> purgatory::Times {
        match scoped {
            true => self.scoped_waits.times(),
            false => self.plain_waits.times(),
        }
    }

    /// Returns the number of waiting keys: plain ones, and those in scopes.
    pub(super) fn keys(&self) -> (usize, usize) {
        (self.plain_waits.keys(), self.scoped_waits.keys())
    }

    /// Returns the number of values that are alive.
    pub(super) fn values(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    fn scope(&self, at: usize) -> (ReplyScope<Value>, u64) {
        self.scopes.lock().unwrap()[at].clone()
    }

    fn cancel(&self, (id, scoped): Id) -> ReachResult {
        if scoped {
            self.scoped_waits.cancel(id, "by id")
        } else {
            self.plain_waits.cancel(id, "by id")
        }
    }

    fn reschedule(&self, (id, scoped): Id, ms: u64) -> bool {
        let to = Duration::from_millis(ms);
        if scoped {
            self.scoped_waits.reschedule(id, to)
        } else {
            self.plain_waits.reschedule(id, to)
        }
    }

    pub(super) fn act(self: &Arc<Self>, act: &Act) {
        match *act {
            Act::Expect(to, ms, ref then, panics) => self.expect(to, ms, then, panics),
            Act::Deliver(key) => {
                let delivered = self.plain.deliver(&key, self.alive.clone());
                self.saw(Saw::Delivered(delivered.is_ok()));
            }
            Act::DeliverIn(at, back) => {
                let (scope, last) = self.scope(at);
                self.deliver_in(&scope, last.saturating_sub(back));
            }
            Act::DeliverUpTo(at, back) => {
                let (scope, last) = self.scope(at);
                let up_to = last.saturating_sub(back);
                let confirmed = scope.deliver_up_to(up_to, self.alive.clone());
                self.saw(Saw::Confirmed(confirmed));
            }
            Act::Reassign(at, back, to_at) => {
                let (scope, last) = self.scope(at);
                let (to, _) = self.scope(to_at);
                let moved = scope.reassign(last.saturating_sub(back), &to);
                if let Ok(number) = moved {
                    self.scopes.lock().unwrap()[to_at].1 = number;
                }
                self.saw(Saw::Reassigned(moved));
            }
            Act::DeliverUnasked(at, is_zero) => {
                let (scope, last) = self.scope(at);
                self.deliver_in(&scope, if is_zero { 0 } else { last + 1 });
            }
            Act::FailAll => self.saw(Saw::Failed(self.plain.fail_all("all"))),
            Act::FailScope(at) => self.saw(Saw::Failed(self.scope(at).0.fail_all("scope"))),
            Act::Close(at) => self.saw(Saw::Failed(self.scope(at).0.close("closed"))),
            Act::Replace(at) => {
                let scope = (self.scoped.another(), 0);
                let before = std::mem::replace(&mut self.scopes.lock().unwrap()[at], scope);
                drop(before);
            }
            Act::Drop(back) => self.acting.drop_future(back),
            Act::Cancel(back) => {
                if let Some(id) = self.acting.id(back) {
                    let ended = self.cancel(id);
                    self.saw(Saw::Attempt(ended));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(id) = self.acting.id(back) {
                    self.saw(Saw::Rescheduled(self.reschedule(id, ms)));
                }
            }
            Act::Pass(ms) => self.timer.advance(Duration::from_millis(ms)),
        }
    }

    fn deliver_in(&self, scope: &ReplyScope<Value>, number: u64) {
        match scope.deliver(number, self.alive.clone()) {
            Ok(()) => self.saw(Saw::Delivered(true)),
            Err(undelivered) => self.saw(Saw::Late(undelivered.reason == WaitError::Late)),
        }
    }

    fn expect(self: &Arc<Self>, to: To, ms: u64, then: &Arc<Vec<Act>>, panics: bool) {
        // 1. Number it.
        let number = self.acting.begin();
        // 2. Expect it.
        let timeout = Duration::from_millis(ms);
        let expected = match to {
            To::Key(key) => {
                let expected = self.plain.expect(key, timeout);
                expected.map_err(|refused| refused.reason)
            }
            To::Scope(at) => {
                let (scope, _) = self.scope(at);
                let expected = scope.expect(timeout);
                if let Ok((number, _)) = &expected {
                    self.scopes.lock().unwrap()[at].1 = *number;
                }
                expected.map(|(_, reply)| reply)
            }
        };
        let future = match expected {
            Ok(future) => future,
            Err(reason) => return self.saw(Saw::Refused(number, reason)),
        };
        // 3. Its task polls it at once, so that the task is woken later.
        let id = future.id().map(|id| (id, matches!(to, To::Scope(_))));
        self.acting.named(number, id);
        let world = self.clone();
        let then = then.clone();
        let waker = task(move || world.woken(number, &then, panics));
        let is_over = self.acting.poll(number, Reply(future), waker);
        self.saw(Saw::Came(number, is_over));
    }
}
