//! Request and reply in every order in which a network may have things happen, under a hand-turned
//! clock; and on real threads, where each value is counted: taken, handed back, or given to the
//! hook.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use purgatory::{
    CancelReason, Expected, Purgatory, RefusedReason, Replies, Timeout, WaitError, WaitFuture, when,
};
use timer_core::ManualTimer;

use crate::support::{Later, SECOND, Woken, by_hand, poll};

type Waits = Purgatory<u64, Expected<&'static str>>;
type Texts = Replies<u64, &'static str>;
type Answer = Result<&'static str, WaitError>;

/// Replies under a hand-turned clock, and their purgatory to look into.
fn replies() -> (ManualTimer, Waits, Texts) {
    let (timer, waits) = by_hand();
    (timer, waits.clone(), Replies::from(waits))
}

fn told(value: &'static str) -> Poll<Answer> {
    Poll::Ready(Ok(value))
}

fn failed(reason: &'static str) -> Answer {
    Err(WaitError::Cancelled(CancelReason::Requested(reason.into())))
}

/// Nothing waits, and every key that was used is free.
#[track_caller]
fn nothing_is_left(waits: &Waits, replies: &Texts) {
    assert_eq!(
        (waits.len(), waits.watched(), waits.keys(), replies.purgatory().len()),
        (0, 0, 0, 0)
    );
    for key in 0..10 {
        assert_eq!(replies.deliver(&key, "late"), Err("late"));
        assert!(replies.expect(key, Duration::ZERO).is_ok());
    }
}

#[test]
fn replies_come_in_any_order_and_wake_their_task() {
    let (_timer, waits, replies) = replies();
    let [mut one, mut two, mut three] = [1, 2, 3].map(|key| replies.expect(key, SECOND).unwrap());
    let woken = Arc::<Woken>::default();
    assert!(woken.poll(&mut one).is_pending() && woken.poll(&mut two).is_pending());
    assert_eq!(replies.deliver(&3, "three"), Ok(())); // nobody has polled it
    assert_eq!((woken.times(), replies.deliver(&2, "two")), (0, Ok(())));
    assert_eq!((woken.times(), replies.deliver(&1, "one")), (1, Ok(())));
    assert_eq!(woken.times(), 2);
    assert_eq!(
        (poll(&mut one), poll(&mut two), poll(&mut three)),
        (told("one"), told("two"), told("three"))
    );
    nothing_is_left(&waits, &replies);
}

#[test]
fn the_first_reply_counts_and_the_second_comes_back() {
    let (_timer, waits, replies) = replies();
    let mut reply = replies.expect(1, SECOND).unwrap();
    assert_eq!(replies.deliver(&1, "first"), Ok(()));
    assert_eq!(replies.deliver(&1, "second"), Err("second"));
    assert_eq!(poll(&mut reply), told("first"));
    assert_eq!(replies.deliver(&1, "third"), Err("third"));
    assert_eq!(replies.deliver(&9, "unasked"), Err("unasked"));
    nothing_is_left(&waits, &replies);
}

#[test]
fn a_reply_that_comes_late_is_handed_back() {
    let (timer, waits, replies) = replies();
    let mut reply = replies.expect(1, SECOND).unwrap();
    timer.advance(SECOND - Duration::from_millis(1));
    assert!(poll(&mut reply).is_pending());
    timer.advance(Duration::from_millis(1));
    assert_eq!(replies.deliver(&1, "late"), Err("late")); // before anybody has looked
    assert_eq!(poll(&mut reply), Poll::Ready(Err(WaitError::Expired)));
    assert_eq!(replies.expect(2, Duration::ZERO).unwrap().wait_blocking(), Err(WaitError::Expired));
    nothing_is_left(&waits, &replies);
}

