//! The real purgatory, and operations in it that do what their plans say and write down what they
//! see.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{Hash, Hasher},
    panic::resume_unwind,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use purgatory::{
    BoxedOperation, DelayedOperation, OperationId, Outcome, ParkResult, Purgatory, WaitFuture,
    Watches,
};
use timer_core::{Clock, Executor, Job, ManualTimer, TickLength, Timer, WheelSize};

use super::steps::{
    Act, Key, PARKED_MAX, Pick, Plan, Request, Returned, Runs, Saw, Setup, Style, Values, beside,
};

pub type Real = Purgatory<Alike, BoxedOperation>;

/// A key that shares its hash with others: 2 with 3, 4 with 5, and each with some of the hundreds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike(pub Key);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u32(self.0 % 97 / 2);
    }
}

pub struct World {
    timer: ManualTimer,
    quarter_ns: u64,
    operations_max: usize,
    drops_jobs: bool,
    handle: Mutex<Option<Real>>,
    log: Mutex<Vec<Saw>>,
    state: Mutex<State>,
    futures: Mutex<BTreeMap<usize, WaitFuture<u32>>>,
    jobs: Kept,
    closed: AtomicBool,
    shut_down: AtomicBool,
    /// Operations that exist, parked or not.
    pub alive: AtomicUsize,
    /// Those dropped in this step, in order.
    dropped: Mutex<Vec<usize>>,
}

#[derive(Default)]
struct State {
    values: Values,
    /// Of each operation there ever was.
    flags: Vec<bool>,
    /// Of those that were parked.
    ids: Vec<(usize, OperationId)>,
}

/// An executor that keeps its jobs.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<VecDeque<Job>>>);

impl Executor for Kept {
    fn execute(&self, job: Job) {
        self.0.lock().unwrap().push_back(job);
    }
}

/// An operation that follows its plan.
struct Planned {
    world: Arc<World>,
    request: Request,
    look: u32,
}

impl Planned {
    fn new(world: &Arc<World>, request: Request) -> Self {
        world.alive.fetch_add(1, Relaxed);
        Planned { world: world.clone(), request, look: 0 }
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        self.world.alive.fetch_sub(1, Relaxed);
        self.world.dropped.lock().unwrap().push(self.request.number);
    }
}

impl DelayedOperation for Planned {
    fn try_complete(&mut self) -> bool {
        self.look += 1;
        let number = self.request.number;
        self.world.saw(Saw::Check { operation: number, look: self.look });
        for act in self.request.acts_at(self.look) {
            self.world.act(Some(number), act);
        }
        if self.request.plan.panics_at == Some(self.look) {
            resume_unwind(Box::new("a check")); // past the hook, which would print it
        }
        let state = self.world.state.lock().unwrap();
        self.request.holds(self.look, state.flags[number], &state.values)
    }

    fn on_complete(self, outcome: Outcome) {
        let plan = self.request.plan.clone();
        self.world.saw(Saw::Callback(self.request.number, outcome));
        plan.then.iter().for_each(|act| self.world.act(Some(self.request.number), act));
        if plan.then_panics {
            resume_unwind(Box::new("a callback"));
        }
    }
}

/// Writes down that a future's task was woken.
struct Woken {
    world: Arc<World>,
    number: usize,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.world.saw(Saw::Woken(self.number));
    }
}

impl World {
    pub fn new(setup: &Setup) -> Arc<World> {
        let tick = TickLength::new(Duration::from_nanos(setup.tick_ns)).unwrap();
        let timer = ManualTimer::with(tick, WheelSize::new(setup.slots).unwrap());
        timer.advance(Duration::from_nanos(setup.start_ns));
        let mut builder = Purgatory::builder("model").timer(&timer).rooms(setup.rooms);
        if let Some(max) = setup.max_parked {
            builder = builder.max_parked(max);
        }
        let jobs = Kept::default();
        if setup.executor != Runs::Inline {
            builder = builder.executor(jobs.clone());
        }
        if setup.all_on_executor {
            builder = builder.callbacks_on_executor();
        }
        Arc::new(World {
            handle: Mutex::new(Some(builder.build().unwrap())),
            timer,
            quarter_ns: setup.tick_ns / 4,
            operations_max: setup.operations_max,
            drops_jobs: setup.executor == Runs::Dropped,
            log: Mutex::default(),
            state: Mutex::default(),
            futures: Mutex::default(),
            jobs,
            closed: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            alive: AtomicUsize::new(0),
            dropped: Mutex::default(),
        })
    }

    fn saw(&self, saw: Saw) {
        self.log.lock().unwrap().push(saw);
    }

    /// What was seen since the last call, and which operations were dropped.
    pub fn take_log(&self) -> (Vec<Saw>, Vec<usize>) {
        let log = std::mem::take(&mut *self.log.lock().unwrap());
        (log, std::mem::take(&mut *self.dropped.lock().unwrap()))
    }

