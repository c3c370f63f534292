//! The texts of errors, outcomes and ids. An error names the wrong value and the bound.

use crate::support::*;

/// Returns any error by `?`, as many programs do.
fn park_or_fail(waits: &Purgatory<u32>) -> anyhow::Result<()> {
    waits.try_complete_else_watch(never(), &[1], NEVER)?;
    Ok(())
}

#[test]
fn a_refusal_names_the_bound() {
    let (timer, waits): (_, Purgatory<u32>) = by_hand_with(|builder| builder.max_parked(1));
    let says = |watches: Watches<'_, u32>| {
        waits
            .try_complete_else_watch(never(), watches, NEVER)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(says(Watches::keys(&[])), "not parked: no watch key");
    park_or_fail(&waits).unwrap();
    let error = park_or_fail(&waits).unwrap_err();
    let expected = "not parked: the limit of 1 parked operations is reached";
    assert_eq!(error.to_string(), expected);
    let full = error.downcast::<Refused<BoxedOperation>>().unwrap();
    waits.cancel_all("shard");
    waits.park(full.into_inner(), &[1], NEVER); // it came back
    timer.shutdown(MINUTE);
    let expected = "not parked: the purgatory was shut down";
    assert_eq!(says(Watches::keys(&[1])), expected);
    let stats = waits.stats();
    assert_eq!(stats.refused_no_keys, 1);
    assert_eq!(stats.refused_full, 1);
    assert_eq!(stats.refused_closed, 1);
    assert_eq!(stats.checks, 3);
    let late = Purgatory::<u32>::builder("late").timer(&timer).build();
    assert!(matches!(late, Err(BuildError::Closed)));
    let shards = Purgatory::<u32>::builder("shards").shards(3).build();
    let expected = "3 shards: not a power of two in 1..=256";
    assert_eq!(shards.unwrap_err().to_string(), expected);
}

/// Each outcome has a text of its own.
#[test]
fn an_outcome_says_why() {
    let outcomes = [
        (Completed, "completed"),
        (DROPPED, "cancelled: its purgatory or scope was dropped"),
        (PANICKED, "cancelled: its check panicked"),
    ];
    for (outcome, text) in outcomes {
        assert_eq!(outcome.to_string(), text);
    }
    let (members, floor) = (1, 2);
    let below = CancelReason::BelowFloor { members, floor };
    let errors = [
        WaitError::NoKeys,
        WaitError::MustNotBlock,
        WaitError::Late,
        WaitError::NotExpected,
        WaitError::TooManyKeys { limit: 2 },
        WaitError::Cancelled(epoch_over(0, 1)),
        WaitError::Cancelled(epoch_over(1, 1)),
        WaitError::Cancelled(below),
    ];
    let texts = [
        "no watch key",
        "this thread must not block: it runs a check, a callback or a runtime's tasks, which the end \
         of the wait may need",
        "a late reply: its request is over",
        "no reply is expected under this number",
        "the limit of 2 keys with a value is reached",
        "cancelled: its epoch 0 is over: epoch 1 has begun",
        "cancelled: its epoch 1 is not led here any more",
        "cancelled: too few replicas: 1, and the floor is 2",
    ];
    assert_eq!(errors.map(|error| error.to_string()), texts);
}

/// An epoch begins once: the error does not say that the key is in another epoch.
#[test]
fn an_epoch_that_begins_again_is_told_so() {
    let ends: Watermarks<u32> = Watermarks::on(&ManualTimer::new(), "ends").unwrap();
    assert_eq!(ends.begin_epoch(&1, 2, 7), Ok(0));
    let says = |epoch| ends.begin_epoch(&1, epoch, 7).unwrap_err().to_string();
    let told = [
        "epoch 2 has begun already",
        "the key is in epoch 2, not in 1",
    ];
    assert_eq!([says(2), says(1)], told);
}

#[test]
fn refusals_are_limits_or_shutdowns_or_neither() {
    use WaitError::*;

    let shutdowns = [
        Closed,
        ScopeClosed,
        KeyClosed,
        Cancelled(CancelReason::Shutdown),
        Cancelled(CancelReason::Dropped),
        Cancelled(CancelReason::Closed("closed".into())),
    ];
    let limits = [Full { limit: 1 }, TooManyKeys { limit: 1 }];
    let neither = [
        TooHeavy {
            weight: 2,
            limit: 1,
        },
        Late,
        NoKeys,
        AlreadyExpected,
        NotExpected,
        other_epoch(0, 1),
        WaitError::Expired,
        Cancelled(CancelReason::Requested("shut down".into())),
    ];
    let is = |reason: &WaitError| (reason.is_shutdown(), reason.is_busy());
    assert!(shutdowns.iter().all(|reason| is(reason) == (true, false)));
    assert!(limits.iter().all(|reason| is(reason) == (false, true)));
    assert!(neither.iter().all(|reason| is(reason) == (false, false)));
}

