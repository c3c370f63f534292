//! Requests and replies in every order that a network may produce, on a manual timer.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};

use purgatory::{
    Builder, CancelReason, Outcome, ReachResult, Replies, WaitError, WaitFuture, Waits,
};
use timer_core::ManualTimer;

use crate::support::{
    Counted, Later, MINUTE, MS, SECOND, Woken, assert_no_waits, over, poll, requested,
};

type Texts = Replies<u64, &'static str>;
type Answer = Result<&'static str, WaitError>;

/// Creates replies on a manual timer, with their waits for inspection.
fn replies() -> (ManualTimer, Waits<u64>, Texts) {
    replies_with(|builder| builder)
}

/// Does as [`replies`] does, with these settings.
fn replies_with(
    build: impl FnOnce(Builder<Texts>) -> Builder<Texts>,
) -> (ManualTimer, Waits<u64>, Texts) {
    let timer = ManualTimer::new();
    let replies = build(Replies::builder("test").timer(&timer))
        .build()
        .unwrap();
    (timer, replies.waits(), replies)
}

fn failed(reason: &'static str) -> Answer {
    let Outcome::Cancelled(reason) = requested(reason) else {
        unreachable!()
    };
    Err(WaitError::Cancelled(reason))
}

/// Nothing waits, and every key that was used is free.
#[track_caller]
fn nothing_is_left(waits: &Waits<u64>, replies: &Texts) {
    assert_no_waits(waits);
    for key in 0..10 {
        assert_eq!(replies.deliver(&key, "late"), Err("late"));
        assert!(replies.expect(key, Duration::ZERO).is_ok());
    }
}

#[test]
fn replies_come_in_any_order_and_wake_their_task() {
    let (_timer, waits, replies) = replies();
    let [mut one, mut two, mut three] = [1, 2, 3].map(|key| replies.expect(key, SECOND).unwrap());
    let woken = Woken::task();
    assert!(woken.poll(&mut one).is_pending() && woken.poll(&mut two).is_pending());
    for (key, text, woken_before) in [(3, "three", 0), (2, "two", 0), (1, "one", 1)] {
        assert_eq!(
            (woken.times(), replies.deliver(&key, text)),
            (woken_before, Ok(()))
        );
    }
    assert_eq!(woken.times(), 2);
    assert_eq!(
        [&mut one, &mut two, &mut three].map(over),
        [Ok("one"), Ok("two"), Ok("three")]
    );
    nothing_is_left(&waits, &replies);
}

/// A reply that comes twice, late or unasked is handed back, and no value is made for it.
#[test]
fn only_the_first_reply_in_time_counts() {
    let (timer, waits, replies) = replies();
    let mut reply = replies.expect(1, SECOND).unwrap();
    let mut made = replies.expect(2, SECOND).unwrap();
    let mut late = replies.expect(3, SECOND).unwrap();
    let not_made = |key| replies.deliver_with(&key, || unreachable!("nothing is expected"));
    assert_eq!(
        (replies.deliver(&9, "unasked"), not_made(9)),
        (Err("unasked"), false)
    );
    assert_eq!(replies.deliver(&1, "first"), Ok(()));
    assert_eq!(replies.deliver(&1, "second"), Err("second"));
    assert_eq!(
        (replies.deliver_with(&2, || "made"), not_made(2)),
        (true, false)
    );
    assert_eq!(
        (over(&mut reply), over(&mut made)),
        (Ok("first"), Ok("made"))
    );
    assert_eq!(replies.deliver(&1, "third"), Err("third"));
    timer.advance(SECOND - MS);
    assert!(poll(&mut late).is_pending());
    timer.advance(MS);
    assert_eq!(replies.deliver(&3, "late"), Err("late")); // before anything has looked
    assert_eq!(over(&mut late), Err(WaitError::Expired));
    assert_eq!(
        over(&mut replies.expect(2, Duration::ZERO).unwrap()),
        Err(WaitError::Expired)
    );
    nothing_is_left(&waits, &replies);
}