    /// A handle of the purgatory, unless the last one was dropped.
    pub fn handle(&self) -> Option<Real> {
        self.handle.lock().unwrap().clone()
    }

    fn learn(&self, number: usize, id: OperationId) {
        self.state.lock().unwrap().ids.push((number, id));
    }

    fn pick_id(&self, own: Option<usize>, pick: Pick) -> Option<OperationId> {
        let ids = &self.state.lock().unwrap().ids;
        let own = own.and_then(|own| ids.iter().find(|&&(number, _)| number == own).copied());
        pick.of(own, ids).map(|(_, id)| id)
    }

    fn pick_future(&self, own: Option<usize>, pick: Pick) -> Option<(usize, WaitFuture<u32>)> {
        let mut futures = self.futures.lock().unwrap();
        let numbers: Vec<usize> = futures.keys().copied().collect();
        futures.remove_entry(&pick.of(own, &numbers)?)
    }

    /// Calls the purgatory with a handle of its own, which is dropped before this returns.
    fn call(&self, call: impl FnOnce(&Real) -> Returned) -> Option<Returned> {
        let handle = self.handle()?;
        Some(call(&handle))
    }

    fn count(&self, call: impl FnOnce(&Real) -> usize) -> Option<Returned> {
        self.call(|purgatory| Returned::Counted(call(purgatory)))
    }

    fn raise(&self, key: Key, by: u64) -> u64 {
        let value = &mut self.state.lock().unwrap().values[key as usize];
        *value += by;
        *value
    }

    /// A step, or for `own` a part of its check or callback.
    pub fn act(self: &Arc<Self>, own: Option<usize>, act: &Act) {
        let returned = match act {
            Act::Park(plan) => self.park(plan),
            Act::ParkMany(count, plan) => {
                let park = Act::Park(plan.clone());
                (0..*count).for_each(|_| self.act(own, &park));
                None
            }
            Act::Several(acts) => {
                acts.iter().for_each(|act| self.act(own, act));
                None
            }
            Act::SetFlag(pick) => {
                let flags = &mut self.state.lock().unwrap().flags;
                let numbers: Vec<usize> = (0..flags.len()).collect();
                pick.of(own, &numbers).into_iter().for_each(|number| flags[number] = true);
                None
            }
            Act::SetAllFlags => self.set_all_flags(),
            Act::Event(key) => self.count(|purgatory| purgatory.check_and_complete(&Alike(*key))),
            Act::EventForOne(key) => {
                self.count(|waits| waits.check_and_complete_one(&Alike(*key)).into())
            }
            Act::Events(keys) => {
                let event = |purgatory: &Real, key| purgatory.check_and_complete(&Alike(key));
                self.count(|purgatory| keys.iter().map(|&key| event(purgatory, key)).sum())
            }
            Act::Rise(key, by) => {
                let value = self.raise(*key, *by);
                self.count(|purgatory| purgatory.complete_up_to(&Alike(*key), value))
            }
            Act::Claim(key, by) => {
                let value = beside(self.raise(*key, 0), *by);
                self.count(|purgatory| purgatory.complete_up_to(&Alike(*key), value))
            }
            Act::CancelKey(key) => {
                self.count(|purgatory| purgatory.cancel_for_key(&Alike(*key), "by key"))
            }
            Act::Cancel(pick) => self.pick_id(own, *pick).and_then(|id| {
                self.call(|purgatory| Returned::Attempt(purgatory.cancel(id, "by id")))
            }),
            Act::Complete(pick) => self
                .pick_id(own, *pick)
                .and_then(|id| self.call(|purgatory| Returned::Attempt(purgatory.complete(id)))),
            Act::Reschedule(pick, when) => self.pick_id(own, *pick).and_then(|id| {
                let timeout = when.from(self.timer.clock().now_ns(), self.quarter_ns);
                self.call(|purgatory| Returned::Rescheduled(purgatory.reschedule(id, timeout)))
            }),
            Act::Advance(_) | Act::Pass(_) | Act::ToNext => {
                self.let_time_pass(act);
                None
            }
            Act::Poll(pick) => self.poll(own, *pick),
            Act::DropFuture(pick) => {
                drop(self.pick_future(own, *pick));
                None
            }
            Act::Block => own.and_then(|_| {
                let (_, future) = self.pick_future(own, Pick::Recent(0))?;
                Some(Returned::Ready(future.wait_blocking()))
            }),
            Act::RunJob | Act::RunJobs if own.is_some() && self.shut_down.load(Relaxed) => None,
            Act::RunJob | Act::RunJobs => {
                while self.run_job() && matches!(act, Act::RunJobs) {}
                None
            }
            Act::Shutdown => {
                self.handle().into_iter().for_each(|purgatory| {
                    self.closed.store(true, Relaxed);
                    self.shut_down.store(true, Relaxed);
                    purgatory.shutdown(Duration::ZERO);
                });
                None
            }
            Act::ShutdownTimer => {
                self.closed.store(true, Relaxed);
                self.shut_down.store(true, Relaxed);
                self.timer.shutdown(Duration::MAX);
                None
            }
            Act::DropHandle => {
                self.closed.store(true, Relaxed);
                drop(self.take_handle());
                None
            }
        };
        returned.into_iter().for_each(|returned| self.saw(Saw::Returned(returned)));
    }

