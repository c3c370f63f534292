//! Programs that do everything wrong while books are kept. An attack parks, signals, cancels and
//! completes operations on several threads; afterwards each accepted operation has ended once.
//! `TEST_EFFORT` makes attacks longer; `just attack` runs all of them for ten minutes.

#[cfg(target_os = "linux")]
mod fork;
#[cfg(feature = "metrics")]
mod recorders;

use std::{
    hash::{Hash, Hasher},
    process::Command,
    sync::atomic::Ordering::Relaxed,
};

use crate::effort::effort;
use crate::support::*;

const THREADS: u64 = 4;

/// The number of operations that a thread parks; `TEST_EFFORT` multiplies it.
const OPERATIONS: u64 = 500;

const KEYS: u32 = 16;

/// A small stack, but large enough for a debug build's copies of an operation of 4 kB.
const STACK: usize = 512 << 10;

/// Counts of the operations that were accepted, and of their ends.
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

    /// Waits until as many operations have ended as were accepted; for ever, if one were lost. The
    /// threads of a shared timer may still be ending some that expired.
    fn close(&self, meanwhile: impl Fn()) {
        while self.taken.load(SeqCst) > self.ended.load(SeqCst) {
            meanwhile();
            thread::yield_now();
        }
        let expected = self.ended.load(SeqCst);
        assert_eq!(self.taken.load(SeqCst), expected, "taken, ended");
    }

    /// Creates an operation that completes at about every fourth check.
    fn operation(&self, seed: u64) -> BoxedOperation {
        let books = self.clone();
        let mut random = fastrand::Rng::with_seed(seed);
        when(move || random.u8(..4) == 0, move |_| books.ended())
    }
}

/// Attacks on several threads, shuts down, and closes the books.
fn attack<K: WatchKey + Send>(purgatory: &Purgatory<K>, key: fn(u32) -> K) {
    attack_with(purgatory, key, Books::operation, || ());
}

fn attack_with<K: WatchKey + Send, O: DelayedOperation + Send>(
    purgatory: &Purgatory<K, O>,
    key: fn(u32) -> K,
    operation: fn(&Books, u64) -> O,
    meanwhile: impl Fn(),
) {
    let books = &Books::default();
    thread::scope(|scope| {
        let mut attackers = Vec::new();
        for seed in 0..THREADS {
            let one = move || attack_on_thread(purgatory, key, operation, seed, books);
            let small = thread::Builder::new().stack_size(STACK);
            attackers.push(small.spawn_scoped(scope, one).unwrap());
        }
        // ThreadSanitizer does not see the end of a scope.
        for attacker in attackers {
            attacker.join().unwrap();
        }
    });
    purgatory.shutdown(Duration::ZERO);
    books.close(meanwhile);
    assert_eq!(purgatory.shutdown(MINUTE), 0);
    assert_empty(purgatory);
}

/// Makes one thread's attack. A key's panic reaches the call that uses the key, which then has had
/// no effect.
fn attack_on_thread<K: WatchKey + Send, O: DelayedOperation + Send>(
    purgatory: &Purgatory<K, O>,
    key: fn(u32) -> K,
    operation: fn(&Books, u64) -> O,
    seed: u64,
    books: &Books,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..effort(OPERATIONS) {
        let keys: Vec<_> = (0..random.u8(1..=3))
            .map(|_| key(random.u32(..KEYS)))
            .collect();
        let operation = operation(books, seed << 32 | number);
        let timeout = MS * random.u32(..20);
        let park = || purgatory.try_complete_else_watch(operation, &keys, timeout);
        if let Ok(parked) = catch_unwind(AssertUnwindSafe(park)) {
            parked.unwrap();
            books.taken();
        }
        let key = &keys[0];
        let how = random.u8(..8);
        let raise = || match how {
            0 => _ = purgatory.cancel_for_key(key, "attacked"),
            1 => _ = purgatory.complete_for_key(key),
            2 => _ = purgatory.check_and_complete_one(key),
            _ => _ = purgatory.check_and_complete(key),
        };
        let _ = catch_unwind(AssertUnwindSafe(raise));
    }
}

/// A key that panics at some comparisons. Many keys share a hash.
#[derive(Clone, Debug)]
struct Quarrels(u32);