/// An expired reply has ended, though the executor has not run its callback yet.
#[test]
fn keys_are_free_at_once_though_the_executor_is_late() {
    let later = Later::default();
    let (timer, waits, replies) = replies_with(|builder| builder.executor(later.clone()));
    let mut expired = replies.expect(1, SECOND).unwrap();
    let woken = Woken::task();
    assert!(woken.poll(&mut expired).is_pending());
    timer.advance(SECOND);
    assert_eq!(woken.times(), 0); // its task is the executor's to wake
    assert_eq!(replies.deliver(&1, "late"), Err("late"));
    let mut again = replies.expect(1, SECOND).unwrap();
    drop(replies.expect(2, SECOND).unwrap());
    assert_eq!(replies.deliver(&2, "gone"), Err("gone"));
    let mut second = replies.expect(2, SECOND).unwrap();
    later.run(); // and the old ones' endings leave what is there now alone
    assert_eq!(woken.times(), 1);
    assert_eq!(over(&mut expired), Err(WaitError::Expired));
    let twice = replies.expect(1, SECOND).unwrap_err();
    assert_eq!(
        (twice.reason.clone(), twice.into_inner()),
        (WaitError::AlreadyExpected, 1)
    );
    assert_eq!(
        (replies.deliver(&1, "again"), replies.deliver(&2, "second")),
        (Ok(()), Ok(()))
    );
    assert_eq!(
        (over(&mut again), over(&mut second)),
        (Ok("again"), Ok("second"))
    );
    later.run();
    nothing_is_left(&waits, &replies);
}

/// No key stays behind.
#[test]
fn a_reply_that_is_over_leaves_nothing() {
    let timer = ManualTimer::new();
    let replies: Replies<Counted, ()> = Replies::builder("test").timer(&timer).build().unwrap();
    let key = Counted::new(0);
    let expect = |number| replies.expect(key.like(number), SECOND).unwrap();
    let mut over = vec![expect(0)];
    let mut polled = expect(1);
    assert!(poll(&mut polled).is_pending());
    drop(polled);
    assert_eq!(replies.deliver(&0, ()), Ok(()));
    drop(replies.expect(key.like(0), SECOND).unwrap()); // its key is free
    over.push(expect(2));
    assert_eq!(replies.fail_all("closed"), 1);
    over.push(expect(3));
    timer.advance(SECOND);
    over.push(expect(4));
    assert_eq!(
        replies
            .expect(key.like(4), SECOND)
            .unwrap_err()
            .into_inner()
            .number,
        4
    );
    replies.waits().shutdown(MINUTE);
    drop(replies.expect(key.like(5), SECOND).unwrap_err());
    assert_eq!((key.alive(), key.clones()), (1, 0)); // each key was moved in
    assert_no_waits(&replies.waits());
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
    assert_eq!(
        (replies.deliver(&2, "old"), replies.deliver(&1, "new")),
        (Err("old"), Ok(()))
    );
    let closed = || failed("connection closed");
    assert_eq!(
        (over(&mut new), old.each_mut().map(over)),
        (Ok("new"), [closed(), closed(), Ok("in time")])
    );
    // A second handle is the same.
    let other = replies.clone();
    let mut both = [(&replies, 1), (&other, 2)].map(|(of, key)| of.expect(key, SECOND).unwrap());
    assert!(other.expect(1, SECOND).is_err());
    assert_eq!(
        (other.deliver(&1, "one"), replies.fail_all("closed")),
        (Ok(()), 1)
    );
    assert_eq!(both.each_mut().map(over), [Ok("one"), failed("closed")]);
    assert_eq!(replies.fail_all("again"), 0);
    nothing_is_left(&waits, &replies);
}

