//! Chains of endings, each of which brings the next about. None of them needs stack: what one end runs is
//! left to the outermost call.
#![cfg(not(loom))]

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
};

use crate::support::{MINUTE, NEVER, Park, assert_empty, by_hand};
use purgatory::{
    BoxedOperation, Lease, OperationId, Permits, Purgatory, Replies, ReplyScopes, ReplyStream,
    WaitFuture, Watermarks, when,
};
use timer_core::ManualTimer;

/// The links of a chain.
const DEEP: usize = 100_000;

type Waits = Purgatory<usize>;

/// Runs a chain on a stack that has no room for a hundredth of it.
fn on_a_small_stack(chain: impl FnOnce() + Send + 'static) {
    let small = thread::Builder::new().stack_size(256 * 1024);
    small.spawn(chain).unwrap().join().unwrap();
}

/// The ids of a chain's operations, of which each ends the next.
type Ids = Arc<Mutex<Vec<OperationId>>>;

/// Completes the operation of this number, if there is one.
fn complete(waits: &Waits, ids: &Ids, number: usize) {
    let id = ids.lock().unwrap().get(number).copied();
    if let Some(id) = id {
        waits.complete(id);
    }
}

#[test]
fn conditions_that_complete_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let ids = Ids::default();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let (inside, all) = (waits.clone(), ids.clone());
            let mut checks = 0;
            let wait = waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 {
                    complete(&inside, &all, number + 1);
                }
                checks > 1
            });
            ids.lock().unwrap().push(wait.id().unwrap());
            futures.push(wait);
        }
        complete(&waits, &ids, 0);
        assert_empty(&waits);
        let all = futures.into_iter();
        assert!(all.map(WaitFuture::wait_blocking).all(|end| end == Ok(())));
    });
}

#[test]
fn conditions_that_signal_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let inside = waits.clone();
            let mut checks = 0;
            futures.push(waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 {
                    inside.check_and_complete(&(number + 1));
                }
                checks > 1
            }));
        }
        waits.check_and_complete(&0);
        assert_empty(&waits);
    });
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

/// Acts as it is woken.
struct Acts<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Acts<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll_by<T>(future: &mut WaitFuture<T>, act: impl Fn() + Send + Sync + 'static) {
    let waker = Waker::from(Arc::new(Acts(act)));
    let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

#[test]
fn wakers_that_complete_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let ids = Ids::default();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = waits.next_event(&[number], NEVER);
            ids.lock().unwrap().push(wait.id().unwrap());
            let (inside, all) = (waits.clone(), ids.clone());
            poll_by(&mut wait, move || complete(&inside, &all, number + 1));
            futures.push(wait);
        }
        complete(&waits, &ids, 0);
        assert_empty(&waits);
    });
}

/// Counts the results of futures that have all ended well.
fn count_ended<T>(futures: Vec<WaitFuture<T>>) -> usize {
    let results = futures.into_iter().map(WaitFuture::try_take);
    results.filter(|result| matches!(result, Ok(Ok(_)))).count()
}

fn deep_replies<V: Send + 'static>() -> Replies<usize, V> {
    let builder = Replies::builder("deep").timer(&ManualTimer::new());
    builder.build().unwrap()
}

#[test]
fn wakers_that_deliver_the_next_reply_need_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut reply = replies.expect(number, NEVER).unwrap();
            let inside = replies.clone();
            poll_by(&mut reply, move || _ = inside.deliver(&(number + 1), ()));
            futures.push(reply);
        }
        replies.deliver(&0, ()).unwrap();
        assert_eq!(count_ended(futures), DEEP);
    });
}

#[test]
fn wakers_that_deliver_what_they_make_need_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut reply = replies.expect(number, NEVER).unwrap();
            let inside = replies.clone();
            poll_by(&mut reply, move || {
                inside.deliver_with(&(number + 1), || ());
            });
            futures.push(reply);
        }
        assert!(replies.deliver_with(&0, || ()));
        assert_eq!(count_ended(futures), DEEP);
    });
}

fn poll_stream(stream: &mut ReplyStream<()>, waker: &Waker) -> Poll<bool> {
    let polled = pin!(stream.next_reply()).poll(&mut Context::from_waker(waker));
    polled.map(|reply| reply == Some(Ok(())))
}

/// The first of two replies, which leaves the request where it is.
#[test]
fn wakers_that_deliver_to_the_next_stream_need_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let mut streams = Vec::new();
        for number in 0..DEEP {
            let mut stream = replies.expect_many(number, 2, NEVER).unwrap();
            let inside = replies.clone();
            let act = move || _ = inside.deliver(&(number + 1), ());
            let waker = Waker::from(Arc::new(Acts(act)));
            assert!(poll_stream(&mut stream, &waker).is_pending());
            streams.push(stream);
        }
        replies.deliver(&0, ()).unwrap();
        for mut stream in streams {
            assert_eq!(poll_stream(&mut stream, Waker::noop()), Poll::Ready(true));
        }
    });
}

