//! Chains of endings, each of which causes the next. No chain needs stack: the work that one end
//! causes is left to the outermost call.
#![cfg(not(loom))]

use std::sync::atomic::AtomicU32;

use crate::support::*;

/// The number of links of a chain.
const DEEP: u32 = 10_000;

type Waits = Purgatory<u32>;

/// Runs a chain on a stack that is too small for a tenth of it.
fn on_a_small_stack(chain: impl FnOnce() + Send + 'static) {
    on_stack(256 << 10, chain);
}

/// The ids of a chain's operations, each of which ends the next.
type Ids = Arc<Mutex<Vec<OperationId>>>;

/// Completes the operation with this number, if there is one.
fn complete(waits: &Waits, ids: &Ids, number: u32) {
    let id = ids.lock().unwrap().get(number as usize).copied();
    if let Some(id) = id {
        waits.complete(id);
    }
}

#[test]
fn callbacks_that_complete_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let ids = Ids::default();
        for number in 0..DEEP {
            let (inside, all) = (waits.clone(), ids.clone());
            let then = move |_| complete(&inside, &all, number + 1);
            let id = waits.park(when(|| false, then), &[number], NEVER);
            ids.lock().unwrap().push(id);
        }
        complete(&waits, &ids, 0);
        assert_empty(&waits);
    });
}

/// Counts the futures that have ended well.
fn count_ended<T>(futures: Vec<WaitFuture<T>>) -> u32 {
    let results = futures.into_iter().map(WaitFuture::try_take);
    results.filter(|result| matches!(result, Ok(Ok(_)))).count() as u32
}

fn deep_replies<K: WatchKey, V: Send + 'static>() -> Replies<K, V> {
    Replies::on(&ManualTimer::new(), "deep").unwrap()
}

fn deep_values() -> Watermarks<u32> {
    Watermarks::on(&ManualTimer::new(), "deep").unwrap()
}

fn deep_permits(limit: u32) -> Permits {
    Permits::on(&ManualTimer::new(), "deep", limit.into()).unwrap()
}

/// Makes a chain of futures, each with a waker that holds the next future, and drops the first.
fn wakers_that_hold_the_next_future<F>(wait: impl Fn() -> F)
where
    F: Future + Unpin + Send + 'static,
{
    let link = |_, holds: OnDrop| {
        let mut future = wait();
        assert!(poll_by(&mut future, &holds.waker()).is_pending());
        future
    };
    each_holds_the_next(link, || ());
}

#[test]
fn chain_of_dropped_wakers_needs_no_stack() {
    on_a_small_stack(|| {
        let values = deep_values();
        wakers_that_hold_the_next_future(|| values.wait_for(&1, 1, NEVER));
        wakers_that_hold_the_next_future(|| values.wait_for_each(&[(1, 1), (2, 1)], NEVER));
        assert!(values.waits().is_empty());
        let permits = deep_permits(0);
        wakers_that_hold_the_next_future(|| permits.acquire(1, NEVER));
        assert!(permits.waits().is_empty());
        let (_timer, waits): (_, Waits) = by_hand();
        wakers_that_hold_the_next_future(|| waits.next_event(&[1], NEVER));
        assert_empty(&waits);
        let permits = deep_permits(1);
        let lease = permits.lease(1, MINUTE, NEVER).wait_blocking().unwrap();
        wakers_that_hold_the_next_future(|| Box::pin(lease.lost()));
    });
}

/// Each task ends the next one's wait when it is woken.
fn wakers_that<T>(
    wait: impl Fn(u32) -> WaitFuture<T>,
    end: impl Fn(u32) + Clone + Send + Sync + 'static,
) {
    let mut futures = Vec::new();
    for number in 0..DEEP {
        let mut future = wait(number);
        let inside = end.clone();
        let woken = waker(move || inside(number + 1));
        assert!(poll_by(&mut future, &woken).is_pending());
        futures.push(future);
    }
    end(0);
    assert_eq!(count_ended(futures), DEEP);
}