/// The reasons are told in the order of `WaitError`'s page.
#[test]
fn each_form_tells_the_first_reason_that_holds() {
    let timer = ManualTimer::new();
    let zero = Timeout::After(Duration::ZERO);
    let waits = Purgatory::<u32>::builder("waits").timer(&timer);
    let waits = waits.max_parked(1).build().unwrap();
    let ends = Watermarks::<u32>::builder("ends").timer(&timer);
    let ends = ends.max_parked(1).build().unwrap();
    let places = Permits::builder("places").timer(&timer);
    let places = places.max_parked(1).build().unwrap();
    let replies = Replies::<u32, u32>::builder("replies").timer(&timer);
    let replies = replies.max_parked(1).build().unwrap();
    let wait = |keys: &[u32], timeout| waits.wait(keys, timeout, || false).wait_blocking();
    let reach = |value, timeout| ends.wait_for(&1, value, timeout).wait_blocking().map(drop);
    let reach_in = |epoch| ends.in_epoch(&1, epoch).wait_for(9, zero).wait_blocking();
    let reach_none = || ends.wait_for_each(&[], zero).wait_blocking().map(drop);
    let acquire = |weight, timeout| places.acquire(weight, timeout).wait_blocking().map(drop);
    let expect = |key, timeout| match replies.expect(key, timeout) {
        Ok(reply) => reply.wait_blocking().map(drop),
        Err(refused) => Err(refused.reason),
    };
    ends.advance(&1, 5).unwrap();
    let _taken = places.try_acquire(1).unwrap();
    let _full = (
        waits.wait(&[1], NEVER, || false),
        ends.wait_for(&1, 6, NEVER),
        places.acquire(1, NEVER),
        replies.expect(1, NEVER).unwrap(),
    );

    // First come a wrong argument and a taken key.
    let (named, present) = (7, 0);
    assert_eq!(wait(&[], zero), Err(WaitError::NoKeys));
    assert_eq!(reach_none(), Err(WaitError::NoKeys));
    assert_eq!(reach_in(7), Err(WaitError::OtherEpoch { named, present }));
    let (weight, limit) = (2, 1);
    assert_eq!(acquire(2, zero), Err(WaitError::TooHeavy { weight, limit }));
    for timeout in [zero, NEVER] {
        assert_eq!(expect(1, timeout), Err(WaitError::AlreadyExpected));
    }
    // Then come a condition that holds, no time (which needs no place), and no place.
    assert_eq!(reach(5, zero), Ok(()));
    let told = |timeout| {
        let (wait, reach) = (wait(&[1], timeout), reach(9, timeout));
        [wait, reach, acquire(1, timeout), expect(2, timeout)]
    };
    assert!(told(zero).iter().all(|it| *it == Err(WaitError::Expired)));
    let full = WaitError::Full { limit: 1 };
    assert!(told(NEVER).iter().all(|it| *it == Err(full.clone())));
    // Before all of these comes a shutdown.
    timer.shutdown(Duration::ZERO);
    let closed = told(zero).into_iter().chain(told(NEVER));
    let closed = closed.chain([wait(&[], zero), reach_none(), acquire(2, zero)]);
    let mut closed = closed.chain([expect(1, NEVER), reach(5, NEVER), reach_in(7).map(drop)]);
    assert!(closed.all(|it| it == Err(WaitError::Closed)));
}

/// The first check of an arriving operation shuts the form down, whose one place an operation under
/// check has.
#[test]
fn a_full_form_that_is_shut_down_meanwhile_is_closed() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand_with(|builder| builder.max_parked(1));
    let (outer, inner) = (waits.clone(), waits.clone());
    let (send, refused) = mpsc::channel();
    let mut is_parked = false;
    let parks_another = move || {
        if mem::replace(&mut is_parked, true) {
            let closes = inner.clone();
            let check = move || {
                closes.shutdown(Duration::ZERO);
                false
            };
            let parked = outer.try_complete_else_watch(when(check, drop), &[2], NEVER);
            send.send(parked.unwrap_err().reason).unwrap();
        }
        false
    };
    waits.park(when(parks_another, drop), &[1], NEVER);
    waits.check_and_complete(&1);
    assert_eq!(refused.try_recv(), Ok(WaitError::Closed));
    let stats = waits.stats();
    assert_eq!((stats.refused_full, stats.refused_closed), (0, 1));
}

/// An event in its first check, which the call leaves behind itself, shuts the form down.
#[test]
fn shutdown_behind_a_refused_park_is_its_reason() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand_with(|builder| builder.max_parked(1));
    let closes = waits.clone();
    let mut is_parked = false;
    let shuts_down = move || {
        if mem::replace(&mut is_parked, true) {
            closes.shutdown(Duration::ZERO);
        }
        false
    };
    waits.park(when(shuts_down, drop), &[1], NEVER);
    let signals = waits.clone();
    let check = move || {
        signals.check_and_complete(&1);
        false
    };
    assert_eq!(
        refused(&waits, when(check, drop), &[2]).0,
        WaitError::Closed
    );
    let stats = waits.stats();
    assert_eq!((stats.refused_full, stats.refused_closed), (0, 1));
}

/// An id is hexadecimal: the purgatory's number, a dash, the operation's number.
#[test]
fn the_id_of_an_operation_is_of_one_purgatory_alone() {
    let timer = ManualTimer::new();
    let [one, other] = ["one", "other"].map(|name| Purgatory::<u32>::on(&timer, name).unwrap());
    let ids = [&one, &one, &other].map(|of| of.park(never(), &[1], NEVER));
    let parts = ids.map(|id| {
        let text = id.to_string();
        let (purgatory, operation) = text.split_once('-').unwrap();
        [purgatory, operation].map(|digits| u128::from_str_radix(digits, 16).unwrap())
    });
    assert_eq!(parts[0][0], parts[1][0]);
    assert!(parts[0][0] != parts[2][0] && parts[0][1] != parts[1][1]);
    #[cfg(feature = "serde")]
    assert_eq!(serde_json::to_value(ids[0]).unwrap(), ids[0].to_string());
    let expected = [ReachResult::Gone; 2];
    assert_eq!(
        [other.cancel(ids[0], "not here"), other.complete(ids[0])],
        expected
    );
    assert!(!other.reschedule(ids[0], MS));
    assert_eq!(one.len(), 2);
    assert_eq!(other.len(), 1);
    assert_eq!(one.cancel(ids[0], "here"), ReachResult::Reached(()));
}
