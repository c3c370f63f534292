//! The reason of a cancel: a text, and a value that reaches the callback and the future.
#![cfg(not(loom))]

use crate::support::*;

/// The transactions of a deadlock, each of which waits for the next.
#[derive(Debug, PartialEq)]
struct Chain(Vec<u64>);

fn chain(outcome: &Outcome) -> Option<&Chain> {
    match outcome {
        Outcome::Cancelled(reason) => reason.value(),
        _ => None,
    }
}

/// A lock manager ends one waiter with the chain of its deadlock, here by each way to cancel.
#[test]
fn a_callback_gets_the_value_of_its_cancel() {
    let (_timer, waits) = waiting();
    for way in 0..3 {
        let probe = Probe::new();
        let id = waits.park(probe.operation(), &["row"], MINUTE);
        let deadlock = Reason::with("deadlock", Chain(vec![1, 2, 1]));
        match way {
            0 => assert_eq!(waits.cancel(id, deadlock), ReachResult::Reached(())),
            1 => assert_eq!(waits.cancel_for_key(&"row", deadlock), 1),
            _ => assert_eq!(waits.cancel_all(deadlock), 1),
        }
        let outcome = &probe.endings()[0];
        assert_eq!(chain(outcome), Some(&Chain(vec![1, 2, 1])));
        assert_eq!(outcome.to_string(), "cancelled: deadlock");
    }
}

/// The value is left as a request, and reaches the callback through the thread that checks the
/// operation.
#[test]
fn a_value_survives_a_check_under_way() {
    let (_timer, waits) = waiting();
    let probe = Probe::new();
    let inside = waits.clone();
    let cancelled = Mutex::new(false);
    let operation = probe.operation().on_check(move || {
        // Not while it is being parked, when no cancel can find it.
        if inside.len() == 1 && !std::mem::replace(&mut *cancelled.lock().unwrap(), true) {
            let deadlock = Reason::with("deadlock", Chain(vec![3]));
            assert_eq!(inside.cancel_for_key(&"row", deadlock), 0);
            assert_eq!(inside.cancel_for_key(&"row", "later"), 0);
        }
    });
    waits.park(operation, &["row"], MINUTE);
    waits.check_and_complete(&"row");
    assert_eq!(chain(&probe.endings()[0]), Some(&Chain(vec![3])));
}

#[test]
fn a_future_gets_the_value_of_its_cancel() {
    const UNKNOWN_TOPIC: i16 = 3;
    let code_of = |error: WaitError| match error {
        WaitError::Cancelled(reason) => reason.value::<i16>().copied(),
        other => panic!("{other}"),
    };
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let mut fetched = waits.wait(&["orders"], NEVER, || None::<u32>);
    waits.cancel_all(Reason::with("unknown topic", UNKNOWN_TOPIC));
    let expected = Some(UNKNOWN_TOPIC);
    assert_eq!(code_of(over(&mut fetched).unwrap_err()), expected);

    let replies: Replies<u32, u32> = Replies::new("replies").unwrap();
    let mut reply = replies.expect(1, MINUTE).unwrap();
    assert_eq!(replies.fail_all(Reason::with("closed", UNKNOWN_TOPIC)), 1);
    assert_eq!(code_of(over(&mut reply).unwrap_err()), Some(UNKNOWN_TOPIC));
}

#[test]
fn reasons_are_equal_by_text_and_shared_value() {
    let text = Reason::from("deadlock");
    assert_eq!(text, Reason::from("deadlock".to_owned()));
    assert_eq!(text.value::<u32>(), None);
    let typed = Reason::with("deadlock", 7_u32);
    assert_eq!(typed, typed.clone());
    assert_ne!(typed, text);
    assert_ne!(typed, Reason::with("deadlock", 7_u32)); // another value
    assert_eq!(typed.value::<u32>(), Some(&7));
    assert_eq!(typed.value::<i32>(), None);
    assert_eq!(CancelReason::Shutdown.value::<u32>(), None);

    assert_eq!(typed.as_str(), "deadlock");
    assert_eq!(typed.to_string().as_str(), "deadlock");
    assert_eq!(format!("{typed:?}"), "\"deadlock\" with u32");
    let expected = "Cancelled(Requested(\"deadlock\"))";
    assert_eq!(format!("{:?}", requested("deadlock")), expected);
}

/// A cancel of many operations does not copy the text.
#[test]
fn cancelled_operations_share_a_text() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let mut fetched = [(); 2].map(|()| waits.wait(&["orders"], NEVER, || None::<u32>));
    waits.cancel_all(format!("broker {} stopped", 7));
    let texts = fetched.each_mut().map(|fetch| match over(fetch) {
        Err(WaitError::Cancelled(CancelReason::Requested(reason))) => reason,
        other => panic!("{other:?}"),
    });
    assert_eq!(texts[0].as_str(), "broker 7 stopped");
    assert_eq!(texts[0].as_str().as_ptr(), texts[1].as_str().as_ptr());
}