#[test]
fn wakers_that_end_the_next_wait_need_no_stack() {
    on_a_small_stack(|| {
        // An operation is completed.
        let (_timer, waits): (_, Waits) = by_hand();
        let (inside, ids) = (waits.clone(), Ids::default());
        let all = ids.clone();
        let wait = |number| {
            let wait = waits.next_event(&[number], NEVER);
            ids.lock().unwrap().push(wait.id().unwrap());
            wait
        };
        wakers_that(wait, move |number| complete(&inside, &all, number));
        assert_empty(&waits);
        // A reply is delivered.
        let replies = deep_replies();
        let wait = |number| replies.expect(number, NEVER).unwrap();
        let inside = replies.clone();
        wakers_that(wait, move |number| _ = inside.deliver(&number, 7_u32));
        // A reply of a scope is delivered.
        let scope = Arc::new(ReplyScope::on(&ManualTimer::new(), "deep").unwrap());
        let inside = scope.clone();
        let wait = |_| scope.expect(NEVER).unwrap().1;
        wakers_that(wait, move |number| {
            _ = inside.deliver(u64::from(number) + 1, "reply")
        });
        // A value is advanced.
        let values = deep_values();
        let inside = values.clone();
        let wait = |number| values.wait_for(&number, 1, NEVER);
        wakers_that(wait, move |number| _ = inside.advance(&number, 1));
    });
}

fn poll_stream(stream: &mut ReplyStream<u32>, waker: &Waker) -> Poll<bool> {
    let polled = pin!(stream.next_reply()).poll(&mut Context::from_waker(waker));
    polled.map(|reply| reply == Some(Ok(7)))
}

/// A waker delivers the first of two replies, which leaves its request parked.
#[test]
fn chain_of_wakers_that_deliver_needs_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let mut streams = Vec::new();
        for number in 0..DEEP {
            let mut stream = replies.expect_many(number, 2, NEVER).unwrap();
            let inside = replies.clone();
            let waker = waker(move || _ = inside.deliver(&(number + 1), 7));
            assert!(poll_stream(&mut stream, &waker).is_pending());
            streams.push(stream);
        }
        replies.deliver(&0, 7).unwrap();
        for mut stream in streams {
            assert_eq!(poll_stream(&mut stream, Waker::noop()), Poll::Ready(true));
        }
    });
}

#[test]
fn keys_that_deliver_the_next_reply_need_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies::<Hooked, Hooked>();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let inside = replies.clone();
            let act = move || _ = inside.deliver(&(number + 1), Hooked::plain(7));
            let key = Hooked::holding(number, OnDrop::new(act));
            futures.push(replies.expect(key, NEVER).unwrap());
        }
        replies.deliver(&0, Hooked::plain(7)).unwrap();
        assert_eq!(count_ended(futures), DEEP);
    });
}

/// Creates a value that, when dropped, delivers a value like itself to the next request.
fn chained(replies: &Replies<u32, Hooked>, number: u32) -> Hooked {
    let replies = replies.clone();
    let next = number + 1;
    let delivers = OnDrop::new(move || {
        if next < DEEP {
            let _ = replies.deliver(&next, chained(&replies, next));
        }
    });
    Hooked::holding(number, delivers)
}

/// Each task drops its future when it is woken, and with it the value that was not taken.
#[test]
fn chain_of_values_that_deliver_needs_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let woken = Arc::new(AtomicU32::new(0));
        for number in 0..DEEP {
            let slot = Arc::new(Mutex::new(None));
            let (counts, inside) = (woken.clone(), slot.clone());
            let mut reply = replies.expect(number, NEVER).unwrap();
            let woken = waker(move || {
                counts.fetch_add(1, SeqCst);
                let own = inside.lock().unwrap().take();
                drop(own);
            });
            assert!(poll_by(&mut reply, &woken).is_pending());
            *slot.lock().unwrap() = Some(reply);
        }
        assert!(replies.deliver(&0, chained(&replies, 0)).is_ok());
        assert_eq!(woken.load(SeqCst), DEEP);
    });
}