/// What the timer took off is over, though the executor has not come to say so.
#[test]
fn keys_are_free_at_once_though_the_executor_is_late() {
    let (timer, later) = (ManualTimer::new(), Later::default());
    let builder = Purgatory::builder("late").timer(&timer).executor(later.clone());
    let waits: Waits = builder.callbacks_on_executor().build().unwrap();
    let replies = Replies::from(waits.clone());

    let mut expired = replies.expect(1, SECOND).unwrap();
    timer.advance(SECOND);
    assert!(poll(&mut expired).is_pending()); // its task is the executor's to wake
    assert_eq!(replies.deliver(&1, "late"), Err("late"));

    let mut again = replies.expect(1, SECOND).unwrap();
    drop(replies.expect(2, SECOND).unwrap());
    assert_eq!(replies.deliver(&2, "gone"), Err("gone"));
    let mut second = replies.expect(2, SECOND).unwrap();
    later.run(); // and the old ones' endings leave what is there now alone
    assert_eq!(poll(&mut expired), Poll::Ready(Err(WaitError::Expired)));
    assert_eq!(replies.expect(1, SECOND).unwrap_err().into_inner(), 1);
    assert_eq!((replies.deliver(&1, "again"), replies.deliver(&2, "second")), (Ok(()), Ok(())));
    assert_eq!((poll(&mut again), poll(&mut second)), (told("again"), told("second")));
    later.run();
    nothing_is_left(&waits, &replies);
}

/// And with a last check at its end, which it does not have.
#[test]
fn a_late_reply_comes_back_with_last_checks() {
    let (timer, later) = (ManualTimer::new(), Later::default());
    let builder = Purgatory::builder("checks").timer(&timer).executor(later.clone());
    let replies = Texts::from(builder.check_at_expiry(|_| ()).build().unwrap());
    let mut reply = replies.expect(1, SECOND).unwrap();
    timer.advance(SECOND);
    assert_eq!((replies.deliver(&1, "late"), replies.fail_all("closed")), (Err("late"), 0));
    later.run();
    assert_eq!(poll(&mut reply), Poll::Ready(Err(WaitError::Expired)));
}

#[test]
fn a_client_that_goes_leaves_nothing() {
    let (_timer, waits, replies) = replies();
    drop(replies.expect(1, SECOND).unwrap());
    nothing_is_left(&waits, &replies);
    let mut polled = replies.expect(1, SECOND).unwrap();
    assert!(poll(&mut polled).is_pending());
    drop(polled);
    nothing_is_left(&waits, &replies);
    let answered = replies.expect(1, SECOND).unwrap();
    assert_eq!(replies.deliver(&1, "one"), Ok(()));
    drop(answered);
    nothing_is_left(&waits, &replies);
}

#[test]
fn a_reply_that_is_over_leaves_no_key_behind() {
    let (timer, waits) = by_hand();
    let replies = Replies::from(waits);
    let keys: [Arc<str>; 6] = ["1", "2", "3", "4", "5", "6"].map(Arc::from);
    let expect = |number: usize| replies.expect(keys[number].clone(), SECOND).unwrap();
    let mut over = vec![expect(0)];
    drop(expect(1));
    assert_eq!(replies.deliver(&keys[0], ()), Ok(()));
    over.push(expect(2));
    replies.fail_all("closed");
    over.push(expect(3));
    timer.advance(SECOND);
    over.push(expect(4));
    replies.purgatory().shutdown(Duration::from_secs(60));
    drop(replies.expect(keys[5].clone(), SECOND).unwrap_err());
    assert_eq!(keys.each_ref().map(Arc::strong_count), [1; 6]);
    drop(over);
}

#[test]
fn fail_all_fails_nothing_that_is_expected_later() {
    let (_timer, waits, replies) = replies();
    let mut old = [1, 2, 3].map(|key| replies.expect(key, SECOND).unwrap());
    assert_eq!(replies.deliver(&3, "in time"), Ok(()));
    assert_eq!(replies.fail_all("connection closed"), 2);
    let stats = waits.stats();
    assert_eq!((stats.completed, stats.cancelled), (1, 2));
    let mut new = replies.expect(1, SECOND).unwrap();
    assert_eq!(replies.deliver(&2, "over the old one"), Err("over the old one"));
    assert_eq!(replies.deliver(&1, "new"), Ok(()));
    assert_eq!(poll(&mut new), told("new"));
    let [one, two, three] = old.each_mut().map(poll);
    let closed = || Poll::Ready(failed("connection closed"));
    assert_eq!((one, two, three), (closed(), closed(), told("in time")));
    assert_eq!(replies.fail_all("again"), 0);
    nothing_is_left(&waits, &replies);
}

