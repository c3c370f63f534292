//! The real purgatory, with operations that follow their plans and record each check and callback.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash, Hasher},
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use purgatory::{BoxedOperation, DelayedOperation, OperationId, Outcome, Purgatory, ReachResult};
use timer_core::{Clock, Executor, Job, ManualTimer, TickLength, WheelSize};

use super::{
    acts::{Call, Known, Side},
    steps::{Key, PARKED_MAX, Plan, Request, Returned, Runs, Saw, Setup, Then},
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
    operations_max: usize,
    drops_jobs: bool,
    handle: Mutex<Option<Real>>,
    log: Mutex<Vec<Saw>>,
    known: Mutex<Known>,
    /// The ids of parked operations.
    ids: Mutex<BTreeMap<usize, OperationId>>,
    jobs: Kept,
    /// The number of operations that exist, parked or not.
    pub alive: AtomicUsize,
    /// The operations dropped in this step, in order.
    dropped: Mutex<Vec<usize>>,
    /// The checks of this step that were the second of a park, with no event since the first.
    checked_twice: Mutex<BTreeSet<(usize, u32)>>,
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
    /// The number of the first check of its last park.
    first_look: u32,
    /// The number of events before that check returned.
    first_events: Option<u64>,
}

impl Planned {
    fn new(world: &Arc<World>, request: Request) -> Self {
        world.alive.fetch_add(1, Relaxed);
        Planned {
            world: world.clone(),
            request,
            look: 0,
            first_look: 1,
            first_events: None,
        }
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
        self.world.saw(Saw::Check(number, self.look));
        if self.look == self.first_look + 1 && self.first_events == self.world.events() {
            let mut checked_twice = self.world.checked_twice.lock().unwrap();
            checked_twice.insert((number, self.look));
        }
        let acts = self.request.acts_at(self.look).iter();
        for act in acts {
            self.world.act(Some(number), act);
        }
        if self.look == self.first_look {
            self.first_events = self.world.events();
        }
        if self.request.plan.panics_at == Some(self.look) {
            resume_unwind(Box::new("a check")); // past the hook, which would print it
        }
        self.request
            .holds(self.look, &self.world.known.lock().unwrap())
    }

    fn on_complete(mut self, outcome: Outcome) {
        let plan = self.request.plan.clone();
        self.world.saw(Saw::Callback(self.request.number, outcome));
        for act in &plan.then {
            self.world.act(Some(self.request.number), act);
        }
        if plan.then_panics {
            resume_unwind(Box::new("a callback"));
        }
    }
}

/// Returns the number of an operation, and how many times it was checked.
fn looked(operation: &mut BoxedOperation) -> (usize, u32) {
    let planned = operation.downcast_mut::<Planned>().unwrap();
    (planned.request.number, planned.look)
}

/// Visits every parked operation; returns their numbers and keys, sorted.
pub fn visited(purgatory: &Real) -> Vec<(usize, Vec<Key>)> {
    let mut visited = Vec::new();
    purgatory.for_each(|_, keys, operation| {
        let (number, _) = looked(operation.unwrap()); // no check is under way
        visited.push((number, keys.iter().map(|key| key.0).collect()));
    });
    visited.sort();
    visited
}

