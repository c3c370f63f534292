//! Replies against everything that may end them.

use std::{sync::Arc, time::Duration};

use loom::thread;
use purgatory::{
    CancelReason, Expected, Purgatory, RefusedReason, Replies, ReplyScope, RequestId, WaitError,
    sync::Failpoint,
};
use timer_core::ManualTimer;

use super::{MS, by_hand, check, ending};

/// Replies on a manual timer.
fn replies<V: Send + 'static>() -> (ManualTimer, Replies<u8, V>) {
    let (timer, purgatory) = by_hand();
    (timer, Replies::over(purgatory))
}

/// A scope of replies on a manual timer, with its purgatory.
fn scope() -> (
    ManualTimer,
    Purgatory<RequestId, Expected<u8>>,
    ReplyScope<u8>,
) {
    let timer = ManualTimer::new();
    let waits = Purgatory::builder("loom").timer(&timer).build().unwrap();
    let scope = Replies::over(waits.clone()).scope();
    (timer, waits, scope)
}

/// A value is taken, or handed back and the time ran out.
#[test]
fn reply_against_its_time() {
    check(&[Failpoint::EndedStaysListed], || {
        let (timer, replies) = replies();
        let mut reply = replies.expect(1, MS).unwrap();
        let network = replies.clone();
        let network = thread::spawn(move || network.deliver(&1, 7));
        timer.advance(MS);
        let expected = match network.join().unwrap() {
            Ok(()) => Ok(7),
            Err(_) => Err(WaitError::Expired),
        };
        assert_eq!(
            (ending(&mut reply), replies.purgatory().len()),
            (Some(expected), 0)
        );
        assert!(replies.expect(1, MS).is_ok());
    });
}

/// A reply that its future has taken has no place any more, so that another one can be expected.
#[test]
fn place_of_reply_against_its_answer() {
    check(&[Failpoint::AnsweredKeepsPlace], || {
        let timer = ManualTimer::new();
        let waits = Purgatory::builder("loom").timer(&timer).max_parked(1);
        let replies: Replies<u8, u8> = Replies::over(waits.build().unwrap());
        let mut reply = replies.expect(1, MS).unwrap();
        let network = replies.clone();
        let network = thread::spawn(move || network.deliver(&1, 7));
        if ending(&mut reply).is_some() {
            assert!(replies.expect(1, MS).is_ok(), "there is no place");
        }
        network.join().unwrap().unwrap();
    });
}

/// A client goes and another expects a reply under its key: one of the two has the value, or it is
/// handed back.
#[test]
fn reply_against_its_client_that_goes() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, replies) = replies();
        let value = Arc::new(());
        let reply = replies.expect(1, MS).unwrap();
        let network = replies.clone();
        let delivered = value.clone();
        let network = thread::spawn(move || network.deliver(&1, delivered));
        drop(reply);
        let next = replies.expect(1, MS);
        let back = network.join().unwrap();
        let mut next = next.expect("the key is free");
        let got = ending(&mut next);
        assert!(got.is_none() || back.is_ok(), "a value was doubled");
        let there = 1 + usize::from(got.is_some()) + usize::from(back.is_err());
        assert_eq!(Arc::strong_count(&value), there, "a value was lost");
        assert_eq!(replies.purgatory().len(), usize::from(got.is_none()));
    });
}

/// When two threads expect a reply under one key, one is refused and no value is lost. No fault
/// fits: the key is looked up and taken in one critical section.
#[test]
fn one_key_expected_twice() {
    check(&[], || {
        let (_timer, replies) = replies();
        let other = replies.clone();
        let other = thread::spawn(move || other.expect(1, MS).ok());
        let reply = replies.expect(1, MS).ok();
        let ends = [reply, other.join().unwrap()];
        assert_eq!(
            (replies.deliver(&1, 7), replies.deliver(&1, 8)),
            (Ok(()), Err(8))
        );
        let told: Vec<_> = ends
            .into_iter()
            .flatten()
            .map(|mut reply| ending(&mut reply))
            .collect();
        assert_eq!(told, [Some(Ok(7))]);
    });
}

