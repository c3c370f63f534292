//! The requests of several connections of one client, on a manual timer.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};

use purgatory::{
    Builder, CancelReason, Outcome, ReachResult, Refused, ReplyScope, WaitError, WaitFuture, Waits,
};
use timer_core::ManualTimer;

use crate::support::{MS, SECOND, Woken, assert_no_waits, over, poll, requested};

type Scopes = ReplyScope<&'static str>;
type Scope = ReplyScope<&'static str>;
type Reply = WaitFuture<&'static str>;
type Answer = Result<&'static str, WaitError>;

/// Creates scopes of one client on a manual timer, with their waits for inspection.
fn scopes<const N: usize>() -> (ManualTimer, Waits<(u64, u64)>, [Scope; N]) {
    let (timer, client) = client(|builder| builder);
    let scopes = std::array::from_fn(|_| client.another());
    (timer, client.waits(), scopes)
}

/// Creates a client on a manual timer, with these settings.
fn client(build: impl FnOnce(Builder<Scopes>) -> Builder<Scopes>) -> (ManualTimer, Scopes) {
    let timer = ManualTimer::new();
    let builder = ReplyScope::builder("test").timer(&timer);
    let client = build(builder).build().unwrap();
    (timer, client)
}

fn closed(reason: &'static str) -> Answer {
    let reason = CancelReason::Closed(reason.into());
    Err(WaitError::Cancelled(reason))
}

fn cancelled(reason: &'static str) -> Answer {
    let Outcome::Cancelled(reason) = requested(reason) else {
        unreachable!()
    };
    Err(WaitError::Cancelled(reason))
}

/// Delivers a reply that comes back; returns whether it is late.
#[track_caller]
fn comes_back(scope: &Scope, number: u64) -> bool {
    let back: Refused<_> = scope.deliver(number, "back").unwrap_err();
    let is_late = back.reason == WaitError::Late;
    assert!(is_late || back.reason == WaitError::NotExpected);
    assert_eq!(back.into_inner(), "back");
    is_late
}

#[track_caller]
fn expect(scope: &Scope) -> (u64, Reply) {
    scope.expect(SECOND).unwrap()
}

/// The orders of a network: before the wait, out of turn, twice, never, and after the client.
#[test]
fn scope_tells_late_replies_from_unasked_ones() {
    let (timer, waits, [scope]) = scopes();
    assert!(!comes_back(&scope, 1)); // before anything was asked
    let [early, second, never, gone] = [(); 4].map(|()| expect(&scope));
    assert_eq!([early.0, second.0, never.0, gone.0], [1, 2, 3, 4]);
    assert!(!comes_back(&scope, 0)); // the number of none
    assert_eq!(waits.len(), 4);

    // Out of turn, and before the task waits.
    scope.deliver(2, "second").unwrap();
    scope.deliver(1, "early").unwrap();
    assert_eq!(waits.len(), 2);
    let [mut early, mut second, mut never] = [early.1, second.1, never.1];
    assert_eq!(
        (over(&mut early), over(&mut second)),
        (Ok("early"), Ok("second"))
    );
    assert!(comes_back(&scope, 1)); // twice

    // The client goes, and the last one waits in vain.
    drop(gone);
    assert!(comes_back(&scope, 4));
    timer.advance(SECOND - MS);
    assert!(poll(&mut never).is_pending());
    timer.advance(MS);
    assert!(comes_back(&scope, 3));
    assert_eq!(over(&mut never), Err(WaitError::Expired));

    // Numbers that were not handed out. 0 is none.
    for number in [0, 5, u64::MAX] {
        assert!(!comes_back(&scope, number), "{number}");
    }
    assert_no_waits(&waits);
    let texts = [4, 5].map(|number| scope.deliver(number, "back").unwrap_err().to_string());
    assert_eq!(texts[0], "a late reply: its request is over");
    assert_eq!(texts[1], "no reply is expected under this number");
}

