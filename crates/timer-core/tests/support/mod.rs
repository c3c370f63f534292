//! Helpers for the tests of both crates: spans of time, polls, a task that counts its wake-ups, an
//! executor that is late, a place where a thread is held, a value that tells which thread drops it.
//! It also exports the names that most tests need, so that `use crate::support::*` brings them.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its part"
)]

pub use std::{
    cell::{Cell, RefCell},
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Barrier, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

pub use allocation_counter::AllocationInfo;
pub use timer_core::{
    Advanced, BuildError, Clock, DelayQueue, Executor, Interval, Job, ManualTimer, Moment, Sleep,
    SystemClock, SystemTimer, SystemTimerBuilder, TaskId, TaskTimer, TickLength, TimeHistogram,
    Timer, TimerError, TimerHandle, TimerStats, TimingWheel, WheelSize, timeout,
};

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);

/// Creates a timer with these settings.
pub fn system_timer(build: impl FnOnce(SystemTimerBuilder) -> SystemTimerBuilder) -> SystemTimer {
    build(SystemTimer::builder()).build().unwrap()
}

/// Calls `once` a first time, for the memory that a thread and a shard keep; then measures the
/// allocations of a hundred more calls.
pub fn a_hundred_more(mut once: impl FnMut()) -> AllocationInfo {
    once();
    allocation_counter::measure(|| {
        for _ in 0..100 {
            once();
        }
    })
}

/// Runs `eager`; returns how many turns a task beside it had meanwhile.
#[cfg(feature = "tokio")]
pub async fn turns_of_a_neighbour_of(eager: impl Future<Output = ()>) -> u32 {
    let turns = Cell::new(0);
    let neighbour = async {
        loop {
            turns.set(turns.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = eager => turns.get(),
        () = neighbour => unreachable!("it goes on for ever"),
    }
}

/// Polls as a task with this waker.
pub fn poll_by<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls as a task that nobody wakes.
pub fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_by(future, Waker::noop())
}

/// Returns the waker of a task that calls `woken` when it is woken.
pub fn waker(woken: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Task<F>(F);
    impl<F: Fn() + Send + Sync + 'static> Wake for Task<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Task(woken)))
}

/// Returns the output of a future that is ready.
#[track_caller]
pub fn over<F: Future + Unpin>(future: &mut F) -> F::Output {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it still waits"),
    }
}

/// Counts the wake-ups of a task. Each waker of the task holds a reference.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Woken {
    pub fn task() -> Arc<Self> {
        Arc::default()
    }

    pub fn times(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// Returns the number of wakers of the task.
    pub fn wakers(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }

    /// Polls as the task.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        poll_by(future, &self.clone().into())
    }
}

/// Fails if `run` panics, or waits for a lock that it holds.
#[track_caller]
pub fn in_time(run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        run();
        done.send(()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(()));
}

/// Runs `act` on another thread, and joins that thread.
pub fn on_another_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// Calls `run` on a thread with a stack of this size.
pub fn on_stack<T: Send + 'static>(bytes: usize, run: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::Builder::new().stack_size(bytes).spawn(run);
    thread.unwrap().join().unwrap()
}

/// A value that calls a function when it is dropped, or a task that does so with its last waker.
pub struct OnDrop(Mutex<Box<dyn FnMut() + Send>>);

impl OnDrop {
    pub fn new(act: impl FnMut() + Send + 'static) -> Self {
        OnDrop(Mutex::new(Box::new(act)))
    }

    pub fn waker(self) -> Waker {
        Waker::from(Arc::new(self))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0.get_mut().unwrap())();
    }
}

impl Wake for OnDrop {
    fn wake(self: Arc<Self>) {}
}

thread_local! {
    static AT_NEXT_READ: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Calls `act` at this thread's next read of an [`Acting`] clock, after the clock was read.
pub fn at_next_read(act: impl FnOnce() + 'static) {
    AT_NEXT_READ.set(Some(Box::new(act)));
}

/// A clock that reads another, and at whose next read a test does something.
#[derive(Debug)]
pub struct Acting<C>(pub C);

impl<C: Clock> Clock for Acting<C> {
    fn now_ns(&self) -> u64 {
        let now_ns = self.0.now_ns();
        if let Some(act) = AT_NEXT_READ.take() {
            act();
        }
        now_ns
    }
}

/// A manual timer, and a task that waits for it.
pub fn manual() -> (ManualTimer, Arc<Woken>) {
    (ManualTimer::new(), Woken::task())
}

/// Polls an interval as the task; returns the millisecond of its tick.
pub fn tick(interval: &mut Interval, task: &Arc<Woken>) -> Poll<Result<u64, TimerError>> {
    let due = interval.poll_tick(&mut Context::from_waker(&task.clone().into()));
    due.map_ok(|due| due.as_nanos() / 1_000_000)
}

/// Calls `run` on `threads` threads at once, with the number of each; returns their results.
pub fn race<T: Send>(threads: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = &run;
        let mut racers = Vec::new();
        for number in 0..threads {
            racers.push(scope.spawn(move || run(number)));
        }
        // Join one by one: ThreadSanitizer does not see the end of a scope.
        let joined = racers.into_iter().map(|racer| racer.join().unwrap());
        joined.collect()
    })
}

/// Keeps its jobs until a test asks for them, like a worker that is late or blocked.
#[derive(Clone, Debug, Default)]
pub struct Later(Arc<Mutex<Vec<Job>>>);

impl Executor for Later {
    fn execute(&self, job: Job) {
        self.0.lock().unwrap().push(job);
    }
}

impl Later {
    /// Takes out the jobs that it holds.
    pub fn take(&self) -> Vec<Job> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Runs the jobs that it holds, in order; returns their number.
    pub fn run(&self) -> usize {
        self.take().into_iter().map(Job::run).count()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A place where a test holds one thread, the next to come by after `arm`.
#[derive(Clone)]
pub struct Stop(Arc<(AtomicBool, Barrier)>);

impl Stop {
    pub fn new() -> Self {
        Stop(Arc::new((AtomicBool::new(false), Barrier::new(2))))
    }

    /// Returns a place that holds the first thread to come by.
    pub fn armed() -> Self {
        let stop = Stop::new();
        stop.arm();
        stop
    }

    pub fn arm(&self) {
        self.0.0.store(true, SeqCst);
    }

    /// Holds this thread if the place is armed, until `meanwhile` is over.
    pub fn here(&self) {
        if self.0.0.swap(false, SeqCst) {
            self.0.1.wait();
            self.0.1.wait();
        }
    }

    /// Waits until a thread is held, and calls `act` meanwhile. The thread then goes on, even after
    /// a panic.
    pub fn meanwhile<T>(&self, act: impl FnOnce() -> T) -> T {
        struct GoOn<'a>(&'a Barrier);
        impl Drop for GoOn<'_> {
            fn drop(&mut self) {
                self.0.wait();
            }
        }
        self.0.1.wait();
        let _go_on = GoOn(&self.0.1);
        act()
    }
}

/// Sends the name of the thread that drops it.
pub struct TellsWhere(pub mpsc::Sender<String>);

impl Drop for TellsWhere {
    fn drop(&mut self) {
        let _ = self
            .0
            .send(thread::current().name().unwrap_or_default().to_owned());
    }
}