impl World {
    pub fn new(setup: &Setup) -> Arc<World> {
        let tick = TickLength::new(Duration::from_nanos(setup.tick_ns)).unwrap();
        let timer = ManualTimer::with(tick, WheelSize::new(setup.slots).unwrap());
        timer.advance(Duration::from_nanos(setup.start_ns));
        let mut builder = Purgatory::builder("model")
            .timer(&timer)
            .shards(setup.shards);
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
            operations_max: setup.operations_max,
            drops_jobs: setup.executor == Runs::Dropped,
            log: Mutex::default(),
            known: Mutex::new(Known {
                quarter_ns: setup.tick_ns / 4,
                ..Known::default()
            }),
            ids: Mutex::default(),
            jobs,
            alive: AtomicUsize::new(0),
            dropped: Mutex::default(),
            checked_twice: Mutex::default(),
        })
    }

    /// Returns the record since the last call, and the operations that were dropped.
    pub fn take_log(&self) -> (Vec<Saw>, Vec<usize>) {
        let log = std::mem::take(&mut *self.log.lock().unwrap());
        (log, std::mem::take(&mut *self.dropped.lock().unwrap()))
    }

    /// Returns the checks of this step that were the second of a park, with no event in between.
    pub fn take_checked_twice(&self) -> BTreeSet<(usize, u32)> {
        std::mem::take(&mut *self.checked_twice.lock().unwrap())
    }

    /// Returns the number of events; `None` once the last handle was dropped.
    fn events(&self) -> Option<u64> {
        Some(self.handle()?.stats().events)
    }

    /// Returns a handle of the purgatory, unless the last one was dropped.
    pub fn handle(&self) -> Option<Real> {
        self.handle.lock().unwrap().clone()
    }

    fn take_handle(&self) -> Option<Real> {
        self.handle.lock().unwrap().take()
    }

    fn learn(&self, number: usize, id: OperationId) {
        self.known.lock().unwrap().ids.push(number);
        self.ids.lock().unwrap().insert(number, id);
    }

    /// Returns true if no more operations can be parked.
    pub fn is_closed(&self) -> bool {
        self.known.lock().unwrap().closed
    }

    fn park(self: &mut Arc<Self>, handle: &Real, plan: &Arc<Plan>) -> Option<Returned> {
        let all = self.known.lock().unwrap().flags.len();
        if handle.len() >= PARKED_MAX || all >= self.operations_max {
            return None;
        }
        let request = self.request(plan);
        let operation = BoxedOperation::new(Planned::new(self, request));
        Some(self.park_planned(handle, operation))
    }

    /// Parks an operation, for the first time or again.
    fn park_planned(&self, handle: &Real, mut operation: BoxedOperation) -> Returned {
        let planned = operation.downcast_mut::<Planned>().unwrap();
        planned.first_look = planned.look + 1;
        let request = planned.request.clone();
        let number = request.number;
        let timeout = request.timeout;
        let keys: Vec<_> = request.keys.iter().copied().map(Alike).collect();
        match handle.try_complete_else_watch(operation, &keys, timeout) {
            Ok(Some(id)) => {
                self.learn(number, id);
                Returned::Parked
            }
            Ok(None) => Returned::Ended,
            Err(refused) => {
                let before = self.alive.load(Relaxed);
                let reason = refused.reason.clone();
                drop(refused);
                Returned::Refused(reason, self.alive.load(Relaxed) + 1 == before)
            }
        }
    }

    /// Takes an operation out, and drops it or parks it again.
    fn take(&self, handle: &Real, number: usize, then: Then) -> Returned {
        let id = self.ids.lock().unwrap()[&number];
        let mut taken = match handle.take(id) {
            ReachResult::Reached(taken) => taken,
            ReachResult::UnderCheck => return Returned::Reached(ReachResult::UnderCheck),
            _ => return Returned::Reached(ReachResult::Gone),
        };
        self.known.lock().unwrap().forget(&[number]);
        let reached = Returned::Reached(ReachResult::Reached(looked(&mut taken)));
        match then {
            Then::Drop => reached,
            Then::ParkAgain => {
                self.log.lock().unwrap().push(Saw::Returned(reached));
                self.park_planned(handle, taken)
            }
        }
    }

    /// Takes the operations under a key out, and drops them.
    fn take_for_key(&self, handle: &Real, key: Key) -> Returned {
        let (mut taken, under_check) = handle.take_for_key(&Alike(key));
        let number = |operation: &mut BoxedOperation| looked(operation).0;
        let numbers: Vec<usize> = taken.iter_mut().map(number).collect();
        self.known.lock().unwrap().forget(&numbers);
        Returned::Taken(numbers, under_check.len())
    }

    /// Makes a call through a handle that only this call holds.
    fn call_by_handle(self: &mut Arc<Self>, handle: &Real, call: Call) -> Option<Returned> {
        let id = |number: usize| self.ids.lock().unwrap()[&number];
        Some(match call {
            Call::Park(plan) => return self.park(handle, &plan),
            Call::Event(key) => Returned::Counted(handle.check_and_complete(&Alike(key))),
            Call::EventForOne(key) => {
                Returned::Counted(handle.check_and_complete_one(&Alike(key)).into())
            }
            Call::CancelKey(key) => Returned::Counted(handle.cancel_for_key(&Alike(key), "by key")),
            Call::CompleteKey(key) => Returned::Counted(handle.complete_for_key(&Alike(key))),
            Call::RescheduleKey(key, timeout) => {
                Returned::Counted(handle.reschedule_for_key(&Alike(key), timeout))
            }
            Call::Cancel(number) => Returned::Attempt(handle.cancel(id(number), "by id")),
            Call::Complete(number) => Returned::Attempt(handle.complete(id(number))),
            Call::Reschedule(number, timeout) => {
                Returned::Rescheduled(handle.reschedule(id(number), timeout))
            }
            Call::Look(number) => Returned::Reached(handle.with(id(number), looked)),
            Call::Take(number, then) => self.take(handle, number, then),
            Call::TakeKey(key) => self.take_for_key(handle, key),
            _ => {
                self.close(true);
                handle.shutdown(Duration::ZERO);
                return None;
            }
        })
    }

    fn close(&self, shut_down: bool) {
        let mut known = self.known.lock().unwrap();
        known.closed = true;
        known.shut_down |= shut_down;
    }

    /// Drops the handle, which breaks the cycle of references through the operations.
    pub fn clear(&self) {
        drop(self.take_handle());
    }
}

impl Side for Arc<World> {
    fn known<T>(&mut self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.known.lock().unwrap())
    }

    fn now_ns(&self) -> u64 {
        self.timer.clock().now_ns()
    }

    fn saw(&mut self, saw: Saw) {
        self.log.lock().unwrap().push(saw);
    }

    fn run_job(&mut self) -> bool {
        let job = self.jobs.0.lock().unwrap().pop_front();
        let run = if self.drops_jobs { drop } else { Job::run };
        job.map(run).is_some()
    }

    fn call(&mut self, call: Call) -> Option<Returned> {
        match call {
            Call::Advance(by_ns) => self.timer.advance(Duration::from_nanos(by_ns)),
            Call::Pass(by_ns) => self.timer.pass(Duration::from_nanos(by_ns)),
            Call::ShutdownTimer => {
                self.close(true);
                self.timer.shutdown(Duration::MAX);
            }
            Call::DropHandle => {
                self.close(false);
                drop(self.take_handle());
            }
            _ => {
                let handle = self.handle()?;
                return self.call_by_handle(&handle, call);
            }
        }
        None
    }
}
