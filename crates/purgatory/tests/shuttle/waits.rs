//! Futures and the values they wait for.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use purgatory::failpoints::Failpoint;
use purgatory::{
    BoxedOperation, CancelReason, Monitor, Purgatory, Timeout, WaitError, WaitFuture, Watermarks,
};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::Mutex,
    thread::{self, JoinHandle},
};
use timer_core::ManualTimer;

use crate::{
    schedules::check,
    world::{MS, NEVER, join},
};

/// Changes of a monitor's state, by one key and by all, against waits for what they add up to.
#[test]
fn monitor_changes_end_their_waits() {
    let faults = [
        Failpoint::EventRaisesNoVersion,
        Failpoint::EventLeavesNoNote,
        Failpoint::WaitTrustsEarlierWalk,
    ];
    check(&faults, || {
        let purgatory = Purgatory::builder("monitor").timer(&ManualTimer::new()).build().unwrap();
        let counter: Monitor<u8, u32> = Monitor::with(purgatory, 0);
        let wait = |least: u32| {
            let counter = counter.clone();
            thread::spawn(move || {
                let wait = counter.wait(&[1, 2], NEVER, move |count| {
                    Some(*count).filter(|&count| count >= least)
                });
                assert!(block_on(wait).unwrap() >= least);
            })
        };
        let add = |key: Option<u8>| {
            let counter = counter.clone();
            thread::spawn(move || match key {
                Some(key) => counter.update_key(&key, |count| *count += 1),
                None => counter.update(|count| *count += 1),
            })
        };
        join([wait(1), wait(3), add(Some(1)), add(Some(2)), add(None)]);
        assert_nothing_left(counter.purgatory());
    });
}

/// A check that an event overtakes each time is repeated each time.
#[test]
fn overtaken_check_is_repeated() {
    check(&[Failpoint::EventLeavesNoNote], || {
        let purgatory: Purgatory<u8, BoxedOperation> =
            Purgatory::builder("overtaken").timer(&ManualTimer::new()).build().unwrap();
        let mut looks = 0;
        let overtaking = purgatory.clone();
        let wait = purgatory.wait(&[1], NEVER, move || {
            looks += 1;
            let overtaking = overtaking.clone();
            join([thread::spawn(move || _ = overtaking.check_and_complete(&1))]);
            (looks >= 12).then_some(looks)
        });
        let (cancelling, cancels) = (purgatory.clone(), thread_rng().gen_range(0..2));
        let cancel = thread::spawn(move || {
            (0..cancels).for_each(|_| _ = cancelling.cancel_for_key(&1, "shuttle"));
        });
        let result = block_on(wait);
        assert!(matches!(result, Ok(12) | Err(WaitError::Cancelled(_))), "{result:?}");
        join([cancel]);
        assert_nothing_left(&purgatory);
    });
}

/// A value of a pool, which goes back when it is dropped untaken.
struct Pooled {
    pool: Pool,
    value: Option<u32>,
}

impl Pooled {
    fn take(mut self) -> u32 {
        self.value.take().unwrap()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.value.into_iter().for_each(|value| self.pool.put(value));
    }
}

/// Values that waits take out of a pool.
#[derive(Clone)]
struct Pool {
    purgatory: Purgatory<u8, BoxedOperation>,
    values: Arc<Mutex<Vec<u32>>>,
    taken: Arc<Mutex<Vec<u32>>>,
}

impl Pool {
    fn new(timer: &ManualTimer) -> Self {
        let purgatory = Purgatory::builder("pool").timer(timer).build().unwrap();
        Pool { purgatory, values: Arc::default(), taken: Arc::default() }
    }

    fn put(&self, value: u32) {
        self.values.lock().unwrap().push(value);
        self.purgatory.check_and_complete(&1);
    }

    fn wait(&self, timeout: impl Into<Timeout>) -> WaitFuture<Pooled> {
        let pool = self.clone();
        self.purgatory.wait(&[1, 2], timeout, move || {
            let value = Some(pool.values.lock().unwrap().pop()?);
            Some(Pooled { pool: pool.clone(), value })
        })
    }

    /// A thread that waits for a value to the end; one that has to get it, when there is no end.
    fn taker(&self, timeout: Option<Duration>) -> JoinHandle<()> {
        let pool = self.clone();
        thread::spawn(move || {
            let future = pool.wait(timeout.map_or(NEVER, Timeout::After));
            let result = block_on(future);
            assert!(timeout.is_some() || result.is_ok(), "{:?}", result.err());
            pool.taken.lock().unwrap().extend(result.map(Pooled::take));
        })
    }

