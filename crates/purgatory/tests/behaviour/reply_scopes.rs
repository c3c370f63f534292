//! The requests of several connections over one `Replies`, on a manual timer.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
    time::Duration,
};

use purgatory::{
    CancelReason, Expected, Outcome, Purgatory, RefusedReason, Replies, ReplyScope, RequestId,
    Undelivered, WaitError, WaitFuture,
};
use timer_core::ManualTimer;

use crate::support::{MS, SECOND, assert_empty, by_hand, by_hand_with, over, poll, requested};

type Waits = Purgatory<RequestId, Expected<&'static str>>;
type Scope = ReplyScope<&'static str>;
type Reply = WaitFuture<&'static str>;
type Answer = Result<&'static str, WaitError>;

/// Creates scopes over one `Replies` on a manual timer, with their purgatory for inspection.
fn scopes<const N: usize>() -> (ManualTimer, Waits, [Scope; N]) {
    let (timer, waits) = by_hand();
    let replies = Replies::over(waits.clone());
    (timer, waits, std::array::from_fn(|_| replies.scope()))
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
    let back: Undelivered<_> = scope.deliver(number, "back").unwrap_err();
    let is_late = back.is_late();
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
    assert!(!comes_back(&scope, 0)); // the key that all four share
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
    assert_empty(&waits);
    let texts = [4, 5].map(|number| scope.deliver(number, "back").unwrap_err().to_string());
    assert_eq!(texts[0], "a late reply: its request is over");
    assert_eq!(texts[1], "a reply to a request that was never asked");
}

#[test]
fn scopes_share_no_numbers_and_fail_apart() {
    let (_timer, waits, [one, other]) = scopes();
    let [mut first, mut second] = [(); 2].map(|()| expect(&one).1);
    let mut same_number = expect(&other).1;
    assert_eq!(one.deliver(1, "of the first").map_err(|_| ()), Ok(()));
    assert!(!comes_back(&other, 2) && !comes_back(&other, 0));
    assert_eq!((waits.keys(), waits.watched()), (4, 4));

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
    assert_empty(&waits);
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
    assert_empty(&waits);
}

#[test]
fn a_closed_scope_refuses_requests() {
    let (_timer, waits, [scope, other]) = scopes();
    let mut open = expect(&scope).1;
    assert_eq!(scope.close("connection closed"), 1);
    assert_eq!(over(&mut open), cancelled("connection closed"));
    assert_eq!(
        scope.clone().expect(SECOND).unwrap_err(),
        RefusedReason::ScopeClosed
    );
    let (number, mut reply) = expect(&other);
    other.deliver(number, "goes on").unwrap();
    assert_eq!(over(&mut reply), Ok("goes on"));
    assert_eq!(scope.close("again"), 0);
    assert_empty(&waits);
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
    assert_empty(&waits);
}

#[test]
fn refused_requests_of_a_scope_leave_nothing() {
    let (_timer, waits): (_, Waits) = by_hand_with(|builder| builder.max_parked(1));
    let scope = Replies::over(waits.clone()).scope();
    let (_, first) = expect(&scope);
    let full = RefusedReason::Full { limit: 1 };
    assert_eq!(scope.expect(SECOND).unwrap_err(), full);
    assert_eq!((waits.len(), waits.watched()), (1, 2));
    scope.deliver(1, "one").unwrap();
    let (number, second) = expect(&scope);
    assert_eq!((number, over(&mut { first })), (3, Ok("one")));
    waits.shutdown(Duration::ZERO);
    assert_eq!(scope.expect(SECOND).unwrap_err(), RefusedReason::Closed);
    let shutdown = WaitError::Cancelled(CancelReason::Shutdown);
    assert_eq!(over(&mut { second }), Err(shutdown));
    let at_once = scope.expect(Duration::ZERO).unwrap().1;
    assert_eq!(over(&mut { at_once }), Err(WaitError::Expired));
    assert_empty(&waits);
}

/// There is no table: an empty scope is its handle, and without that it is nothing.
#[test]
fn a_hundred_thousand_empty_scopes_cost_nothing() {
    const SCOPES: usize = 100_000;
    let (timer, waits) = by_hand();
    let replies = Replies::over(waits.clone());
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
                scopes.push(replies.scope());
                ask(&scopes[number], number)
            })
            .collect();
        assert_eq!((waits.len(), waits.keys()), (SCOPES / 4, SCOPES / 2));
        timer.advance(SECOND);
        drop(expiring);
    });
    // While they live, each is its own allocation alone. Shards keep a page or so of each kind.
    assert_empty(&waits);
    let handles = SCOPES as i64;
    assert!(used.bytes_current < 100 * handles + 4_000_000, "{used:?}");
    assert!(used.count_current < handles + 4000, "{used:?}");
    let dropped = allocation_counter::measure(|| scopes.clear());
    assert_eq!(dropped.count_current, -handles);
}
