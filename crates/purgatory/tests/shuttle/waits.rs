//! Futures and the values they wait for.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use purgatory::failpoints::Failpoint;
use purgatory::{
    BoxedOperation, CancelReason, Purgatory, ThresholdPurgatory, Timeout, WaitError, WaitFuture,
};
use shuttle::{
    future::block_on,
    sync::Mutex,
    thread::{self, JoinHandle},
};
use timer_core::ManualTimer;

use crate::{
    schedules::check,
    world::{MS, NEVER, join},
};

/// Checks take a lock that is held while the event is deferred: nobody waits for ever, and no event
/// is lost.
#[test]
fn deferred_events() {
    check(&[Failpoint::EventRaisesNoVersion, Failpoint::EventLeavesNoNote], || {
        let purgatory: Purgatory<u8, BoxedOperation> =
            Purgatory::builder("deferred").timer(&ManualTimer::new()).build().unwrap();
        let count = Arc::new(Mutex::new(0));
        let wait = |least: u32| {
            let (purgatory, count) = (purgatory.clone(), count.clone());
            thread::spawn(move || {
                let reached = move || Some(*count.lock().unwrap()).filter(|&count| count >= least);
                assert!(block_on(purgatory.wait(&[1, 2], NEVER, reached)).unwrap() >= least);
            })
        };
        let add = |key: u8| {
            let (purgatory, count) = (purgatory.clone(), count.clone());
            thread::spawn(move || {
                let mut held = count.lock().unwrap();
                *held += 1;
                purgatory.defer(key);
                drop(held);
                purgatory.run_deferred();
            })
        };
        join([wait(1), wait(3), add(1), add(2), add(1)]);
        assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
    });
}

/// Values that waits take out of a pool and, when nobody is there to have them, put back.
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

    fn wait(&self, timeout: impl Into<Timeout>) -> WaitFuture<u32> {
        let (values, unclaimed) = (self.values.clone(), self.clone());
        let take = move || values.lock().unwrap().pop();
        self.purgatory.wait_or(&[1, 2], timeout, take, move |value| unclaimed.put(value))
    }

    /// A thread that waits for a value to the end; one that has to get it, when there is no end.
    fn taker(&self, timeout: Option<Duration>) -> JoinHandle<()> {
        let pool = self.clone();
        thread::spawn(move || {
            let future = pool.wait(timeout.map_or(NEVER, Timeout::After));
            let result = block_on(future);
            assert!(timeout.is_some() || result.is_ok(), "{result:?}");
            pool.taken.lock().unwrap().extend(result);
        })
    }

    /// A thread that looks at most once, and leaves.
    fn quitter(&self) -> JoinHandle<()> {
        let pool = self.clone();
        thread::spawn(move || {
            drop(pool.wait(NEVER));
            let mut future = pool.wait(MS);
            let polled =
                Future::poll(Pin::new(&mut future), &mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(Ok(value)) = polled {
                pool.put(value);
            }
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
        let purgatory = &self.purgatory;
        assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
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

/// One value rises for many: nobody is told of less than it waits for, and nobody waits on.
#[test]
fn thresholds() {
    check(&[Failpoint::ParkSkipsVersionCheck, Failpoint::EventRaisesNoVersion], || {
        let waits = Purgatory::builder("thresholds").timer(&ManualTimer::new()).build().unwrap();
        let waits = ThresholdPurgatory::from(waits);
        let wait = |threshold: u64| {
            let waits = waits.clone();
            thread::spawn(move || {
                drop(waits.wait_for(threshold, NEVER));
                let value = block_on(waits.wait_for(threshold, NEVER)).unwrap();
                assert!((threshold..10).contains(&value), "{value} for {threshold}");
            })
        };
        let rise = |values: [u64; 2]| {
            let waits = waits.clone();
            thread::spawn(move || {
                values.into_iter().for_each(|value| _ = waits.complete_up_to(value))
            })
        };
        join([wait(1), wait(4), wait(9), rise([3, 5]), rise([9, 2])]);
        assert_eq!((waits.value(), waits.waiting()), (9, 0));
    });
}