/// Makes a chain in which each link holds the previous one, and drops it.
fn each_holds_the_next<L: Send + 'static>(link: impl Fn(u32, OnDrop) -> L, end: impl FnOnce()) {
    let drops = Arc::new(AtomicU32::new(0));
    let mut next = None::<Box<dyn Send>>;
    for number in 0..DEEP {
        let counted = drops.clone();
        let holds = OnDrop::new(move || {
            let _ = &next; // dropped after this
            counted.fetch_add(1, SeqCst);
        });
        next = Some(Box::new(link(number, holds)));
    }
    end();
    drop(next);
    assert_eq!(drops.load(SeqCst), DEEP);
}

/// Each reply holds the next request's future, whose reply has come by then.
#[test]
fn chain_of_untaken_replies_needs_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let link = |number, holds: OnDrop| {
            let reply = replies.expect(number, NEVER).unwrap();
            let value = Hooked::holding(number, holds);
            assert!(replies.deliver(&number, value).is_ok());
            reply
        };
        each_holds_the_next(link, || ());
    });
}

/// Each reply holds the next stream, which keeps such a reply. The requests wait, or have ended.
#[test]
fn chain_of_kept_replies_needs_no_stack() {
    on_a_small_stack(|| {
        for have_ended in [false, true] {
            let replies = deep_replies();
            let link = |number, holds: OnDrop| {
                let stream = replies.expect_many(number, 2, NEVER).unwrap();
                let value = Hooked::holding(number, holds);
                assert!(replies.deliver(&number, value).is_ok());
                stream
            };
            let end = || {
                if have_ended {
                    assert_eq!(replies.fail_all("over"), DEEP as usize);
                }
            };
            each_holds_the_next(link, end);
            assert_eq!(replies.waits().len(), 0);
        }
    });
}

/// Each stream's test for its last reply holds the next stream.
#[test]
fn last_tests_that_hold_the_next_stream_need_no_stack() {
    on_a_small_stack(|| {
        for is_yielded in [false, true] {
            let replies = deep_replies();
            let link = |number, holds: OnDrop| {
                let stream = replies.expect_many(number, 2, NEVER).unwrap();
                let is_last = move |_: &u32| {
                    let _ = &holds;
                    true
                };
                let mut stream = stream.until(is_last);
                if is_yielded && number == DEEP - 1 {
                    assert!(replies.deliver(&number, 7).is_ok());
                    assert_eq!(poll_stream(&mut stream, Waker::noop()), Poll::Ready(true));
                }
                stream
            };
            each_holds_the_next(link, || ());
            assert_eq!(replies.waits().len(), 0);
        }
    });
}

/// Each woken task takes its guard and drops it, which hands the permit to the next request.
fn guards_that_go_to_the_next<G: Send + 'static>(wait: impl Fn() -> WaitFuture<G>) {
    let first = wait().try_take().ok().unwrap().unwrap();
    let woken = Arc::new(AtomicU32::new(0));
    for _ in 0..DEEP {
        let slot = Arc::new(Mutex::new(None::<WaitFuture<G>>));
        let (counts, inside) = (woken.clone(), slot.clone());
        let mut next = wait();
        let woken = waker(move || {
            counts.fetch_add(1, SeqCst);
            let own = inside.lock().unwrap().take();
            drop(own.unwrap().try_take().ok().unwrap().unwrap());
        });
        assert!(poll_by(&mut next, &woken).is_pending());
        *slot.lock().unwrap() = Some(next);
    }
    drop(first);
    assert_eq!(woken.load(SeqCst), DEEP);
}

#[test]
fn chain_of_wakers_that_return_permits_needs_no_stack() {
    on_a_small_stack(|| {
        let permits = deep_permits(1);
        guards_that_go_to_the_next(|| permits.acquire(1, NEVER));
        guards_that_go_to_the_next(|| permits.lease(1, MINUTE, NEVER));
        assert_eq!(permits.taken(), 0);
    });
}