/// All fail at once, though shards are emptied one after another (that of key 2 first): a reply
/// expected after one that did not fail does not fail either.
#[test]
fn all_fail_against_expecting_two() {
    check(&[Failpoint::FailsWhatCameAfter], || {
        let (_timer, replies) = replies::<u8>();
        let network = replies.clone();
        let network = thread::spawn(move || network.fail_all("closed"));
        let mut ends = [2, 1].map(|key| replies.expect(key, MS).unwrap());
        let failed = network.join().unwrap();
        let ends = ends.each_mut().map(|reply| ending(reply).is_some());
        assert_eq!(ends.iter().filter(|&&ended| ended).count(), failed);
        assert_ne!(ends, [false, true]);
    });
}

/// A reply is refused, or ended by the shutdown.
#[test]
fn expecting_against_shutdown() {
    check(&[Failpoint::ShutdownClosesNoShard], || {
        let (_timer, replies) = replies::<u8>();
        let network = replies.clone();
        let network = thread::spawn(move || network.purgatory().shutdown(Duration::ZERO));
        let expected = replies.expect(1, MS);
        network.join().unwrap();
        match expected {
            Ok(mut reply) => {
                let shutdown = WaitError::Cancelled(CancelReason::Shutdown);
                assert_eq!(ending(&mut reply), Some(Err(shutdown)));
            }
            Err(refused) => assert_eq!(refused.reason, RefusedReason::Closed),
        }
    });
}

/// A request that is asked as its scope closes is failed or refused: none waits for a reply that
/// cannot come.
#[test]
fn closing_scope_against_expect() {
    check(&[Failpoint::ClosedScopeExpects], || {
        let (_timer, waits, scope) = scope();
        let network = scope.clone();
        let network = thread::spawn(move || network.close("closed"));
        let asked = scope.expect(MS);
        network.join().unwrap();
        match asked {
            Ok((_, mut reply)) => assert!(ending(&mut reply).is_some_and(|ended| ended.is_err())),
            Err(refused) => assert_eq!(refused, RefusedReason::ScopeClosed),
        }
        assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
    });
}

/// The set that fails is fixed at one moment: of a scope's requests a later one does not fail
/// without the earlier, and one that does not fail can have its reply.
#[test]
fn fail_scope_against_expect() {
    check(&[Failpoint::FailsWhatCameAfter], || {
        let (_timer, waits, scope) = scope();
        let (_, mut before) = scope.expect(MS).unwrap();
        let network = scope.clone();
        let network = thread::spawn(move || network.fail_all("closed"));
        let asked = [(); 3].map(|()| scope.expect(MS).unwrap());
        network.join().unwrap();
        assert!(ending(&mut before).is_some(), "it was there before");
        let failed = asked.map(|(number, mut reply)| {
            let failed = ending(&mut reply).is_some();
            assert_eq!(scope.deliver(number, 7).is_err(), failed);
            assert!(failed || ending(&mut reply) == Some(Ok(7)));
            failed
        });
        assert!(failed.windows(2).all(|two| two != [false, true]));
        assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
    });
}

/// A request has its reply, or fails and hands the reply back as late.
#[test]
fn fail_scope_against_deliver() {
    check(&[Failpoint::HandedOverStaysListed], || {
        let (_timer, waits, scope) = scope();
        let (number, mut reply) = scope.expect(MS).unwrap();
        let network = scope.clone();
        let network = thread::spawn(move || network.deliver(number, 7));
        let failed = scope.fail_all("closed");
        let ended = ending(&mut reply);
        match network.join().unwrap() {
            Ok(()) => assert!(failed == 0 && [None, Some(Ok(7))].contains(&ended)),
            Err(late) => assert!(late.is_late() && failed == 1 && ended.is_some()),
        }
        assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
    });
}

/// A peer that guesses the number of a request is delivered to it or refused, and the request goes
/// on. No fault fits: a request that its parker holds is looked at and left under one lock.
#[test]
fn guessed_reply_against_expect() {
    check(&[], || {
        let (_timer, waits, scope) = scope();
        let network = scope.clone();
        let network = thread::spawn(move || network.deliver(1, 6).is_ok());
        let (number, mut reply) = scope.expect(MS).unwrap();
        let guessed = network.join().unwrap();
        assert_eq!(scope.deliver(number, 7).is_ok(), !guessed);
        assert_eq!(ending(&mut reply), Some(Ok(if guessed { 6 } else { 7 })));
        assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
    });
}
