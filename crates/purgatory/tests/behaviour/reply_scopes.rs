//! The requests of several connections of one client, on a manual timer. (Beside a reference, in any
//! order: `models/replies`.)

use std::sync::{Arc, Mutex};

use purgatory::{
    Builder, CancelReason, Outcome, ReachResult, Refused, ReplyScope, WaitError, WaitFuture, Waits,
};
use timer_core::ManualTimer;

use crate::support::{MS, SECOND, Woken, assert_nothing_waits, over, poll, requested};

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
    assert_nothing_waits(&waits);
    let texts = [4, 5].map(|number| scope.deliver(number, "back").unwrap_err().to_string());
    assert_eq!(texts[0], "a late reply: its request is over");
    assert_eq!(texts[1], "no reply is expected under this number");
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
    assert_nothing_waits(&waits);
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
    assert_nothing_waits(&waits);
    let handles = SCOPES as i64;
    assert!(used.bytes_current < 100 * handles + 4_000_000, "{used:?}");
    assert!(used.count_current < handles + 4000, "{used:?}");
    let dropped = allocation_counter::measure(|| scopes.clear());
    assert_eq!(dropped.count_current, -handles);
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
        assert_nothing_waits(&waits);
    }
}

#[test]
#[should_panic(expected = "not of the same")]
fn a_request_is_not_reassigned_to_another_client() {
    let (_timer, _, [scope]) = scopes();
    let (_other_timer, _, [other]) = scopes();
    let (number, _reply) = expect(&scope);
    _ = scope.reassign(number, &other);
}