/// Each task that waits for the loss of a lease drops the next lease when it is woken.
#[test]
fn wakers_of_lost_leases_need_no_stack() {
    on_a_small_stack(|| {
        let permits = deep_permits(DEEP);
        let mut next = None::<Lease>;
        let mut losses = Vec::new();
        for _ in 0..DEEP {
            let lease = permits.lease(1, MINUTE, NEVER).try_take().ok().unwrap();
            let lease = lease.unwrap();
            let mut lost = Box::pin(lease.lost());
            let slot = Mutex::new(next.replace(lease));
            let waker = waker(move || drop(slot.lock().unwrap().take()));
            assert!(poll_by(&mut lost, &waker).is_pending());
            losses.push(lost);
        }
        drop(next);
        assert_eq!(permits.taken(), 0);
    });
}

/// Each woken task drops the next one's operation.
#[test]
fn wakers_that_drop_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let woken = Arc::new(AtomicU32::new(0));
        let mut next = None::<BoxedOperation>;
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = waits.next_event(&[number], NEVER);
            let (counts, slot) = (woken.clone(), Mutex::new(next.take()));
            let woken = waker(move || {
                counts.fetch_add(1, SeqCst);
                drop(slot.lock().unwrap().take()); // an unanswered one, whose task is woken, too
            });
            assert!(poll_by(&mut wait, &woken).is_pending());
            next = waits.take(wait.id().unwrap()).reached();
            futures.push(wait);
        }
        drop(next);
        assert_eq!(woken.load(SeqCst), DEEP);
        assert_empty(&waits);
    });
}

/// Each condition holds the future of the next wait.
#[test]
fn conditions_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let link = |number, holds: OnDrop| {
            waits.wait(&[number], NEVER, move || {
                let _ = &holds;
                None::<OnDrop>
            })
        };
        each_holds_the_next(link, || ());
        assert_empty(&waits);
    });
}

/// Each key holds the future of the next wait.
#[test]
fn keys_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let values = Watermarks::on(&ManualTimer::new(), "deep").unwrap();
        let link = |number, holds: OnDrop| {
            values.wait_for_each(&[(Hooked::holding(number, holds), 1)], NEVER)
        };
        each_holds_the_next(link, || ());
        assert!(values.waits().is_empty());
    });
}

/// Makes a chain of keys, each of which, when dropped, does this with the number of the next; parks
/// a wait for each key, and ends the first.
fn keys_that_end<F>(park: impl Fn(Hooked), end: F)
where
    F: Fn(u32) + Clone + Send + 'static,
{
    let drops = Arc::new(AtomicU32::new(0));
    for number in 0..DEEP {
        let (counted, end) = (drops.clone(), end.clone());
        let ends = OnDrop::new(move || {
            counted.fetch_add(1, SeqCst);
            end(number + 1);
        });
        park(Hooked::holding(number, ends));
    }
    end(0);
    assert_eq!(drops.load(SeqCst), DEEP);
}

#[test]
fn keys_that_remove_the_next_value_need_no_stack() {
    on_a_small_stack(|| {
        let values = Watermarks::<Hooked>::on(&ManualTimer::new(), "deep").unwrap();
        let inside = values.clone();
        let park = |key: Hooked| assert_eq!(values.advance(&key, 1), Ok(0));
        keys_that_end(park, move |number| _ = inside.remove(&number));
    });
}

#[test]
fn chain_of_keys_that_cancel_or_take_needs_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Purgatory<Hooked>) = by_hand();
        let park = |key: Hooked| _ = waits.park(never(), &[key], NEVER);
        let inside = waits.clone();
        keys_that_end(park, move |number| {
            _ = inside.cancel_for_key(&number, "over")
        });
        let inside = waits.clone();
        keys_that_end(park, move |number| _ = inside.take_for_key(&number));
        // The key is the last of two.
        let first = Hooked::plain(u32::MAX);
        let park = |key: Hooked| _ = waits.park(never(), &[first.clone(), key], NEVER);
        let inside = waits.clone();
        keys_that_end(park, move |number| {
            _ = inside.cancel_for_key(&number, "over")
        });
        assert_empty(&waits);
    });
}

/// Makes a monitor signal a key that, when dropped, makes it signal the next one.
fn signal_by(monitor: &Monitor<Hooked, bool>, number: u32) {
    let inside = monitor.clone();
    let signals = OnDrop::new(move || {
        if number < DEEP {
            signal_by(&inside, number + 1);
        }
    });
    monitor.update_keys(|_| ((), vec![Hooked::holding(number, signals)]));
}