    fn set_all_flags(&self) -> Option<Returned> {
        self.state.lock().unwrap().flags.fill(true);
        None
    }

    fn let_time_pass(&self, act: &Act) {
        match act {
            Act::Advance(quarters) => self.timer.advance(self.quarters(*quarters)),
            Act::Pass(quarters) => self.timer.pass(self.quarters(*quarters)),
            _ => {
                let from_ns = self.timer.clock().now_ns();
                self.timer.advance_to_next();
                self.saw(Saw::Jumped(self.timer.clock().now_ns() - from_ns));
            }
        }
    }

    fn run_job(&self) -> bool {
        let job = self.jobs.0.lock().unwrap().pop_front();
        let run = if self.drops_jobs { drop } else { Job::run };
        job.map(run).is_some()
    }

    fn quarters(&self, count: u64) -> Duration {
        Duration::from_nanos(count.saturating_mul(self.quarter_ns))
    }

    fn take_handle(&self) -> Option<Real> {
        self.handle.lock().unwrap().take()
    }

    fn request(&self, plan: &Arc<Plan>) -> Request {
        let now_ns = self.timer.clock().now_ns();
        let mut state = self.state.lock().unwrap();
        state.flags.push(false);
        Request::new(state.flags.len() - 1, plan, now_ns, self.quarter_ns, &state.values)
    }

    fn park(self: &Arc<Self>, plan: &Arc<Plan>) -> Option<Returned> {
        let handle = self.handle()?;
        let all = self.state.lock().unwrap().flags.len();
        if handle.len() >= PARKED_MAX || all >= self.operations_max {
            return None;
        }
        let request = self.request(plan);
        let number = request.number;
        let keys: Vec<_> = request.keys.iter().copied().map(Alike).collect();
        let level = |&(key, threshold): &(Key, u64)| (Alike(key), threshold);
        let levels: Vec<_> = request.levels.iter().map(level).collect();
        let timeout = request.timeout;
        let watches = match (&*levels, request.plan.counted) {
            ([], _) => Watches::from(&keys),
            (levels, true) => Watches::up_to(levels).with_keys(&keys),
            (levels, false) => Watches::up_to(levels).checked().with_keys(&keys),
        };
        let style = request.plan.style;
        let mut planned = Planned::new(self, request);
        if style == Style::Callback {
            let operation = BoxedOperation::new(planned);
            return Some(match handle.try_complete_else_watch(operation, watches, timeout) {
                Ok(ParkResult::Parked(id)) => {
                    self.learn(number, id);
                    Returned::Parked
                }
                Ok(ParkResult::Ended(outcome)) => Returned::Ended(outcome),
                Ok(other) => panic!("neither parked nor over: {other:?}"),
                Err(refused) => {
                    let before = self.alive.load(Relaxed);
                    let reason = refused.reason;
                    drop(refused);
                    Returned::Refused { reason, back: self.alive.load(Relaxed) + 1 == before }
                }
            });
        }
        let condition = move || {
            let holds = planned.try_complete();
            holds.then(|| planned.request.value(planned.look))
        };
        let future = handle.wait(watches, timeout, condition);
        future.id().into_iter().for_each(|id| self.learn(number, id));
        self.futures.lock().unwrap().insert(number, future);
        Some(Returned::Future)
    }

    fn poll(self: &Arc<Self>, own: Option<usize>, pick: Pick) -> Option<Returned> {
        let (number, mut future) = self.pick_future(own, pick)?;
        let waker = Waker::from(Arc::new(Woken { world: self.clone(), number }));
        Some(match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => Returned::Ready(result),
            Poll::Pending => {
                self.futures.lock().unwrap().insert(number, future);
                Returned::Pending
            }
        })
    }

    /// True when nothing more can be parked.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Runs what the executor has kept, and what comes of it.
    pub fn run_jobs(&self) {
        while self.run_job() {}
    }

    /// Lets go of what is left, so that nothing keeps anything else.
    pub fn clear(&self) {
        drop(self.take_handle());
        let futures = std::mem::take(&mut *self.futures.lock().unwrap());
        futures.into_values().for_each(drop);
    }
}