#[test]
fn scopes_share_no_numbers_and_fail_apart() {
    let (_timer, waits, [one, other]) = scopes();
    let [mut first, mut second] = [(); 2].map(|()| expect(&one).1);
    let mut same_number = expect(&other).1;
    assert_eq!(one.deliver(1, "of the first").map_err(|_| ()), Ok(()));
    assert!(!comes_back(&other, 2) && !comes_back(&other, 0));
    assert_eq!((waits.keys(), waits.stats().watched), (2, 2));

    assert_eq!(one.fail_all("connection closed"), 1);
    assert_eq!(waits.stats().checks, 0, "no reply has a check");
    assert!(poll(&mut same_number).is_pending());
    assert!(comes_back(&one, 2));
    assert_eq!(over(&mut first), Ok("of the first"));
    assert_eq!(over(&mut second), cancelled("connection closed"));

    // The connection may go on: numbers rise further.
    let (number, mut third) = expect(&one);
    assert_eq!(
        (number, one.fail_all("again"), one.fail_all("again")),
        (3, 1, 0)
    );
    assert_eq!(over(&mut third), cancelled("again"));
    other.deliver(1, "of the other").unwrap();
    assert_eq!(over(&mut same_number), Ok("of the other"));
    assert_no_waits(&waits);
}

/// Expects another reply when it is woken.
struct AsksAgain(Scope, Mutex<Vec<Reply>>);

impl Wake for AsksAgain {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(expect(&self.0).1);
    }
}

