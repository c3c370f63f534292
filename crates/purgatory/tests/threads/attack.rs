//! Programs that do everything wrong, with the books kept. An attack parks, raises, cancels and
//! completes operations on several threads; afterwards each operation that was taken has ended
//! once. `TEST_EFFORT` makes attacks longer; `just attack` runs all of them for ten minutes.

#[cfg(target_os = "linux")]
mod fork;

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    process::Command,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, WatchKey, Watches, when};
use timer_core::{Clock, Executor, Job, SystemTimer, SystemTimerBuilder, Timer};

use crate::{
    effort::effort,
    support::{Later, MINUTE, MS, Park, assert_empty},
};

const THREADS: u64 = 4;

/// Operations that a thread parks, without `TEST_EFFORT`.
const OPERATIONS: u64 = 500;

const KEYS: u32 = 16;

/// The operations that were taken, and their ends.
#[derive(Clone, Default)]
struct Books {
    taken: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Books {
    fn taken(&self) {
        self.taken.fetch_add(1, SeqCst);
    }

    fn ended(&self) {
        self.ended.fetch_add(1, SeqCst);
    }

    fn are_closed(&self) -> bool {
        self.taken.load(SeqCst) == self.ended.load(SeqCst)
    }

    /// As many have ended as were taken.
    #[track_caller]
    fn close(&self) {
        assert_eq!(self.taken.load(SeqCst), self.ended.load(SeqCst), "taken, ended");
    }

    /// Complete at about every fourth check.
    fn operation(&self, seed: u64) -> BoxedOperation {
        let (books, mut random) = (self.clone(), fastrand::Rng::with_seed(seed));
        when(move || random.u8(..4) == 0, move |_| books.ended())
    }
}

/// An attack on a purgatory.
struct Attack<'a, K: WatchKey, O: DelayedOperation> {
    purgatory: &'a Purgatory<K, O>,
    key: fn(u32) -> K,
    operation: fn(&Books, u64) -> O,
    /// Of each thread, in bytes.
    stack: usize,
}

impl<'a, K: WatchKey + Send> Attack<'a, K, BoxedOperation> {
    fn with_keys(purgatory: &'a Purgatory<K>, key: fn(u32) -> K) -> Self {
        Attack { purgatory, key, operation: Books::operation, stack: 1 << 20 }
    }
}

impl<K: WatchKey + Send, O: DelayedOperation + Send> Attack<'_, K, O> {
    /// Attacks on several threads, shuts down, and closes the books.
    fn run(&self) {
        let books = Books::default();
        self.all_threads(&books);
        assert!(self.purgatory.shutdown(MINUTE).is_nothing());
        while !books.are_closed() {
            std::thread::yield_now(); // a shared timer has some in its hands that have expired
        }
        assert_empty(self.purgatory);
        books.close();
    }

    fn all_threads(&self, books: &Books) {
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                let thread = std::thread::Builder::new().stack_size(self.stack);
                thread.spawn_scoped(scope, move || self.thread(seed, books)).unwrap();
            }
        });
    }

    /// One thread's part. A key that panics hands its panic to the call that uses it, which then
    /// has done nothing.
    fn thread(&self, seed: u64, books: &Books) {
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..effort(OPERATIONS) {
            let keys = (0..random.u8(1..=3)).map(|_| (self.key)(random.u32(..KEYS)));
            let keys: Vec<_> = keys.collect();
            let operation = (self.operation)(books, seed << 32 | number);
            let timeout = MS * random.u32(..20);
            let levels: Vec<_> = keys.iter().map(|key| (key.clone(), number)).collect();
            let watermarks = random.u8(..3) == 0;
            let watches = if watermarks { Watches::up_to(&levels) } else { Watches::from(&keys) };
            let park = || self.purgatory.try_complete_else_watch(operation, watches, timeout);
            if let Ok(parked) = catch_unwind(AssertUnwindSafe(park)) {
                parked.unwrap();
                books.taken();
            }
            let how = random.u8(..8);
            let raise = || self.raise(&keys[0], how, number);
            let _ = catch_unwind(AssertUnwindSafe(raise));
        }
    }

    fn raise(&self, key: &K, how: u8, value: u64) {
        match how {
            0 => _ = self.purgatory.cancel_for_key(key, "attacked"),
            1 => _ = self.purgatory.complete_for_key(key),
            2 => _ = self.purgatory.check_and_complete_one(key),
            3 | 4 => _ = self.purgatory.complete_up_to(key, value),
            _ => _ = self.purgatory.check_and_complete(key),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Collides(u32);

impl Hash for Collides {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn keys_collide() {
    Attack::with_keys(&Purgatory::new("collide").unwrap(), Collides).run();
}

/// Panics at some comparisons.
#[derive(Clone, Debug)]
struct Quarrels(u32);

impl PartialEq for Quarrels {
    fn eq(&self, other: &Self) -> bool {
        static COMPARED: AtomicU64 = AtomicU64::new(0);
        let quarrels = COMPARED.fetch_add(1, Relaxed) % 97 == 0;
        if quarrels && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("compared")); // without a message
        }
        self.0 == other.0
    }
}

impl Eq for Quarrels {}

impl Hash for Quarrels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0 % 4).hash(state);
    }
}

