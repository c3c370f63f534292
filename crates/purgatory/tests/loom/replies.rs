//! Replies against everything that may end them.

use std::{sync::Arc, time::Duration};

use loom::thread;
use purgatory::{CancelReason, RefusedReason, Replies, WaitError, sync::Failpoint};
use timer_core::ManualTimer;

use super::{MS, by_hand, check, ending};

/// Replies on a manual timer.
fn replies<V: Send + 'static>() -> (ManualTimer, Replies<u8, V>) {
    let (timer, purgatory) = by_hand();
    (timer, Replies::from(purgatory))
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