/// A task may send its request again as soon as it is woken, while the others are still being
/// failed.
#[test]
fn fail_all_spares_what_a_woken_task_expects() {
    struct Again(Texts, Mutex<Vec<WaitFuture<&'static str>>>);
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            let next = 10 + self.1.lock().unwrap().len() as u64;
            self.1.lock().unwrap().push(self.0.expect(next, SECOND).unwrap());
        }
    }
    let (_timer, waits, replies) = replies();
    let again = Arc::new(Again(replies.clone(), Mutex::default()));
    let waker = Waker::from(again.clone());
    let mut old: Vec<_> = (0..10).map(|key| replies.expect(key, SECOND).unwrap()).collect();
    for reply in &mut old {
        assert!(Pin::new(reply).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!((replies.fail_all("closed"), replies.purgatory().len()), (10, 10));
    for (key, mut reply) in (10..).zip(std::mem::take(&mut *again.1.lock().unwrap())) {
        assert_eq!(replies.deliver(&key, "new"), Ok(()));
        assert_eq!(poll(&mut reply), told("new"));
    }
    drop(old);
    nothing_is_left(&waits, &replies);
}

#[test]
fn callbacks_may_deliver_expect_and_fail() {
    let (_timer, waits, replies) = replies();
    let callbacks = Purgatory::<u32>::new("callbacks").unwrap();
    let (first, dropped) = (replies.expect(1, SECOND).unwrap(), replies.expect(2, SECOND).unwrap());
    let (inside, told_of) = (replies.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = told_of.clone();
    let callback = move |_| {
        let deliver = |key, value| inside.deliver(&key, value);
        assert_eq!((deliver(1, "one"), deliver(1, "again")), (Ok(()), Err("again")));
        drop(dropped);
        assert_eq!(deliver(2, "gone"), Err("gone"));
        let mut one = inside.expect(1, SECOND).unwrap();
        let mut two = inside.expect(2, SECOND).unwrap();
        assert_eq!((deliver(1, "next"), deliver(2, "two")), (Ok(()), Ok(())));
        assert_eq!((poll(&mut one), poll(&mut two)), (told("next"), told("two")));
        let failing = inside.expect(1, SECOND).unwrap();
        assert_eq!(inside.fail_all("closed"), 1);
        let blocks = inside.expect(1, SECOND).unwrap();
        let ends = (failing.wait_blocking(), blocks.wait_blocking());
        seen.lock().unwrap().push(ends);
    };
    callbacks.try_complete_else_watch(when(|| true, callback), &[0], SECOND).unwrap();
    assert_eq!(*told_of.lock().unwrap(), [(failed("closed"), Err(WaitError::InsideCallback))]);
    assert_eq!(callbacks.stats().panics, 0);
    assert_eq!(first.wait_blocking(), Ok("one"));
    nothing_is_left(&waits, &replies);
}

#[test]
fn a_shutdown_ends_replies_and_refuses_later_ones() {
    let (_timer, waits, replies) = replies();
    let waiting = replies.expect(1, Timeout::Never).unwrap();
    replies.purgatory().shutdown(Duration::from_secs(60));
    assert_eq!(waiting.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Shutdown)));
    for _ in 0..2 {
        let refused = replies.expect(1, SECOND).unwrap_err(); // its key is free again at once
        assert_eq!(replies.deliver(&1, "one"), Err("one"));
        assert_eq!((refused.reason, refused.into_inner()), (RefusedReason::Closed, 1));
    }
    assert_eq!(waits.len(), 0);

    let replies = Replies::<u64, ()>::new("dropped").unwrap();
    let waiting = replies.clone().expect(1, Timeout::Never).unwrap();
    drop(replies);
    assert_eq!(waiting.wait_blocking(), Err(WaitError::Cancelled(CancelReason::Dropped)));
}

