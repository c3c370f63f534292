//! The real `Replies`, and tasks that act as they are woken.

use std::{
    collections::BTreeMap,
    future::Future,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use purgatory::{
    OperationId, ReachResult, Replies, ReplyScope, Stats, WaitError, WaitFuture, Waits,
};
use timer_core::ManualTimer;

use super::{Act, End, SCOPES, Saw, To};

/// Each value holds one reference of the world's.
type Value = Arc<()>;

/// The task of a request.
struct Task {
    world: Arc<World>,
    number: usize,
    then: Arc<Vec<Act>>,
    panics: bool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.world.saw(Saw::Woken(self.number));
        for act in &*self.then {
            self.world.act(act);
        }
        if self.panics {
            resume_unwind(Box::new("a waker")); // past the hook, which would print it
        }
    }
}

/// The id of a request, and whether it is one of a scope.
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
    log: Mutex<Vec<Saw>>,
    /// Futures that are neither over nor dropped, by the numbers of their requests.
    futures: Mutex<BTreeMap<usize, (WaitFuture<Value>, Waker)>>,
    /// The ends of futures that are over. Their values are dropped.
    ends: Mutex<Vec<(usize, End)>>,
    ids: Mutex<Vec<Option<Id>>>,
}

impl World {
    pub(super) fn new(max: Option<usize>) -> Arc<Self> {
        let timer = ManualTimer::new();
        // The one that is made first expires first.
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

    pub(super) fn stats(&self, scoped: bool) -> Stats {
        if scoped {
            self.scoped_waits.stats()
        } else {
            self.plain_waits.stats()
        }
    }

    /// Returns the number of keys that wait.
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

    /// Returns the number of a request, counted back from the latest.
    fn back(&self, back: usize) -> Option<usize> {
        self.ids.lock().unwrap().len().checked_sub(back + 1)
    }

    fn id(&self, back: usize) -> Option<Id> {
        let number = self.back(back)?;
        self.ids.lock().unwrap()[number]
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
            Act::DeliverWith(key, ref acts, panics) => {
                let delivered = self.plain.deliver_with(&key, || {
                    let value = self.alive.clone();
                    for act in &**acts {
                        self.act(act);
                    }
                    if panics {
                        resume_unwind(Box::new("a value"));
                    }
                    value
                });
                self.saw(Saw::Delivered(delivered));
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
            Act::Drop(back) => {
                let number = self.back(back);
                let removed = number.and_then(|of| self.futures.lock().unwrap().remove(&of));
                drop(removed); // with nothing locked
            }
            Act::Cancel(back) => {
                if let Some(id) = self.id(back) {
                    let ended = self.cancel(id);
                    self.saw(Saw::Attempt(ended));
                }
            }
            Act::Reschedule(back, ms) => {
                if let Some(id) = self.id(back) {
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
        // 1. Its number among all.
        let mut ids = self.ids.lock().unwrap();
        let number = ids.len();
        ids.push(None);
        drop(ids);
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
        // 3. Its task polls it at once, and so is woken.
        let id = future.id();
        self.ids.lock().unwrap()[number] = id.map(|id| (id, matches!(to, To::Scope(_))));
        let task = Task {
            world: self.clone(),
            number,
            then: then.clone(),
            panics,
        };
        let is_over = self.poll(number, future, Waker::from(Arc::new(task)));
        self.saw(Saw::Came(number, is_over));
    }

    /// Polls a future, and keeps it if it is pending.
    fn poll(&self, number: usize, mut future: WaitFuture<Value>, waker: Waker) -> bool {
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(end) => {
                self.ends.lock().unwrap().push((number, end.map(drop)));
                true
            }
            Poll::Pending => {
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