#[test]
fn keys_panic_when_compared() {
    Attack::with_keys(&Purgatory::new("quarrel").unwrap(), Quarrels).run();
}

/// An operation of so many bytes.
struct Bytes<const BYTES: usize> {
    bytes: [u8; BYTES],
    books: Books,
}

impl<const BYTES: usize> Bytes<BYTES> {
    fn new(books: &Books, seed: u64) -> Self {
        Bytes { bytes: [seed as u8; BYTES], books: books.clone() }
    }
}

impl<const BYTES: usize> DelayedOperation for Bytes<BYTES> {
    fn try_complete(&mut self) -> bool {
        self.bytes[0] = self.bytes[0].wrapping_mul(5).wrapping_add(1);
        self.bytes[0] > 190
    }

    fn on_complete(self, _: Outcome) {
        self.books.ended();
    }
}

/// A debug build copies an operation some times on its way.
#[test]
fn operations_of_4_kb_on_small_stacks() {
    let purgatory = &Purgatory::new("large").unwrap();
    Attack { purgatory, key: |key| key, operation: Bytes::<4096>::new, stack: 512 << 10 }.run();
}

/// An operation without a size; its books are everybody's.
struct Nothing;

static NOTHING: OnceLock<Books> = OnceLock::new();

impl DelayedOperation for Nothing {
    fn try_complete(&mut self) -> bool {
        fastrand::u8(..4) == 0
    }

    fn on_complete(self, _: Outcome) {
        NOTHING.get().unwrap().ended();
    }
}

#[test]
fn operations_without_a_size() {
    let operation = |books: &Books, _| {
        NOTHING.get_or_init(|| books.clone());
        Nothing
    };
    let purgatory = &Purgatory::new("nothing").unwrap();
    Attack { purgatory, key: |key| key, operation, stack: 1 << 20 }.run();
}

#[test]
fn very_many_purgatories_on_one_timer() {
    let (timer, books) = (SystemTimer::new().unwrap(), Books::default());
    let mut kept = Vec::new();
    for number in 0..effort(2000) {
        let builder = Purgatory::<_, BoxedOperation>::builder("one").timer(&timer);
        let purgatory = builder.rooms(1).build().unwrap();
        let told = books.clone();
        purgatory.park(when(|| false, move |_| told.ended()), &[number], MS * 5);
        books.taken();
        if number % 64 > 0 {
            kept.push(purgatory);
        }
        if kept.len() > 100 {
            kept.swap_remove(fastrand::usize(..kept.len())); // it has expired by then, or not
        }
    }
    drop(kept);
    timer.shutdown(Duration::MAX);
    books.close();
}

/// Shows a time that leaps forwards by up to an hour, or stands still.
#[derive(Debug, Default)]
struct Leaps(AtomicU64);

impl Clock for Leaps {
    fn now_ns(&self) -> u64 {
        let leap = [0, 0, 1_000_000, 3_600_000_000_000][fastrand::usize(..4)];
        self.0.fetch_add(leap, SeqCst) + leap
    }

    fn sleep_max(&self) -> Option<Duration> {
        Some(MS)
    }
}

#[test]
fn a_clock_leaps() {
    let timer = SystemTimer::builder().clock(Leaps::default()).build().unwrap();
    let purgatory = Purgatory::builder("leap").timer(&timer).build().unwrap();
    Attack::with_keys(&purgatory, |key| key).run();
    timer.shutdown(Duration::MAX);
}

/// Runs a job in place, drops it, gives it to a thread, or keeps it for later.
#[derive(Clone, Debug, Default)]
struct Unruly(Later);

impl Executor for Unruly {
    fn execute(&self, job: Job) {
        match fastrand::u8(..5) {
            0 => job.run(),
            1 => drop(job),
            2 => std::thread::spawn(|| job.run()).join().unwrap(),
            3 => self.0.execute(job),
            _ => {
                let mut kept = self.0.take();
                fastrand::shuffle(&mut kept);
                kept.into_iter().for_each(Job::run);
                job.run();
            }
        }
    }
}

#[test]
fn an_executor_is_unruly() {
    let (books, unruly) = (Books::default(), Unruly::default());
    let timer = SystemTimer::builder().executor(unruly.clone()).build().unwrap();
    let purgatory = Purgatory::builder("unruly").timer(&timer).build().unwrap();
    Attack::with_keys(&purgatory, |key| key).all_threads(&books);
    purgatory.shutdown(Duration::ZERO);
    // The reaper may have some in its hands that have expired.
    while !books.are_closed() {
        unruly.0.run();
        std::thread::yield_now(); // for ever, if one were lost
    }
    timer.shutdown(Duration::MAX);
    assert_empty(&purgatory);
    books.close();
}