impl PartialEq for Quarrels {
    fn eq(&self, other: &Self) -> bool {
        static COMPARED: AtomicU64 = AtomicU64::new(0);
        let quarrels = COMPARED.fetch_add(1, Relaxed) % 97 == 0;
        if quarrels && !thread::panicking() {
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
    attack(&Purgatory::new("quarrel").unwrap(), Quarrels);
}

/// Threads wait for values and advance them; afterwards each accepted wait has ended once.
#[test]
fn watermarks_keys_panic_when_compared() {
    let watermarks = Watermarks::new("attacked").unwrap();
    let books = Books::default();
    race(THREADS, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..effort(OPERATIONS) {
            let key = Quarrels(random.u32(..KEYS));
            // Some thresholds are a little above the highest value.
            let threshold = number + random.u64(..50);
            let timeout = MS * random.u32(..20);
            let told = books.clone();
            let park = || watermarks.park(&key, threshold, timeout, move |_| told.ended());
            if let Ok(parked) = catch_unwind(AssertUnwindSafe(park)) {
                parked.unwrap();
                books.taken();
            }
            let how = random.u8(..8);
            let raise = || match how {
                0 => _ = watermarks.remove(&key),
                1 => _ = watermarks.wait_for(&key, threshold, timeout),
                _ => _ = watermarks.advance(&key, number),
            };
            let _ = catch_unwind(AssertUnwindSafe(raise));
        }
    });
    let waits = watermarks.waits();
    waits.shutdown(Duration::ZERO);
    books.close(|| ());
    assert_eq!(waits.shutdown(MINUTE), 0);
    assert_all_ended(&waits);
}

struct Large {
    bytes: [u8; 4096],
    books: Books,
}

impl DelayedOperation for Large {
    fn try_complete(&mut self) -> bool {
        self.bytes[0] = self.bytes[0].wrapping_mul(5).wrapping_add(1);
        self.bytes[0] > 190
    }

    fn on_complete(self, _: Outcome) {
        self.books.ended();
    }
}

#[test]
fn operations_of_4_kb_on_small_stacks() {
    let large = |books: &Books, seed| Large {
        bytes: [seed as u8; 4096],
        books: books.clone(),
    };
    attack_with(&Purgatory::new("large").unwrap(), |key| key, large, || ());
}

#[test]
fn very_many_purgatories_on_one_timer() {
    let timer = SystemTimer::new().unwrap();
    let books = Books::default();
    let mut kept = Vec::new();
    for number in 0..effort(2000) as u32 {
        let builder = Purgatory::<_, BoxedOperation>::builder("one").timer(&timer);
        let purgatory = builder.shards(1).build().unwrap();
        let told = books.clone();
        purgatory.park(when(|| false, move |_| told.ended()), &[number], MS * 5);
        books.taken();
        if number % 64 > 0 {
            kept.push(purgatory);
        }
        if kept.len() > 100 {
            kept.swap_remove(fastrand::usize(..kept.len())); // it may have expired by then
        }
    }
    drop(kept);
    timer.shutdown(Duration::MAX);
    books.close(|| ());
}

/// A clock that leaps forwards by up to an hour, or stands still.
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
    let timer = system_timer(|builder| builder.clock(Leaps::default()));
    attack(&Purgatory::on(&timer, "leap").unwrap(), |key| key);
    timer.shutdown(Duration::MAX);
}

/// An executor that runs a job in place, drops it, gives it to a thread, or keeps it for later. It
/// does not tell how many threads it has.
#[derive(Clone, Debug, Default)]
struct Unruly(Later);

impl Executor for Unruly {
    fn execute(&self, job: Job) {
        match fastrand::u8(..5) {
            0 => job.run(),
            1 => drop(job),
            2 => thread::spawn(|| job.run()).join().unwrap(),
            3 => self.0.execute(job),
            _ => {
                let mut kept = self.0.take();
                fastrand::shuffle(&mut kept);
                for job in kept {
                    job.run();
                }
                job.run();
            }
        }
    }

    fn parallelism(&self) -> usize {
        std::panic::resume_unwind(Box::new("how many?"))
    }
}