#[test]
fn wakers_that_deliver_the_next_reply_of_a_scope_need_no_stack() {
    on_a_small_stack(|| {
        let builder = ReplyScopes::<()>::builder("deep").timer(&ManualTimer::new());
        let scope = Arc::new(builder.build().unwrap().scope());
        let mut futures = Vec::new();
        for _ in 0..DEEP {
            let (number, mut reply) = scope.expect(NEVER).unwrap();
            let inside = scope.clone();
            poll_by(&mut reply, move || _ = inside.deliver(number + 1, ()));
            futures.push(reply);
        }
        scope.deliver(1, ()).unwrap();
        assert_eq!(count_ended(futures), DEEP);
    });
}

/// Acts as it is dropped.
struct ActsLast(Option<Box<dyn FnOnce() + Send + Sync>>);

impl ActsLast {
    fn new(act: impl FnOnce() + Send + Sync + 'static) -> Self {
        ActsLast(Some(Box::new(act)))
    }
}

impl Drop for ActsLast {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

/// A key that is found by its number, and acts as it is dropped. A clone does not.
struct Key {
    number: usize,
    _last: ActsLast,
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Key {
            number: self.number,
            _last: ActsLast(None),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Borrow<usize> for Key {
    fn borrow(&self) -> &usize {
        &self.number
    }
}

#[test]
fn keys_that_deliver_the_next_reply_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Replies::<Key, ()>::builder("deep").timer(&ManualTimer::new());
        let replies = builder.build().unwrap();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let inside = replies.clone();
            let _last = ActsLast::new(move || _ = inside.deliver(&(number + 1), ()));
            futures.push(replies.expect(Key { number, _last }, NEVER).unwrap());
        }
        replies.deliver(&0, ()).unwrap();
        assert_eq!(count_ended(futures), DEEP);
    });
}

/// Makes a value that delivers one like it to the next as it is dropped.
fn chained(replies: &Replies<usize, ActsLast>, number: usize) -> ActsLast {
    let replies = replies.clone();
    let next = number + 1;
    ActsLast::new(move || {
        if next < DEEP {
            let _ = replies.deliver(&next, chained(&replies, next));
        }
    })
}

/// Each task drops its future as it is woken, and so the value that it has not taken.
#[test]
fn untaken_values_that_deliver_the_next_reply_need_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let woken = Arc::new(AtomicUsize::new(0));
        for number in 0..DEEP {
            let slot = Arc::new(Mutex::new(None));
            let (counts, inside) = (woken.clone(), slot.clone());
            let mut reply = replies.expect(number, NEVER).unwrap();
            poll_by(&mut reply, move || {
                counts.fetch_add(1, SeqCst);
                let own = inside.lock().unwrap().take();
                drop(own);
            });
            *slot.lock().unwrap() = Some(reply);
        }
        assert!(replies.deliver(&0, chained(&replies, 0)).is_ok());
        assert_eq!(woken.load(SeqCst), DEEP);
    });
}

/// Each reply holds the next one's future, which has its reply by then.
#[test]
fn untaken_replies_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let replies = deep_replies();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut next = None::<Box<dyn Send>>;
        for number in 0..DEEP {
            let drops = drops.clone();
            let reply = replies.expect(number, NEVER).unwrap();
            assert!(replies.deliver(&number, Holds { drops, next }).is_ok());
            next = Some(Box::new(reply));
        }
        drop(next);
        assert_eq!(drops.load(SeqCst), DEEP);
    });
}

/// Each reply holds the next stream, which keeps one like it. The requests wait, or have ended.
fn kept_replies_that_hold_the_next_stream(end: impl Fn(&Replies<usize, Holds>)) {
    let replies = deep_replies();
    let drops = Arc::new(AtomicUsize::new(0));
    let mut next = None::<Box<dyn Send>>;
    for number in 0..DEEP {
        let drops = drops.clone();
        let stream = replies.expect_many(number, 2, NEVER).unwrap();
        assert!(replies.deliver(&number, Holds { drops, next }).is_ok());
        next = Some(Box::new(stream));
    }
    end(&replies);
    drop(next);
    assert_eq!(drops.load(SeqCst), DEEP);
    assert_eq!(replies.waits().len(), 0);
}

#[test]
fn kept_replies_that_hold_the_next_stream_need_no_stack() {
    on_a_small_stack(|| kept_replies_that_hold_the_next_stream(|_| {}));
}

#[test]
fn kept_replies_that_hold_the_next_ended_stream_need_no_stack() {
    on_a_small_stack(|| {
        kept_replies_that_hold_the_next_stream(|replies| {
            assert_eq!(replies.fail_all("over"), DEEP);
        });
    });
}

