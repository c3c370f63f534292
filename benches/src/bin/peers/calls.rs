//! `--calls`: makes the commonest calls a thousand times each, for `benches/lines.py`. That script
//! runs this program under valgrind and says which cache lines each call touches, and which of them
//! would move between processors.
//!
//! A call is marked by a store to a byte that belongs to its kind. Everything runs on one thread;
//! the script chooses the processor of each call. As many unmarked calls run first, so that pages
//! and tables have grown to their size.

use std::{
    cell::Cell,
    collections::VecDeque,
    env, fs,
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    task::{Context, Waker},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use purgatory::{
    DelayedOperation, OperationId, Outcome, Purgatory, Replies, WaitFuture, Watermarks,
};
use timer_core::ManualTimer;

/// The number of operations that are parked while one more is parked and the oldest ends.
const PARKED: usize = 512;
/// The number of operations that expire at once.
const BURST: u64 = 512;
/// The number of keys, used in turn. Fewer operations are parked, so a key has one waiter at most.
const KEYS: u64 = 2048;
const MINUTE: Duration = Duration::from_secs(60);
/// The timeout on a timer with a thread, long enough that nothing expires while valgrind runs.
const DAY: Duration = Duration::from_secs(86_400);

/// The bytes of the marks, and everything else of this program that a call touches. None of it
/// counts as part of a call.
#[repr(align(128))]
struct Bench {
    /// One mark for each kind of call; the first marks a call's end.
    marks: [AtomicU8; 64],
    ready: AtomicU64,
    ended: AtomicU64,
}

static BENCH: Bench = Bench {
    marks: [const { AtomicU8::new(0) }; 64],
    ready: AtomicU64::new(u64::MAX),
    ended: AtomicU64::new(0),
};

thread_local! {
    /// Its address tells the script where thread-locals are.
    static LOCAL: Cell<u64> = const { Cell::new(0) };
}

/// The kinds of calls. The script knows them by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A call that is not counted, but is made on some processor.
    Other = 1,
    Park,
    Event,
    Advance,
    Expect,
    Deliver,
    Take,
    Cancel,
    Expire,
    /// A park under three keys; the event signals any of them.
    ParkThree,
    EventThree,
}

/// An operation of 8 bytes.
struct Op(u64);

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        BENCH.ready.load(Relaxed) == self.0
    }

    fn on_complete(self, _: Outcome) {
        BENCH.ended.fetch_add(1, Relaxed);
    }
}

/// The marked calls in order, each with its key.
struct Calls {
    made: Vec<(Kind, u64)>,
    marking: bool,
}

impl Calls {
    /// Makes a call on `key`, between two marks.
    fn make<R>(&mut self, kind: Kind, key: u64, call: impl FnOnce() -> R) -> R {
        if !self.marking {
            return call();
        }
        self.made.push((kind, key));
        BENCH.marks[kind as usize].store(1, Relaxed);
        let result = call();
        BENCH.marks[0].store(1, Relaxed);
        result
    }

    /// Parks an operation that is not ready under its keys.
    fn park(
        &mut self,
        kind: Kind,
        purgatory: &Purgatory<u64, Op>,
        number: u64,
        keys: &[u64],
        timeout: Duration,
    ) -> Result<OperationId> {
        let park = || purgatory.try_complete_else_watch(Op(number), keys, timeout);
        let parked = self.make(kind, number % KEYS, park)?;
        parked.context("it is not ready")
    }
}

/// Returns three keys that no other parked operation has.
fn three_keys(number: u64) -> [u64; 3] {
    [0, 1, 2].map(|of| of * KEYS + number % KEYS)
}

/// The purgatories. `expires` has a timer of its own, so that the call that advances its time
/// visits no other shards.
struct World {
    events: Purgatory<u64, Op>,
    /// On a timer with an idle thread, as in a server.
    three: Purgatory<u64, Op>,
    cancels: Purgatory<u64, Op>,
    advances: Watermarks<u64>,
    replies: Replies<u64, u64>,
    expires: Purgatory<u64, Op>,
    timer: ManualTimer,
    cancellable: VecDeque<OperationId>,
    expected: VecDeque<Pin<Box<WaitFuture<u64>>>>,
}

impl World {
    fn new() -> Result<Self> {
        // As many shards as on two processors.
        let still = ManualTimer::new();
        let timer = ManualTimer::new();
        let purgatory = |timer: &ManualTimer| Purgatory::builder("lines").timer(timer).shards(128);
        let advances = Watermarks::builder("lines").timer(&still).shards(128);
        let replies = Replies::builder("lines").timer(&still).shards(128);
        Ok(World {
            events: purgatory(&still).build()?,
            three: Purgatory::builder("lines").shards(128).build()?,
            cancels: purgatory(&still).build()?,
            advances: advances.build()?,
            replies: replies.build()?,
            expires: purgatory(&timer).build()?,
            timer,
            cancellable: VecDeque::with_capacity(2 * PARKED),
            expected: VecDeque::with_capacity(2 * PARKED),
        })
    }