    /// A thread that looks at most once, and leaves.
    fn quitter(&self) -> JoinHandle<()> {
        let pool = self.clone();
        thread::spawn(move || {
            drop(pool.wait(NEVER));
            let mut future = pool.wait(MS);
            // A value that it yields goes back as it is dropped.
            drop(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())));
        })
    }

    fn producer(&self, values: &'static [u32]) -> JoinHandle<()> {
        let pool = self.clone();
        thread::spawn(move || values.iter().for_each(|&value| pool.put(value)))
    }

    /// Each of these values is there, once, and nobody waits any more.
    fn assert_values(&self, expected: impl IntoIterator<Item = u32>) {
        let mut values = self.values.lock().unwrap().clone();
        values.extend(&*self.taken.lock().unwrap());
        values.sort_unstable();
        assert!(values.iter().copied().eq(expected), "{values:?}");
        assert_nothing_left(&self.purgatory);
        assert_eq!(Arc::strong_count(&self.values), 1, "a wait was not dropped");
    }
}

/// Two wait for two values, and others leave while one may be on its way to them: what they do not
/// take, those two get.
#[test]
fn futures_that_are_dropped() {
    check(&[Failpoint::ExpiryLeavesNoNote, Failpoint::DroppedFutureLeavesOperation], || {
        let pool = Pool::new(&ManualTimer::new());
        join([
            pool.taker(None),
            pool.quitter(),
            pool.producer(&[1, 2]),
            pool.taker(None),
            pool.quitter(),
        ]);
        assert_eq!(pool.taken.lock().unwrap().len(), 2);
        pool.assert_values(1..3);
    });
}

/// No value is lost or had twice, whatever ends the waits.
#[test]
fn futures_against_cancel_time_and_shutdown() {
    check(&[Failpoint::ShutdownClosesNoRoom], || {
        let timer = ManualTimer::new();
        let pool = Pool::new(&timer);
        let takers = [pool.taker(Some(MS)), pool.taker(Some(2 * MS))];
        let cancelling = pool.purgatory.clone();
        let ends = [
            pool.quitter(),
            pool.producer(&[1]),
            thread::spawn(move || {
                timer.advance(MS);
                cancelling.cancel_for_key(&2, "shuttle");
            }),
        ];
        join(ends);
        pool.purgatory.shutdown(Duration::ZERO);
        join(takers);
        pool.assert_values([1]);
    });
}

/// The purgatory goes while others wait for it: they are told.
#[test]
fn the_last_handle_is_dropped() {
    check(&[] as &[Failpoint], || {
        let purgatory: Purgatory<u8, BoxedOperation> =
            Purgatory::builder("last").timer(&ManualTimer::new()).build().unwrap();
        let ready = Arc::new(Mutex::new(false));
        let wait = |keys: &'static [u8]| {
            let (purgatory, ready) = (purgatory.clone(), ready.clone());
            thread::spawn(move || {
                let condition = move || ready.lock().unwrap().then_some(());
                let future = purgatory.wait(keys, NEVER, condition);
                drop(purgatory);
                let result = block_on(future);
                let gone = Err(WaitError::Cancelled(CancelReason::Dropped));
                assert!(result == gone || result.is_ok() && keys.contains(&1), "{result:?}");
            })
        };
        let (events, set) = (purgatory.clone(), ready.clone());
        let event = thread::spawn(move || {
            events.check_and_complete(&2);
            *set.lock().unwrap() = true;
            events.check_and_complete(&1);
        });
        // One whose condition is the last to let go of the purgatory, perhaps.
        let (keeps, when) = (purgatory.clone(), ready.clone());
        let inside = purgatory.wait(&[1, 2], NEVER, move || {
            let _ = &keeps;
            when.lock().unwrap().then_some(())
        });
        let inside = thread::spawn(move || assert_eq!(block_on(inside), Ok(())));
        let threads = [wait(&[1]), wait(&[2, 1]), wait(&[1, 2, 3, 4, 5]), event, inside];
        drop(purgatory);
        join(threads);
        assert_eq!(Arc::strong_count(&ready), 1, "a wait was not dropped");
    });
}

/// One value rises for many waits: each yields no less than its threshold, and all end.
#[test]
fn one_watermark_ends_many_waits() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], || {
        let purgatory = Purgatory::builder("watermark").timer(&ManualTimer::new()).build().unwrap();
        let watermark = Watermarks::from(purgatory);
        let wait = |threshold: u64| {
            let watermark = watermark.clone();
            thread::spawn(move || {
                drop(watermark.wait_for(&(), threshold, NEVER));
                let value = block_on(watermark.wait_for(&(), threshold, NEVER)).unwrap();
                assert!((threshold..10).contains(&value), "{value} for {threshold}");
            })
        };
        let rise = |values: [u64; 2]| {
            let watermark = watermark.clone();
            thread::spawn(move || {
                values.into_iter().for_each(|value| _ = watermark.raise(&(), value).unwrap());
            })
        };
        join([wait(1), wait(4), wait(9), rise([3, 5]), rise([9, 2])]);
        assert_eq!((watermark.value(&()), watermark.purgatory().len()), (Some(9), 0));
    });
}

#[track_caller]
fn assert_nothing_left(purgatory: &Purgatory<u8, BoxedOperation>) {
    let left = (purgatory.len(), purgatory.watched(), purgatory.keys());
    assert_eq!(left, (0, 0, 0), "left behind");
}