/// Each task takes its guard as it is woken, and drops it: the next one in line has the permit.
fn guards_that_go_to_the_next<G: Send + 'static>(wait: impl Fn() -> WaitFuture<G>) {
    let first = wait().try_take().ok().unwrap().unwrap();
    let woken = Arc::new(AtomicUsize::new(0));
    for _ in 0..DEEP {
        let slot = Arc::new(Mutex::new(None::<WaitFuture<G>>));
        let (counts, inside) = (woken.clone(), slot.clone());
        let mut next = wait();
        poll_by(&mut next, move || {
            counts.fetch_add(1, SeqCst);
            let own = inside.lock().unwrap().take();
            drop(own.unwrap().try_take().ok().unwrap().unwrap());
        });
        *slot.lock().unwrap() = Some(next);
    }
    drop(first);
    assert_eq!(woken.load(SeqCst), DEEP);
}

#[test]
fn wakers_that_return_permits_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(1).build().unwrap();
        guards_that_go_to_the_next(|| permits.acquire(1, NEVER));
        assert_eq!(permits.taken(), 0);
    });
}

#[test]
fn wakers_that_return_leases_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(1).build().unwrap();
        guards_that_go_to_the_next(|| permits.lease(1, MINUTE, NEVER));
        assert_eq!(permits.taken(), 0);
    });
}

/// A task that waits for the loss of a lease drops the next lease, and so on.
#[test]
fn wakers_of_lost_leases_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Permits::builder("deep").timer(&ManualTimer::new());
        let permits = builder.limit(DEEP as u64).build().unwrap();
        let mut next = None::<Lease>;
        let mut losses = Vec::new();
        for _ in 0..DEEP {
            let lease = permits.lease(1, MINUTE, NEVER).try_take().ok().unwrap();
            let lease = lease.unwrap();
            let mut lost = Box::pin(lease.lost());
            let slot = Mutex::new(next.replace(lease));
            let act = move || drop(slot.lock().unwrap().take());
            let waker = Waker::from(Arc::new(Acts(act)));
            let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            losses.push(lost);
        }
        drop(next);
        assert_eq!(permits.taken(), 0);
    });
}

#[test]
fn wakers_that_advance_the_next_value_need_no_stack() {
    on_a_small_stack(|| {
        let builder = Watermarks::<usize>::builder("deep").timer(&ManualTimer::new());
        let values = builder.build().unwrap();
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = values.wait_for(&number, 1, NEVER);
            let inside = values.clone();
            poll_by(&mut wait, move || _ = inside.advance(&(number + 1), 1));
            futures.push(wait);
        }
        values.advance(&0, 1).unwrap();
        assert_eq!(count_ended(futures), DEEP);
    });
}

/// As a task that is woken drops the next one's future, and so on.
#[test]
fn wakers_that_drop_the_next_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let woken = Arc::new(AtomicUsize::new(0));
        let mut next = None::<BoxedOperation>;
        let mut futures = Vec::new();
        for number in 0..DEEP {
            let mut wait = waits.next_event(&[number], NEVER);
            let (counts, slot) = (woken.clone(), Mutex::new(next.take()));
            poll_by(&mut wait, move || {
                counts.fetch_add(1, SeqCst);
                drop(slot.lock().unwrap().take()); // unanswered: its task is woken, too
            });
            next = waits.take(wait.id().unwrap()).reached();
            futures.push(wait);
        }
        drop(next);
        assert_eq!(woken.load(SeqCst), DEEP);
        assert_empty(&waits);
    });
}

/// Counts as it is dropped; what it holds follows.
struct Holds {
    drops: Arc<AtomicUsize>,
    #[allow(dead_code, reason = "it is dropped")]
    next: Option<Box<dyn Send>>,
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

/// Each condition holds the next wait's future.
#[test]
fn conditions_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut next = None::<Box<dyn Send>>;
        for number in 0..DEEP {
            let drops = drops.clone();
            let holds = Holds { drops, next };
            let wait = waits.wait(&[number], NEVER, move || {
                let _ = &holds;
                None::<Holds>
            });
            next = Some(Box::new(wait));
        }
        drop(next);
        assert_eq!(drops.load(SeqCst), DEEP);
        assert_empty(&waits);
    });
}

/// Each value holds the next wait's future, which has its value by then.
#[test]
fn values_that_hold_the_next_future_need_no_stack() {
    on_a_small_stack(|| {
        let (_timer, waits): (_, Waits) = by_hand();
        let drops = Arc::new(AtomicUsize::new(0));
        let mut next = None::<Box<dyn Send>>;
        for number in 0..DEEP {
            let drops = drops.clone();
            let mut holds = Some(Holds { drops, next });
            let mut checks = 0;
            let wait = waits.wait(&[number], NEVER, move || {
                checks += 1;
                if checks > 1 { holds.take() } else { None }
            });
            next = Some(Box::new(wait));
            assert_eq!(waits.check_and_complete(&number), 1);
        }
        drop(next);
        assert_eq!(drops.load(SeqCst), DEEP);
    });
}