/// Its answer lies where it is expected.
#[test]
fn a_reply_takes_no_allocation() {
    let (_timer, _waits, replies) = replies();
    let ask = || {
        let mut reply = replies.expect(1, SECOND).unwrap();
        assert_eq!(
            (replies.deliver(&1, "one"), over(&mut reply)),
            (Ok(()), Ok("one"))
        );
    };
    ask(); // what the shard keeps
    let counted = allocation_counter::measure(|| {
        for _ in 0..100 {
            ask();
        }
    });
    assert_eq!((counted.count_total, counted.count_current), (0, 0));
}

/// An answer that its future has not taken counts nowhere, holds no place and delays no shutdown.
/// It outlives its purgatory.
#[test]
fn an_untaken_answer_counts_nowhere() {
    let (timer, waits, replies) = replies_with(|builder| builder.max_parked(2));
    let [mut delivered, mut expired] = [1, 2].map(|key| replies.expect(key, SECOND).unwrap());
    assert_eq!(replies.deliver(&1, "one"), Ok(()));
    let [mut made, mut failed_one] = [1, 3].map(|key| {
        let reply = replies.expect(key, MINUTE);
        if key == 1 {
            assert!(replies.deliver_with(&1, || "made"));
        }
        reply.unwrap()
    });
    timer.advance(SECOND);
    assert_eq!(replies.fail_all("closed"), 1);
    let ids = [&delivered, &expired, &made, &failed_one].map(|reply| reply.id().unwrap());
    for id in ids {
        assert_eq!(waits.cancel(id, "none"), ReachResult::Gone);
    }
    assert!(!delivered.reschedule(SECOND) && !expired.reschedule(SECOND));
    assert_eq!((waits.cancel_all("none"), replies.fail_all("none")), (0, 0));
    let snapshot = waits.snapshot(9);
    assert!(snapshot.oldest.is_empty() && snapshot.under_check.is_empty());
    assert_eq!(snapshot.stats.completed, 2);
    nothing_is_left(&waits, &replies);
    assert_eq!(waits.shutdown(Duration::ZERO), 0);
    drop((waits, replies, timer));
    assert_eq!(
        [&mut delivered, &mut expired, &mut made, &mut failed_one].map(over),
        [
            Ok("one"),
            Err(WaitError::Expired),
            Ok("made"),
            failed("closed")
        ]
    );
}

/// The task that polled last is woken, though it was another that polled first.
#[test]
fn a_reply_wakes_the_last_of_two_tasks() {
    let (_timer, _waits, replies) = replies();
    let first = Woken::task();
    let last = Woken::task();
    let mut reply = replies.expect(1, SECOND).unwrap();
    for task in [&first, &last, &first, &last, &last] {
        assert!(task.poll(&mut reply).is_pending());
    }
    assert_eq!(replies.deliver(&1, "one"), Ok(()));
    assert_eq!((first.times(), last.times()), (0, 1));
    assert_eq!(over(&mut reply), Ok("one"));
}

/// A task that polls while the value is made is woken, and a future that goes then takes the value
/// along.
#[test]
fn a_value_may_be_made_while_its_future_polls_or_goes() {
    let (_timer, waits, replies) = replies();
    let woken = Woken::task();
    let mut reply = replies.expect(1, SECOND).unwrap();
    assert!(replies.deliver_with(&1, || {
        assert!(woken.poll(&mut reply).is_pending());
        assert_eq!(waits.len(), 1); // it waits on
        "made"
    }));
    assert_eq!((woken.times(), over(&mut reply)), (1, Ok("made")));
    let reply = replies.expect(1, SECOND).unwrap();
    let mut reply = Some(reply);
    assert!(!replies.deliver_with(&1, || {
        reply = None;
        "nobody's"
    }));
    nothing_is_left(&waits, &replies);
}