#[test]
fn fail_all_of_a_scope_spares_later_requests() {
    let (_timer, waits, [scope]) = scopes();
    let mut old: Vec<Reply> = (0..300).map(|_| expect(&scope).1).collect();
    let asks = Arc::new(AsksAgain(scope.clone(), Mutex::default()));
    let waker = Waker::from(asks.clone());
    for reply in &mut old {
        let polled = std::pin::Pin::new(reply).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    assert_eq!((scope.fail_all("closed"), waits.len()), (300, 300));
    assert!(
        old.iter_mut()
            .all(|reply| over(reply) == cancelled("closed"))
    );
    let again = std::mem::take(&mut *asks.1.lock().unwrap());
    assert_eq!(again.len(), 300);
    drop(again);
    assert_no_waits(&waits);
}

#[test]
fn a_closed_scope_refuses_requests() {
    let (_timer, waits, [scope, other]) = scopes();
    let mut open = expect(&scope).1;
    assert_eq!(scope.close("connection closed"), 1);
    assert_eq!(over(&mut open), closed("connection closed"));
    let refused = scope.clone().expect(SECOND).unwrap_err();
    assert_eq!(refused, WaitError::ScopeClosed);
    assert!(refused.is_shutdown() && closed("connection closed").unwrap_err().is_shutdown());
    assert!(scope.is_closed() && !other.is_closed());
    let (number, mut reply) = expect(&other);
    other.deliver(number, "goes on").unwrap();
    assert_eq!(over(&mut reply), Ok("goes on"));
    assert_eq!(scope.close("again"), 0);
    assert_no_waits(&waits);
}

#[test]
fn the_last_handle_of_a_scope_ends_its_requests() {
    let (_timer, waits, [scope, other]) = scopes();
    let mut reply = expect(&scope).1;
    let stays = expect(&other).1;
    drop(scope.clone());
    assert!(poll(&mut reply).is_pending());
    drop(scope);
    let dropped = WaitError::Cancelled(CancelReason::Dropped);
    assert_eq!((over(&mut reply), waits.len()), (Err(dropped), 1));
    drop(stays);
    assert_no_waits(&waits);
}

#[test]
fn refused_requests_of_a_scope_leave_nothing() {
    let (_timer, client) = client(|builder| builder.max_parked(1));
    let (waits, scope) = (client.waits(), client.another());
    let (_, first) = expect(&scope);
    let full = WaitError::Full { limit: 1 };
    assert_eq!(scope.expect(SECOND).unwrap_err(), full);
    assert_eq!((waits.len(), waits.stats().watched), (1, 1));
    scope.deliver(1, "one").unwrap();
    let (number, second) = expect(&scope);
    assert_eq!((number, over(&mut { first })), (2, Ok("one"))); // no number is lost
    waits.shutdown(Duration::ZERO);
    assert_eq!(scope.expect(SECOND).unwrap_err(), WaitError::Closed);
    let shutdown = WaitError::Cancelled(CancelReason::Shutdown);
    assert_eq!(over(&mut { second }), Err(shutdown));
    let at_once = scope.expect(Duration::ZERO).unwrap_err();
    assert_eq!(at_once, WaitError::Closed);
    assert_no_waits(&waits);
}

/// There is no table: an empty scope is its handle, and without that it is nothing.
#[test]
fn a_hundred_thousand_empty_scopes_cost_nothing() {
    const SCOPES: usize = 100_000;
    let (timer, replies) = client(|builder| builder);
    let waits = replies.waits();
    let mut scopes = Vec::with_capacity(SCOPES);
    let ask = |scope: &Scope, number| {
        let (_, reply) = expect(scope);
        match number % 4 {
            0 => scope.deliver(1, "reply").unwrap(),
            1 => assert_eq!(scope.fail_all("closed"), 1),
            2 => {} // dropped
            _ => return Some(reply),
        }
        None
    };
    let used = allocation_counter::measure(|| {
        let expiring: Vec<_> = (0..SCOPES)
            .filter_map(|number| {
                scopes.push(replies.another());
                ask(&scopes[number], number)
            })
            .collect();
        assert_eq!((waits.len(), waits.keys()), (SCOPES / 4, SCOPES / 4));
        timer.advance(SECOND);
        drop(expiring);
    });
    // While they live, each is its own allocation alone. Shards keep a page or so of each kind.
    assert_no_waits(&waits);
    let handles = SCOPES as i64;
    assert!(used.bytes_current < 100 * handles + 4_000_000, "{used:?}");
    assert!(used.count_current < handles + 4000, "{used:?}");
    let dropped = allocation_counter::measure(|| scopes.clear());
    assert_eq!(dropped.count_current, -handles);
}

/// One acknowledgement for all messages before it.
#[test]
fn deliver_up_to_ends_all_requests_at_or_below() {
    let (_timer, waits, [scope, other]) = scopes();
    let [(_, one), (_, two), (_, three), (_, four)] = [(); 4].map(|()| expect(&scope));
    let stays = expect(&other).1;
    drop(two);
    assert_eq!(scope.deliver_up_to(0, "none"), 0);
    assert_eq!(scope.deliver_up_to(3, "stored"), 2);
    assert_eq!(waits.len(), 2);
    assert_eq!(
        [one, three].map(|mut reply| over(&mut reply)),
        [Ok("stored"), Ok("stored")]
    );
    assert!(comes_back(&scope, 3));
    // Numbers that are still to come wait for their own.
    assert_eq!(scope.deliver_up_to(u64::MAX, "rest"), 1);
    let (number, mut five) = expect(&scope);
    assert_eq!((number, poll(&mut five).is_pending()), (5, true));
    assert_eq!(over(&mut { four }), Ok("rest"));
    drop((five, stays));
    assert_no_waits(&waits);
}

/// A value whose clones this counts, and may look into the scope: it runs unlocked.
struct Ack(Scope, ReplyScope<Ack>, Arc<Mutex<usize>>);

impl Clone for Ack {
    fn clone(&self) -> Self {
        assert_eq!(
            self.1
                .deliver_up_to(0, Ack(self.0.clone(), self.1.clone(), self.2.clone())),
            0
        );
        *self.2.lock().unwrap() += 1;
        Ack(self.0.clone(), self.1.clone(), self.2.clone())
    }
}

#[test]
fn deliver_up_to_clones_its_value_unlocked() {
    let (_timer, _, [other]) = scopes();
    let timer = ManualTimer::new();
    let acks = ReplyScope::builder("acks").timer(&timer).build().unwrap();
    let scope: ReplyScope<Ack> = acks.another();
    let _replies = [(); 3].map(|()| scope.expect(SECOND).unwrap().1);
    let clones = Arc::default();
    let ack = Ack(other, scope.clone(), Arc::clone(&clones));
    assert_eq!(scope.deliver_up_to(3, ack), 3);
    assert_eq!(*clones.lock().unwrap(), 2);
}

/// The task that waits, its deadline and its id know nothing of it.
#[test]
fn a_reassigned_request_keeps_task_deadline_and_id() {
    let (timer, waits, old) = scopes::<8>();
    for next in &old[1..] {
        let first = &old[0];
        let task = Woken::task();
        let (number, mut reply) = expect(first);
        let (_, mut expires) = expect(first);
        let (_, mut cancelled_one) = expect(first);
        let (_, mut given_up) = expect(first);
        assert!(task.poll(&mut reply).is_pending());
        timer.advance(SECOND - MS);
        let numbers: Vec<_> = (number..number + 4)
            .map(|number| first.reassign(number, next).unwrap())
            .collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        assert_eq!(
            (waits.len(), waits.keys(), first.fail_all("lost")),
            (4, 4, 0)
        );
        assert!(comes_back(first, number));
        assert_eq!(first.reassign(number, next), Err(WaitError::NotExpected));

        // A reply, a cancel by the id that the future has, a new deadline, a drop, the deadline.
        assert_eq!(task.times(), 0);
        next.deliver(1, "again").unwrap();
        assert_eq!((task.times(), over(&mut reply)), (1, Ok("again")));
        let id = cancelled_one.id().unwrap();
        assert!(waits.reschedule(id, 2 * SECOND));
        assert_eq!(waits.cancel(id, "by id"), ReachResult::Reached(()));
        assert_eq!(waits.cancel(id, "by id"), ReachResult::Gone);
        assert_eq!(over(&mut cancelled_one), cancelled("by id"));
        assert!(poll(&mut given_up).is_pending());
        drop(given_up);
        assert!(comes_back(next, 4));
        assert!(poll(&mut expires).is_pending());
        timer.advance(MS);
        assert_eq!(over(&mut expires), Err(WaitError::Expired));
        assert_no_waits(&waits);
    }
}

/// It may move on and back, with nothing left behind.
#[test]
fn a_request_may_be_reassigned_again() {
    let (_timer, waits, scopes) = scopes::<8>();
    let (mut number, mut reply) = expect(&scopes[0]);
    for pair in scopes.windows(2) {
        number = pair[0].reassign(number, &pair[1]).unwrap();
        assert_eq!(waits.len(), 1);
    }
    number = scopes[7].reassign(number, &scopes[0]).unwrap();
    assert_eq!(number, 2);
    number = scopes[0].reassign(number, &scopes[0]).unwrap();
    assert_eq!(scopes[0].deliver_up_to(number, "at last"), 1);
    assert_eq!(over(&mut reply), Ok("at last"));
    assert_no_waits(&waits);
}

#[test]
fn a_request_that_cannot_be_reassigned_stays() {
    let (_timer, waits, [scope, closed_one, other]) = scopes();
    let (number, mut reply) = expect(&scope);
    closed_one.close("closed");
    assert_eq!(
        scope.reassign(number, &closed_one),
        Err(WaitError::ScopeClosed)
    );
    assert_eq!(
        [0, number + 1].map(|number| scope.reassign(number, &other)),
        [const { Err(WaitError::NotExpected) }; 2]
    );
    scope.deliver(number, "here").unwrap();
    assert_eq!(over(&mut reply), Ok("here"));
    assert_eq!(expect(&other).0, 1); // no number was used up
    assert_no_waits(&waits);
}

#[test]
#[should_panic(expected = "not of the same")]
fn a_request_is_not_reassigned_to_another_client() {
    let (_timer, _, [scope]) = scopes();
    let (_other_timer, _, [other]) = scopes();
    let (number, _reply) = expect(&scope);
    _ = scope.reassign(number, &other);
}

/// It is one scope that fails, wherever its requests came from.
#[test]
fn failures_find_reassigned_requests() {
    let (_timer, waits, [old, new]) = scopes();
    let replies = [(); 3].map(|()| expect(&old));
    let [first, second, third] = replies;
    old.reassign(third.0, &new).unwrap();
    old.reassign(first.0, &new).unwrap();
    assert_eq!((old.close("old"), new.close("new")), (1, 2));
    assert_eq!(
        [first, second, third].map(|(_, mut reply)| over(&mut reply)),
        [closed("new"), closed("old"), closed("new")]
    );
    assert_no_waits(&waits);
}