    /// Parks an operation in each purgatory, and ends the oldest in each of the ways.
    fn step(&mut self, number: u64, calls: &mut Calls) -> Result<()> {
        let key = number % KEYS;
        let oldest = number.checked_sub(PARKED as u64);
        let oldest_key = oldest.map_or(0, |oldest| oldest % KEYS);

        // An event with one waiter.
        calls.park(Kind::Park, &self.events, number, &[key], MINUTE)?;
        if let Some(oldest) = oldest {
            BENCH.ready.store(oldest, Relaxed);
            let completed = calls.make(Kind::Event, oldest_key, || {
                self.events.check_and_complete(&oldest_key)
            });
            ensure!(completed == 1, "the event completed {completed}");
        }

        // A cancel by id.
        let id = calls.park(Kind::Other, &self.cancels, number, &[key], MINUTE)?;
        self.cancellable.push_back(id);
        if oldest.is_some() {
            let id = self.cancellable.pop_front().context("the oldest")?;
            calls.make(Kind::Cancel, oldest_key, || self.cancels.cancel(id, "over"));
        }

        // A watermark that reaches one waiter.
        let parked = calls.make(Kind::Other, key, || {
            let count = |_| _ = BENCH.ended.fetch_add(1, Relaxed);
            self.advances.park(&key, number + 1, MINUTE, count)
        });
        ensure!(matches!(parked, Ok(Some(_))), "it is reached");
        if let Some(oldest) = oldest {
            let completed = calls.make(Kind::Advance, oldest_key, || {
                self.advances.advance(&oldest_key, oldest + 1)
            });
            ensure!(completed == Ok(1), "the advance completed {completed:?}");
        }
        self.three_keys(number, oldest, calls)?;
        self.reply(number, oldest, calls)
    }

    /// Parks an operation under three keys, and completes the oldest by an event of one of them.
    fn three_keys(&self, number: u64, oldest: Option<u64>, calls: &mut Calls) -> Result<()> {
        let keys = three_keys(number);
        calls.park(Kind::ParkThree, &self.three, number, &keys, DAY)?;
        let Some(oldest) = oldest else {
            return Ok(());
        };
        BENCH.ready.store(oldest, Relaxed);
        let signalled = three_keys(oldest)[(oldest % 3) as usize]; // each key has its turn
        let completed = calls.make(Kind::EventThree, oldest % KEYS, || {
            self.three.check_and_complete(&signalled)
        });
        ensure!(completed == 1, "the event completed {completed}");
        Ok(())
    }

    /// Expects a reply, then delivers and takes the oldest.
    fn reply(&mut self, number: u64, oldest: Option<u64>, calls: &mut Calls) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        let reply = calls.make(Kind::Expect, number % KEYS, || {
            let reply = self.replies.expect(number, MINUTE);
            reply.map(|reply| {
                let mut reply = Box::pin(reply);
                _ = reply.as_mut().poll(&mut context);
                reply
            })
        });
        self.expected
            .push_back(reply.ok().context("a fresh number")?);
        let Some(oldest) = oldest else {
            return Ok(());
        };

        // The caller that expects the reply takes it.
        let mut reply = self.expected.pop_front().context("the oldest")?;
        let deliver = || self.replies.deliver(&oldest, !oldest);
        let delivered = calls.make(Kind::Deliver, oldest % KEYS, deliver);
        ensure!(delivered.is_ok(), "nobody waited");
        let taken = calls.make(Kind::Take, oldest % KEYS, || {
            let taken = reply.as_mut().poll(&mut context).is_ready();
            drop(reply);
            taken
        });
        ensure!(taken, "no reply");
        Ok(())
    }

    /// Parks a burst of operations, and advances the time until all have expired.
    fn expire(&self, first: u64, calls: &mut Calls) -> Result<()> {
        for number in first..first + BURST {
            let soon = Duration::from_millis(5);
            calls.park(Kind::Other, &self.expires, number, &[number % KEYS], soon)?;
        }
        let before = BENCH.ended.load(Relaxed);
        calls.make(Kind::Expire, 0, || {
            self.timer.advance(Duration::from_millis(20));
        });
        let expired = BENCH.ended.load(Relaxed) - before;
        ensure!(expired == BURST, "{expired} expired");
        Ok(())
    }
}

/// Makes `count` calls of each kind; prints the places in memory, and the calls that were made.
#[expect(clippy::print_stdout, reason = "the script reads it")]
pub(crate) fn make(count: u64) -> Result<()> {
    let mut world = World::new()?;
    let mut calls = Calls {
        made: Vec::with_capacity(32 * count as usize),
        marking: false,
    };

    // Print the places in memory that the script asks for.
    let executable = env::current_exe()?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let of_this = |line: &&str| line.ends_with(&*executable.to_string_lossy());
    println!("base {}", maps.lines().find(of_this).unwrap_or_default());
    let heap = maps.lines().find(|line| line.ends_with("[heap]"));
    println!("heap {}", heap.unwrap_or_default());
    println!("bench {:p} {}", &raw const BENCH, size_of::<Bench>());
    println!("stack {:p}", &raw const count);
    LOCAL.with(|local| println!("local {:p}", local.as_ptr()));

    // The first half warms up.
    for number in 0..2 * count {
        calls.marking = number >= count;
        world.step(number, &mut calls)?;
        if number % BURST == 0 {
            world.expire(number, &mut calls)?;
        }
    }
    for (kind, key) in &calls.made {
        println!("call {kind:?} {key}");
    }
    Ok(())
}