/// The request waits on while its value is made, and the first of two ends is its end.
#[test]
fn a_made_value_goes_to_no_other_request() {
    let (timer, waits, replies) = replies();
    // Its end, and the result of the call.
    let mut failed_first = replies.expect(1, SECOND).unwrap();
    let mut next = None;
    assert!(!replies.deliver_with(&1, || {
        assert_eq!(replies.fail_all("closed"), 1);
        next = Some(replies.expect(1, MINUTE).unwrap());
        "made"
    }));
    assert_eq!(over(&mut failed_first), failed("closed"));
    let mut next = next.unwrap();
    assert!(poll(&mut next).is_pending());

    assert!(!replies.deliver_with(&1, || {
        assert_eq!(replies.deliver(&1, "faster"), Ok(()));
        "made"
    }));
    assert_eq!(over(&mut next), Ok("faster"));

    let mut expired = replies.expect(1, SECOND).unwrap();
    assert!(!replies.deliver_with(&1, || {
        timer.advance(SECOND);
        "made"
    }));
    assert_eq!(over(&mut expired), Err(WaitError::Expired));
    nothing_is_left(&waits, &replies);
}

#[test]
fn a_panic_while_a_value_is_made_ends_its_reply() {
    let (_timer, waits, replies) = replies();
    let mut reply = replies.expect(1, SECOND).unwrap();
    assert!(!replies.deliver_with(&1, || panic!("no value")));
    assert_eq!(
        over(&mut reply),
        Err(WaitError::Cancelled(CancelReason::Panicked))
    );
    assert_eq!(waits.stats().panics, 1);
    nothing_is_left(&waits, &replies);
}

/// A task that does this as it is woken.
struct Acts(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Acts {
    fn wake(self: Arc<Self>) {
        (self.0.lock().unwrap().take().unwrap())();
    }
}

/// Polls a future with a task that acts as it is woken.
fn poll_by(reply: &mut WaitFuture<&'static str>, act: impl FnOnce() + Send + 'static) {
    let acts = Acts(Mutex::new(Some(Box::new(act))));
    let waker = Waker::from(Arc::new(acts));
    let polled = Pin::new(reply).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

/// A delivery by a task that is woken: the next reply is there at once, and its task is woken as the
/// outermost call gets to it, which is before that returns.
#[test]
fn a_nested_delivery_leaves_the_wake_to_the_outermost_call() {
    let (_timer, waits, replies) = replies();
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |what: &'static str| {
        let order = order.clone();
        move || order.lock().unwrap().push(what)
    };
    let [mut first, mut second, mut third] =
        [1, 2, 3].map(|key| replies.expect(key, SECOND).unwrap());
    poll_by(&mut third, note("the third is woken"));
    poll_by(&mut second, note("the second is woken"));
    let inside = replies.clone();
    let woken = note("the first is woken");
    let delivered = note("the others are delivered");
    poll_by(&mut first, move || {
        woken();
        assert_eq!(inside.deliver(&2, "two"), Ok(()));
        assert!(inside.deliver_with(&3, || "three"));
        assert_eq!(inside.deliver(&2, "again"), Err("again")); // the key is free
        delivered();
    });
    assert_eq!(replies.deliver(&1, "one"), Ok(()));
    note("the first is delivered")();
    let expected = [
        "the first is woken",
        "the others are delivered",
        "the second is woken",
        "the third is woken",
        "the first is delivered",
    ];
    assert_eq!(*order.lock().unwrap(), expected);
    let all = [first, second, third].map(|mut reply| over(&mut reply));
    assert_eq!(all, [Ok("one"), Ok("two"), Ok("three")]);
    assert_eq!(waits.stats().panics, 0, "of a task");
    nothing_is_left(&waits, &replies);
}

/// The first task that is woken finds the other's reply ready, and both places free.
#[test]
fn a_cancelled_replys_place_is_free_once_it_is_ready() {
    let (_timer, waits, replies) = replies_with(|builder| builder.max_parked(2));
    let mut first = replies.expect(1, SECOND).unwrap();
    let mut second = replies.expect(2, SECOND).unwrap();
    let again = replies.clone();
    poll_by(&mut first, move || {
        assert!(poll(&mut second).is_ready());
        let _both = [3, 4].map(|key| again.expect(key, SECOND).unwrap());
    });
    assert_eq!(replies.fail_all("closed"), 2);
    assert_eq!(waits.stats().panics, 0, "of the task");
}