/// Calls back into the purgatory as a wait is woken, and as its waker is dropped.
struct Reenters(Purgatory<u32>);

impl Wake for Reenters {
    fn wake(self: Arc<Self>) {
        self.0.check_and_complete(&fastrand::u32(..KEYS));
    }
}

impl Drop for Reenters {
    fn drop(&mut self) {
        self.0.cancel_for_key(&fastrand::u32(..KEYS), "from a waker");
    }
}

/// Waits on threads that raise events, too; each is awaited or dropped.
#[test]
fn wakers_call_back() {
    let purgatory: Purgatory<u32> = Purgatory::new("wakers").unwrap();
    let wait_for_some = || {
        for _ in 0..effort(OPERATIONS) {
            let key = fastrand::u32(..KEYS);
            let over = || (fastrand::u8(..4) == 0).then_some(());
            let mut wait = purgatory.wait(&[key], MS * 5, over);
            let waker = Waker::from(Arc::new(Reenters(purgatory.clone())));
            let polled = Pin::new(&mut wait).poll(&mut Context::from_waker(&waker));
            purgatory.check_and_complete(&fastrand::u32(..KEYS));
            if polled.is_pending() && fastrand::bool() {
                let _ = wait.wait_blocking();
            }
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(wait_for_some)));
    assert!(purgatory.shutdown(MINUTE).is_nothing());
    assert_empty(&purgatory);
}

/// Tasks wait on a runtime that goes: under the timer, too.
#[test]
fn runtimes_are_dropped() {
    let mut waits = 0;
    for round in 0..effort(20) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let mut timer = SystemTimer::builder();
        if cfg!(feature = "tokio") && round % 2 == 0 {
            timer = on_runtime(timer, &runtime);
        }
        let timer = timer.build().unwrap();
        let purgatory: Purgatory<u32> = Purgatory::builder("gone").timer(&timer).build().unwrap();
        for key in 0..200 {
            let wait = purgatory.wait(&[key % KEYS], MS * (1 + key % 20), || None::<()>);
            runtime.spawn(wait);
            waits += 1;
        }
        runtime.shutdown_background();
        purgatory.shutdown(MINUTE);
        timer.shutdown(MINUTE);
        assert_empty(&purgatory);
        waits -= purgatory.stats().parked_total;
    }
    assert_eq!(waits, 0, "each was parked, and has ended");
}

#[cfg(feature = "tokio")]
fn on_runtime(timer: SystemTimerBuilder, runtime: &tokio::runtime::Runtime) -> SystemTimerBuilder {
    timer.tokio(runtime.handle().clone())
}

#[cfg(not(feature = "tokio"))]
fn on_runtime(timer: SystemTimerBuilder, _: &tokio::runtime::Runtime) -> SystemTimerBuilder {
    timer
}

/// A recorder that looks into the purgatory whose figures it is given, and ends some of it.
#[cfg(feature = "metrics")]
struct LooksIn(Purgatory<u32>);

#[cfg(feature = "metrics")]
impl LooksIn {
    fn look(&self) {
        self.0.snapshot(3);
        self.0.check_and_complete(&fastrand::u32(..KEYS));
    }
}

#[cfg(feature = "metrics")]
impl metrics::Recorder for LooksIn {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.look();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.look();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.look();
        Histogram::noop()
    }
}

#[cfg(feature = "metrics")]
#[test]
fn a_recorder_calls_back() {
    let purgatory: Purgatory<u32> = Purgatory::new("recorded").unwrap();
    let over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let recorder = LooksIn(purgatory.clone());
            while over.load(SeqCst) == 0 {
                metrics::with_local_recorder(&recorder, || purgatory.publish());
            }
        });
        Attack::with_keys(&purgatory, |key| key).run();
        over.store(1, SeqCst);
    });
}

/// True in a process that [`again`] has started.
fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

const AGAIN: &str = "ATTACK_AGAIN";

/// Runs this test in a process of its own, which must end with this code.
#[track_caller]
fn again(test: &str, code: i32) {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env(AGAIN, "1");
    let ended = again.output().unwrap();
    assert_eq!(ended.status.code(), Some(code), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// The process ends in a callback on the timer's worker while other threads are at work.
#[test]
fn a_callback_exits_the_process() {
    if is_again() {
        let purgatory: Purgatory<u32> = Purgatory::new("exits").unwrap();
        purgatory.park(when(|| false, |_| std::process::exit(7)), &[1], MS * 20);
        let others = Purgatory::new("others").unwrap();
        Attack::with_keys(&others, |key| key).run();
        loop {
            std::thread::park();
        }
    }
    for _ in 0..effort(3) {
        again("attack::a_callback_exits_the_process", 7);
    }
}
