//! The purgatory under a hand-turned clock: operations of every kind are parked, and ended by events,
//! watermarks, cancels, time and shutdown, from outside and from inside checks and callbacks.
//!
//! There is no model of the purgatory here (`crates/purgatory/tests/models/model` has one, which knows each order).
//! The `books` know plain facts, and what follows from them: each operation ends once, as something that it
//! had a reason for; what an event, a cancel or the time had to end has ended when the call is over; and
//! the counts are those of what was seen.

mod acts;
mod books;

use std::{
    collections::VecDeque,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory, Timeout, Watches};
use timer_core::{Clock, Executor, Job, ManualTimer, Timer};

use self::{
    acts::{Act, Busy, Jobs, KEYS, Pick, Rare, Rarely, Setup, Step, quarters},
    books::{BY_ID, BY_KEY, Books},
};
use crate::records;

/// Bytes of a step; the widest takes 80.
pub const RECORD: usize = 80;

/// Operations in all.
const OPERATIONS_MAX: usize = 400;

type Real = Purgatory<usize, Operation>;

/// Decodes steps and does them until the bytes end.
///
/// # Panics
/// When the purgatory does something for which the books have no reason.
pub fn run(data: &[u8]) {
    let (setup, steps) = data.split_at(data.len().min(RECORD));
    for setup in records(setup, RECORD) {
        let world = World::new(setup);
        for step in records(steps, RECORD) {
            world.step(&step);
        }
        world.end();
    }
}

/// The purgatory and what is known of it.
struct World {
    setup: Setup,
    timer: ManualTimer,
    handle: Mutex<Option<Real>>,
    jobs: Later,
    ids: Mutex<Vec<(usize, ::purgatory::OperationId)>>,
    books: Mutex<Books>,
}

/// An executor that keeps its jobs.
#[derive(Clone, Debug, Default)]
struct Later(Arc<Mutex<VecDeque<Job>>>);

impl Executor for Later {
    fn execute(&self, job: Job) {
        lock(&self.0).push_back(job);
    }
}

/// A panic elsewhere is what is to be told, not that it came while a lock was held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation that follows its plan.
struct Operation {
    world: Arc<World>,
    number: usize,
    busy: Busy,
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.world.books().counts.alive -= 1;
    }
}

impl DelayedOperation for Operation {
    fn try_complete(&mut self) -> bool {
        let look = self.world.books().looks(self.number);
        if let Some((at, act)) = self.busy.on_check
            && u32::from(at % 4) + 1 == look
        {
            self.world.act_inside(self.number, &act);
        }
        if self.busy.plan.panics_at(look) {
            self.world.books().panics(self.number, true);
            resume_unwind(Box::new("a check")); // past the hook, which would print it or abort
        }
        self.world.books().verdict(self.number, self.busy.plan.is_true_at(look))
    }

    fn on_complete(self, outcome: Outcome) {
        let now_ns = self.world.now_ns();
        self.world.books().ends(self.number, outcome, now_ns);
        if let Some(act) = self.busy.then {
            self.world.act_inside(self.number, &act);
        }
        if let Some(next) = self.busy.plan.next() {
            self.world.act_inside(self.number, &Act::Park(next));
        }
        if self.busy.plan.panics_then() {
            self.world.books().panics(self.number, false);
            resume_unwind(Box::new("a callback"));
        }
    }
}

