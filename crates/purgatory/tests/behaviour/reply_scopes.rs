//! The requests of one client over several connections, on a manual timer. (Random orders are
//! compared with a reference in `models/replies`.)

use crate::support::*;

type Scopes = ReplyScope<&'static str>;
type Scope = ReplyScope<&'static str>;
type Reply = WaitFuture<&'static str>;

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

#[track_caller]
fn expect(scope: &Scope) -> (u64, Reply) {
    scope.expect(SECOND).unwrap()
}

/// There is no table of scopes: an empty scope is only its handle, and leaves nothing when dropped.
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
    // While they live, each scope is one allocation. Shards keep about a page of each kind.
    assert_nothing_waits(&waits);
    let handles = SCOPES as i64;
    assert!(used.bytes_current < 100 * handles + 4_000_000, "{used:?}");
    assert!(used.count_current < handles + 4000, "{used:?}");
    let dropped = allocation_counter::measure(|| scopes.clear());
    assert_eq!(dropped.count_current, -handles);
}

/// Moved requests expire as if they were parked when they moved, whichever shard they move to.
#[test]
fn moved_requests_expire_in_the_order_of_moves() {
    let (timer, client) = client(|builder| builder);
    timer.advance(SECOND);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut moved = Vec::new();
    for at in 0..20 {
        let to = client.another();
        let (number, mut reply) = expect(&client);
        client.reassign(number, &to).unwrap();
        let expired = order.clone();
        let woken = waker(move || expired.lock().unwrap().push(at));
        assert!(poll_by(&mut reply, &woken).is_pending());
        moved.push((to, reply));
    }
    assert_eq!(client.waits().snapshot(1).oldest[0].age, Duration::ZERO);
    timer.advance(SECOND);
    assert!(order.lock().unwrap().iter().copied().eq(0..20));
}

/// The request is reached by its future's id, and by the id that inspection shows at its present
/// place.
#[test]
fn a_moved_request_is_reached_by_either_id() {
    let (_timer, client) = client(|builder| builder);
    let waits = client.waits();
    for _ in 0..20 {
        let (number, reply) = expect(&client);
        let to = client.another();
        client.reassign(number, &to).unwrap();
        let own = reply.id().unwrap();
        let shown = waits.snapshot(1).oldest[0].id;
        assert!(waits.reschedule(own, NEVER) && waits.reschedule(shown, SECOND));
        assert_eq!(waits.cancel(shown, "over"), ReachResult::Reached(()));
        assert_eq!(waits.cancel(own, "again"), ReachResult::Gone);
        assert!(reply.wait_blocking().is_err());
    }
}

/// A shard whose wheel is behind the clock does not wake the timer early.
#[test]
fn a_moved_request_is_due_when_it_was() {
    let (timer, client) = client(|builder| builder);
    let scopes: Vec<_> = (0..20).map(|_| client.another()).collect();
    for scope in &scopes {
        drop(expect(scope)); // makes its shard
        timer.advance(10_007 * MS);
        let (number, reply) = client.expect(400 * MS).unwrap();
        let due = timer.next_due_in();
        client.reassign(number, scope).unwrap();
        assert_eq!(timer.next_due_in(), due);
        drop(reply);
    }
}

/// A confirmation covers only requests expected before the call. The clone of its value, which
/// comes first, answers the first request and expects another.
#[test]
fn deliver_up_to_clones_its_value_unlocked() {
    let scope = ReplyScope::on(&ManualTimer::new(), "acks").unwrap();
    let _replies = [(); 3].map(|()| scope.expect(SECOND).unwrap().1);
    let (inside, later) = (scope.clone(), Arc::new(Mutex::new(None)));
    let (clones, counts) = counting();
    let (cloned, expected) = (clones.clone(), later.clone());
    let ack = Hooked::new(0, move |at| {
        counts(at);
        if at == At::Clone && cloned.load(SeqCst) == 1 {
            assert!(inside.deliver(1, Hooked::plain(0)).is_ok());
            *expected.lock().unwrap() = Some(inside.expect(SECOND).unwrap().1);
        }
    });
    assert_eq!(scope.deliver_up_to(u64::MAX, ack), 2);
    assert_eq!(clones.load(SeqCst), 2);
    let mut later = later.lock().unwrap().take().unwrap();
    assert!(poll(&mut later).is_pending());
}

#[test]
#[should_panic(expected = "not of the same")]
fn a_request_is_not_reassigned_to_another_client() {
    let (_timer, _, [scope]) = scopes();
    let (_other_timer, _, [other]) = scopes();
    let (number, _reply) = expect(&scope);
    _ = scope.reassign(number, &other);
}