#[test]
fn an_executor_is_unruly() {
    for own in [false, true] {
        let unruly = Unruly::default();
        let mut timer = SystemTimer::builder();
        if !own {
            timer = timer.executor(unruly.clone());
        }
        let timer = timer.build().unwrap();
        let mut builder = Purgatory::builder("unruly").timer(&timer);
        if own {
            builder = builder.executor(unruly.clone());
        }
        let purgatory = builder.build().unwrap();
        attack_with(
            &purgatory,
            |key| key,
            Books::operation,
            || _ = unruly.0.run(),
        );
        timer.shutdown(Duration::MAX);
    }
}

/// A waker that calls the purgatory when it is woken, and when it is dropped.
struct Reenters(Purgatory<u32>);

impl Wake for Reenters {
    fn wake(self: Arc<Self>) {
        self.0.check_and_complete(&fastrand::u32(..KEYS));
    }
}

impl Drop for Reenters {
    fn drop(&mut self) {
        self.0
            .cancel_for_key(&fastrand::u32(..KEYS), "from a waker");
    }
}

/// Threads wait and signal keys; each wait is awaited or dropped.
#[test]
fn wakers_call_back() {
    let purgatory: Purgatory<u32> = Purgatory::new("wakers").unwrap();
    let wait_for_some = |_| {
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
    race(THREADS, wait_for_some);
    assert_eq!(purgatory.shutdown(MINUTE), 0);
    assert_empty(&purgatory);
}

/// Tasks wait on a runtime that is dropped; it may carry the timer, too.
#[test]
fn runtimes_are_dropped() {
    let mut waits = 0;
    let mut parked = 0;
    for _ in 0..effort(20) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let timer = SystemTimer::builder();
        #[cfg(feature = "tokio")]
        let timer = if waits % 400 == 0 {
            timer.tokio(runtime.handle().clone())
        } else {
            timer
        };
        let timer = timer.build().unwrap();
        let purgatory: Purgatory<u32> = Purgatory::on(&timer, "gone").unwrap();
        for key in 0..200 {
            let wait = purgatory.wait(&[key % KEYS], MS * (1 + key % 20), || None::<()>);
            runtime.spawn(wait);
            waits += 1;
        }
        runtime.shutdown_background();
        purgatory.shutdown(MINUTE);
        timer.shutdown(MINUTE);
        assert_empty(&purgatory);
        parked += purgatory.stats().parked_total;
    }
    assert_eq!(waits, parked, "each was parked, and has ended");
}

/// A recorder that inspects the purgatory whose metrics it gets, and ends some of its operations.
#[cfg(feature = "metrics")]
#[test]
fn a_recorder_calls_back() {
    let purgatory: Purgatory<u32> = Purgatory::new("recorded").unwrap();
    let looks_in = || {
        purgatory.snapshot(3);
        purgatory.check_and_complete(&fastrand::u32(..KEYS));
    };
    let over = AtomicUsize::new(0);
    thread::scope(|scope| {
        let publishes = scope.spawn(|| {
            while over.load(SeqCst) == 0 {
                let recorder = Records::acting(looks_in);
                metrics::with_local_recorder(&recorder, || purgatory.publish());
            }
        });
        attack(&purgatory, |key| key);
        over.store(1, SeqCst);
        publishes.join().unwrap(); // ThreadSanitizer sees this order
    });
}

/// Returns true in a process that [`again`] has started.
pub(crate) fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

const AGAIN: &str = "ATTACK_AGAIN";

/// Runs this test in a process of its own, which must exit with this code.
#[track_caller]
pub(crate) fn again(test: &str, code: i32) {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env(AGAIN, "1");
    let ended = again.output().unwrap();
    assert_eq!(
        ended.status.code(),
        Some(code),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// A callback on the timer's worker ends the process while other threads work.
#[test]
fn a_callback_exits_the_process() {
    if is_again() {
        let purgatory: Purgatory<u32> = Purgatory::new("exits").unwrap();
        purgatory.park(when(|| false, |_| std::process::exit(7)), &[1], MS * 20);
        attack(&Purgatory::new("others").unwrap(), |key| key);
        loop {
            thread::park();
        }
    }
    for _ in 0..effort(3) {
        again("attack::a_callback_exits_the_process", 7);
    }
}