#[test]
fn chain_of_keys_of_a_monitor_needs_no_stack() {
    on_a_small_stack(|| {
        let monitor = Monitor::on(&ManualTimer::new(), "deep", false).unwrap();
        signal_by(&monitor, 0);
        assert_eq!(monitor.purgatory().stats().events, u64::from(DEEP) + 1);
    });
}

/// Each undelivered value, when dropped, delivers the next one.
#[test]
fn values_that_are_delivered_to_nobody_need_no_stack() {
    fn value(number: u32, scope: &ReplyScope<Hooked>) -> Hooked {
        let scope = scope.clone();
        Hooked::new(number, move |at| {
            if at == At::Drop && number > 0 {
                assert_eq!(scope.deliver_up_to(7, value(number - 1, &scope)), 0);
            }
        })
    }

    on_a_small_stack(|| {
        let scope = ReplyScope::on(&ManualTimer::new(), "deep").unwrap();
        assert_eq!(scope.deliver_up_to(7, value(DEEP, &scope)), 0);
    });
}

#[test]
fn keys_that_hold_the_next_permit_need_no_stack() {
    on_a_small_stack(|| {
        let timer = ManualTimer::new();
        let permits = Permits::<Hooked>::keyed_builder("deep").timer(&timer);
        let permits = permits.build().unwrap();
        let link = |number, holds: OnDrop| {
            let key = Hooked::holding(number, holds);
            permits.try_acquire_for(&key, 1).unwrap()
        };
        each_holds_the_next(link, || ());
    });
}

/// Each wait is cancelled for a reason that holds the future of the next wait.
#[test]
fn reasons_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let values = deep_values();
        let waits = values.waits();
        let cancelled = |id: Option<OperationId>, holds| {
            let reason = Reason::with("over", holds);
            assert_eq!(waits.cancel(id.unwrap(), reason), ReachResult::Reached(()));
        };
        let link = |number, holds| {
            let wait = values.wait_for(&number, 1, NEVER);
            cancelled(wait.id(), holds);
            wait
        };
        each_holds_the_next(link, || ());
        let link = |number, holds| {
            let wait = values.wait_for_each(&[(number, 1)], NEVER);
            cancelled(wait.id(), holds);
            wait
        };
        each_holds_the_next(link, || ());
    });
}

/// Each key is closed for a reason that, when dropped, removes the next key.
#[test]
fn reasons_that_remove_the_next_key_need_no_stack() {
    on_a_small_stack(|| {
        let values = deep_values();
        let removed = Arc::new(AtomicU32::new(0));
        for key in 0..DEEP {
            let (inside, counted) = (values.clone(), removed.clone());
            let removes = OnDrop::new(move || {
                counted.fetch_add(1, SeqCst);
                inside.remove(&(key + 1));
            });
            values.close(&key, Reason::with("over", removes));
        }
        values.remove(&0);
        assert_eq!(removed.load(SeqCst), DEEP);
    });
}

/// Each value holds the future of the next wait, whose value has come by then.
#[test]
fn values_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let link = |number, holds| {
            let mut holds = Some(holds);
            let mut checks = 0;
            let wait = waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 { holds.take() } else { None }
            });
            assert_eq!(waits.check_and_complete(&number), 1);
            wait
        };
        each_holds_the_next(link, || ());
        assert_empty(&waits);
    });
}

/// An executor that runs jobs in the call that hands them over.
#[derive(Debug)]
struct InPlace;

impl Executor for InPlace {
    fn execute(&self, job: Job) {
        job.run();
    }
}

/// Watches are released in jobs, each of which the job before hands over.
#[test]
fn jobs_that_an_executor_runs_in_place_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand_with(|builder| builder.executor(InPlace));
        let keys: Vec<u32> = (0..20_000).collect();
        for _ in 0..16 {
            waits.park(never(), &keys, NEVER);
        }
        assert_eq!(waits.shutdown(Duration::ZERO), 0);
        assert_empty(&waits);
    });
}