impl World {
    fn new(setup: Setup) -> Arc<World> {
        let timer = ManualTimer::with(setup.tick(), setup.wheel_size());
        timer.advance(quarters(setup.tick(), setup.start.into()));
        let jobs = Later::default();
        let max_parked = setup.max_parked.map(|max| usize::from(max % 32));
        let mut builder = Purgatory::builder("fuzzed").timer(&timer);
        if let Some(max) = max_parked {
            builder = builder.max_parked(max);
        }
        if setup.callbacks_on_executor {
            builder = builder.callbacks_on_executor();
        }
        if setup.jobs != Jobs::InPlace {
            builder = builder.executor(jobs.clone());
        }
        let handle = Mutex::new(Some(builder.build().expect("its timer is open")));
        let books = Mutex::new(Books::new(setup.tick(), max_parked));
        Arc::new(World { setup, timer, handle, jobs, ids: Mutex::default(), books })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    fn now_ns(&self) -> u64 {
        self.timer.clock().now_ns()
    }

    /// A handle of the purgatory, unless the last one was dropped.
    fn handle(&self) -> Option<Real> {
        lock(&self.handle).clone()
    }

    fn step(self: &Arc<Self>, step: &Step) {
        let inside_before = self.books().counts.acts_inside;
        let completed_before = self.books().counts.completed;
        let mut counted = None;
        match step {
            Step::Act(act) => counted = self.act(None, act),
            Step::Park(busy) => self.park(*busy),
            Step::Rare(rare) => self.rare(rare),
        }
        self.run_jobs();
        let inside = self.books().counts.acts_inside > inside_before;
        let completed = self.books().counts.completed - completed_before;
        if let Some(counted) = counted {
            let counted = counted as u64;
            assert!(counted <= completed, "{counted} counted, {completed} completed");
            assert!(inside || counted == completed, "{counted} counted, {completed} completed");
        }
        self.check();
    }

    fn rare(self: &Arc<Self>, rare: &Rare) {
        match *rare {
            Rare::ParkMany(plan, count) => (0..count).for_each(|_| self.park(plan.idle())),
            Rare::ReadyAll => {
                let all = self.books().all.len();
                (0..all).for_each(|number| self.books().make_ready(number));
            }
            Rare::ToNext => {
                self.timer.advance_to_next();
            }
            Rare::Jump(bits, by) => {
                self.advance(quarters(self.setup.tick(), u64::from(bits) << (by % 57)));
            }
            Rare::Pass(count) => self.timer.pass(quarters(self.setup.tick(), count.into())),
            Rare::Snapshot(limit) => self.look(usize::from(limit)),
        }
    }

    /// What the executor has, and what comes of that.
    fn run_jobs(&self) {
        let next = || lock(&self.jobs.0).pop_front();
        while let Some(job) = next() {
            match self.setup.jobs {
                Jobs::Dropped => drop(job),
                _ => job.run(),
            }
        }
    }

    fn check(&self) {
        self.books().check();
        let Some(handle) = self.handle() else { return };
        let stats = handle.stats();
        self.books().check_stats(&stats);
        assert_eq!(handle.len() as u64, stats.parked);
        assert_eq!(handle.watched() as u64, stats.watched);
        for key in 0..KEYS {
            let (found, expected) = (handle.waiters(&key), self.books().waiters(key));
            assert!(expected.contains(&found), "{found} waiters, not {expected:?}");
        }
    }

    /// Part of a check or callback of an operation.
    fn act_inside(self: &Arc<Self>, own: usize, act: &Act) {
        self.books().counts.acts_inside += 1;
        self.act(Some(own), act);
    }

    /// Returns how many operations the call says it completed.
    fn act(self: &Arc<Self>, own: Option<usize>, act: &Act) -> Option<usize> {
        let handle = self.handle().filter(|_| !act.is_idle())?;
        match *act {
            Act::Park(plan) => self.park(plan.idle()),
            Act::Ready(pick) => {
                let number = usize::from(pick);
                if number < self.books().all.len() {
                    self.books().make_ready(number);
                }
            }
            Act::Event(key) => {
                self.must_end(|books| books.ended_by_event(key.index()));
                return Some(handle.check_and_complete(&key.index()));
            }
            Act::Rise(key, by) => {
                return Some(self.tell(&handle, key.index(), u64::from(by % 8), 0));
            }
            Act::TellLess(key, by) => {
                return Some(self.tell(&handle, key.index(), 0, u64::from(by % 8)));
            }
            Act::CancelKey(key) => {
                self.books().cancel_key(key.index());
                handle.cancel_for_key(&key.index(), BY_KEY);
            }
            Act::Cancel(pick) => self.attempt(&handle, own, pick, false),
            Act::Complete(pick) => self.attempt(&handle, own, pick, true),
            Act::Reschedule(pick, when) => {
                let (number, id) = self.pick(own, pick)?;
                let now_ns = self.now_ns();
                let timeout = when.timeout(now_ns, self.setup.tick());
                let done = handle.reschedule(id, timeout);
                self.books().rescheduled(number, timeout, now_ns, done);
            }
            Act::Defer(key) => {
                self.defer(|books| books.ended_by_event(key.index()));
                handle.defer(key.index());
            }
            Act::DeferRise(key, by) => {
                let value = self.raise(key.index(), u64::from(by % 8));
                self.defer(|books| books.ended_by_rise(key.index(), value));
                handle.defer_up_to(key.index(), value);
            }
            Act::RunDeferred => {
                let deferred = std::mem::take(&mut self.books().deferred);
                self.books().must_end.extend(deferred);
                return Some(handle.run_deferred());
            }
            Act::Advance(count) => self.advance(quarters(self.setup.tick(), count.into())),
            Act::Shutdown(_) => {
                self.books().closed = true;
                handle.shutdown();
            }
            Act::ShutdownTimer(_) => {
                self.books().closed = true;
                self.timer.shutdown();
            }
            Act::DropHandle(_) => {
                self.books().closed = true;
                drop(handle);
                drop(self.take_handle());
            }
        }
        None
    }

    fn take_handle(&self) -> Option<Real> {
        lock(&self.handle).take()
    }

    /// An event is about to be raised: what it must end.
    fn must_end(&self, ended: impl FnOnce(&mut Books) -> Vec<usize>) {
        let mut books = self.books();
        let numbers = ended(&mut books);
        books.counts.events += 1;
        books.must_end.extend(numbers);
    }

    /// The same of an event that is left for later.
    fn defer(&self, ended: impl FnOnce(&mut Books) -> Vec<usize>) {
        let mut books = self.books();
        let numbers = ended(&mut books);
        books.counts.events += 1;
        books.deferred.extend(numbers);
    }

    fn raise(&self, key: usize, by: u64) -> u64 {
        let value = &mut self.books().values[key];
        *value += by;
        *value
    }

    fn tell(&self, handle: &Real, key: usize, by: u64, less: u64) -> usize {
        let value = self.raise(key, by).saturating_sub(less);
        self.must_end(|books| books.ended_by_rise(key, value));
        handle.complete_up_to(&key, value)
    }

    /// One whose id is known; inside a check or callback as often as not its own operation.
    fn pick(&self, own: Option<usize>, pick: Pick) -> Option<(usize, ::purgatory::OperationId)> {
        let ids = lock(&self.ids);
        if let Some(own) = own.filter(|_| pick.is_multiple_of(2)) {
            return ids.iter().find(|(number, _)| *number == own).copied();
        }
        ids.get(usize::from(pick) % ids.len().max(1)).copied()
    }

    fn attempt(&self, handle: &Real, own: Option<usize>, pick: Pick, completes: bool) {
        let Some((number, id)) = self.pick(own, pick) else { return };
        self.books().asked(number, completes);
        let attempt = if completes { handle.complete(id) } else { handle.cancel(id, BY_ID) };
        self.books().attempted(number, attempt);
    }

    /// What is due by then has ended, once the executor's jobs are done.
    fn advance(&self, by: Duration) {
        self.timer.advance(by);
        let now_ns = self.now_ns();
        let mut books = self.books();
        let overdue = books.overdue(now_ns);
        books.must_end.extend(overdue);
    }

    fn park(self: &Arc<Self>, busy: Busy) {
        let Some(handle) = self.handle() else { return };
        let now_ns = self.now_ns();
        let timeout: Timeout = busy.plan.timeout.timeout(now_ns, self.setup.tick());
        let mut books = self.books();
        if books.all.len() >= OPERATIONS_MAX {
            return;
        }
        let inside_before = books.counts.acts_inside;
        let levels = busy.plan.levels(&books.values);
        let number = books.open(&busy.plan, timeout, now_ns);
        drop(books);
        let keys = busy.plan.keys();
        let watches = match (&*levels, busy.plan.counted) {
            ([], _) => Watches::from(&keys),
            (levels, true) => Watches::up_to(levels).with_keys(&keys),
            (levels, false) => Watches::up_to(levels).checked().with_keys(&keys),
        };
        let operation = Operation { world: self.clone(), number, busy };
        match handle.try_complete_else_watch(operation, watches, timeout) {
            Ok(ParkResult::Parked(id)) => {
                self.books().parked(number);
                lock(&self.ids).push((number, id));
            }
            Ok(_) => self.books().parked(number), // its callback may come later
            Err(refused) => self.books().refused(number, refused.reason, inside_before),
        }
    }

    fn look(&self, limit: usize) {
        let Some(handle) = self.handle() else { return };
        let snapshot = handle.snapshot(limit);
        assert_eq!(snapshot.oldest.len(), limit.min(handle.len()));
        assert!(snapshot.under_check.is_empty());
        assert!(snapshot.oldest.is_sorted_by(|one, other| one.age >= other.age));
    }

    /// Whatever is left ends with the purgatory, and nothing stays.
    fn end(self: &Arc<Self>) {
        self.act(None, &Act::Shutdown(Rarely::NOW));
        self.run_jobs();
        self.check();
        if let Some(handle) = self.take_handle() {
            assert_eq!(handle.keys(), 0, "keys without waiters");
        }
        self.timer.shutdown();
    }
}