#[test]
fn replies_are_bounded_and_places_come_back() {
    let timer = ManualTimer::new();
    let waits = Purgatory::builder("bound").timer(&timer).max_parked(1).build().unwrap();
    let replies = Replies::from(waits);
    let first = replies.expect(1, SECOND).unwrap();
    let refused = replies.expect(2, SECOND).unwrap_err();
    assert_eq!((refused.reason, refused.into_inner()), (RefusedReason::Full { limit: 1 }, 2));
    assert_eq!((replies.deliver(&1, "one"), first.wait_blocking()), (Ok(()), Ok("one")));
    let mut second = replies.expect(2, SECOND).unwrap();
    assert_eq!((replies.deliver(&2, "two"), poll(&mut second)), (Ok(()), told("two")));
}

/// Whoever of them asks, the other delivers and fails: they are one map.
#[test]
fn two_over_one_purgatory_are_the_same() {
    let (_timer, waits, one) = replies();
    let other = Texts::from(waits.clone());
    assert_eq!(one.fail_all("before"), 0);
    let mut asked = [(&one, 1), (&other, 2), (&one, 3)].map(|(replies, key)| {
        let reply = replies.expect(key, SECOND).unwrap();
        assert!(other.expect(key, SECOND).is_err());
        reply
    });
    assert_eq!((other.deliver(&1, "one"), other.fail_all("closed")), (Ok(()), 2));
    let closed = || Poll::Ready(failed("closed"));
    assert_eq!(asked.each_mut().map(poll), [told("one"), closed(), closed()]);
    nothing_is_left(&waits, &one);
}

/// A key that counts its clones.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Counted(u8);

static CLONES: AtomicUsize = AtomicUsize::new(0);

impl Clone for Counted {
    fn clone(&self) -> Self {
        CLONES.fetch_add(1, SeqCst);
        Counted(self.0)
    }
}

#[test]
fn a_key_is_not_copied() {
    let replies: Replies<Counted, u8> = Replies::new("counted").unwrap();
    let expect = |key| replies.expect(Counted(key), SECOND * 60).unwrap();
    let (one, two, three) = (expect(1), expect(2), expect(3));
    assert_eq!(replies.expect(Counted(1), SECOND).unwrap_err().into_inner(), Counted(1));
    assert_eq!(replies.deliver(&Counted(1), 1), Ok(()));
    assert_eq!(one.wait_blocking(), Ok(1));
    drop(two);
    assert_eq!(replies.fail_all("closed"), 1);
    assert!(three.wait_blocking().is_err());
    assert_eq!(CLONES.load(SeqCst), 0);
}

/// The answer that deliverer and future share.
#[test]
fn a_reply_takes_one_allocation() {
    let (_timer, _waits, replies) = replies();
    let ask = || {
        let reply = replies.expect(1, SECOND).unwrap();
        replies.deliver(&1, "one").unwrap();
        let mut reply = reply;
        assert_eq!(poll(&mut reply), told("one"));
    };
    ask(); // what the room keeps
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| ask()));
    assert_eq!((counted.count_total, counted.count_current), (100, 0));
}

#[test]
fn a_panic_while_a_value_is_made_ends_its_reply() {
    let (_timer, waits, replies) = replies();
    let mut reply = replies.expect(1, SECOND).unwrap();
    assert!(!replies.deliver_with(&1, || panic!("no value")));
    assert_eq!(poll(&mut reply), Poll::Ready(Err(WaitError::Cancelled(CancelReason::Panicked))));
    assert_eq!((waits.stats().panics, waits.len()), (1, 0));
    assert!(replies.expect(1, SECOND).is_ok());
}
