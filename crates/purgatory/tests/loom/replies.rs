//! Replies against what may end them.

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    task::{Context, Poll, Waker},
};

use loom::thread;
use purgatory::{
    CancelReason, Purgatory, RefusedReason, Replies, WaitError, WaitFuture, failpoints::Failpoint,
};
use timer_core::ManualTimer;

use super::{MS, check};

/// Replies under a hand-turned clock.
fn replies() -> (ManualTimer, Replies<u8, u8>) {
    let timer = ManualTimer::new();
    let replies = Replies::from(Purgatory::builder("loom").timer(&timer).build().unwrap());
    (timer, replies)
}

/// How a reply ended, if it has.
fn ending(reply: &mut WaitFuture<u8>) -> Option<Result<u8, WaitError>> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(reply).poll(&mut context) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    }
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
        assert_eq!((ending(&mut reply), replies.purgatory().len()), (Some(expected), 0));
        assert!(replies.expect(1, MS).is_ok());
    });
}

/// A value is handed back, or the hook of the future that is dropped has it.
#[test]
fn reply_against_its_client_that_goes() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, replies) = replies();
        let hooked = std::sync::Arc::new(AtomicUsize::new(0));
        let counts = hooked.clone();
        let hook = move |_| _ = counts.fetch_add(1, SeqCst);
        let reply = replies.expect_or(1, MS, hook).unwrap();
        let network = replies.clone();
        let network = thread::spawn(move || usize::from(network.deliver(&1, 7).is_ok()));
        drop(reply);
        assert_eq!(network.join().unwrap(), hooked.load(SeqCst), "a value was lost, or doubled");
        assert_eq!((replies.purgatory().len(), replies.deliver(&1, 8)), (0, Err(8)));
    });
}

/// Of two that expect a reply under one key one is told that the key is taken, and no value is
/// lost.
#[test]
fn one_key_expected_twice() {
    check(&[Failpoint::TakenKeyParked], || {
        let (_timer, replies) = replies();
        let other = replies.clone();
        let other = thread::spawn(move || other.expect(1, MS).ok());
        let reply = replies.expect(1, MS).ok();
        let ends = [reply, other.join().unwrap()];
        assert_eq!((replies.deliver(&1, 7), replies.deliver(&1, 8)), (Ok(()), Err(8)));
        let told: Vec<_> = ends.into_iter().flatten().map(|mut reply| ending(&mut reply)).collect();
        assert_eq!(told, [Some(Ok(7))]);
    });
}

/// All fail at once, though one room is emptied after the other (that of 2 first): what is expected
/// after one that did not fail does not fail either.
#[test]
fn all_fail_against_expecting_two() {
    check(&[Failpoint::FailsWhatCameAfter], || {
        let (_timer, replies) = replies();
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
    check(&[Failpoint::ShutdownClosesNoRoom], || {
        let (_timer, replies) = replies();
        let network = replies.clone();
        let network = thread::spawn(move || network.purgatory().shutdown(Duration::ZERO));
        let mut reply = replies.expect(1, MS).unwrap();
        network.join().unwrap();
        let closed = WaitError::Refused(RefusedReason::Closed);
        let ended = ending(&mut reply).unwrap().unwrap_err();
        assert!(ended == closed || ended == WaitError::Cancelled(CancelReason::Shutdown));
    });
}
