//! Dropped futures, and waits that a call completes without a value.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use purgatory::{
    BoxedOperation, CancelReason, DelayedOperation, Outcome, Purgatory, WaitError, WaitFuture,
};

use timer_core::ManualTimer;

use super::{
    MS,
    answers::{answer, poll},
    assert_nothing_left, beside, by_hand, check, ending,
    failpoints::Failpoint,
};

/// Creates a wait that yields a value once the flag is set.
fn wait_for(purgatory: &Purgatory<u8>, flag: &Arc<AtomicBool>) -> WaitFuture<u8> {
    let seen = flag.clone();
    purgatory.wait(&[1], MS, move || seen.load(Relaxed).then_some(7))
}

/// Creates a purgatory, and a wait that yields a value once its flag is set.
fn waiting() -> (ManualTimer, Purgatory<u8>, Arc<AtomicBool>, WaitFuture<u8>) {
    let (timer, purgatory) = by_hand::<BoxedOperation>();
    let flag = Arc::new(AtomicBool::new(false));
    let wait = wait_for(&purgatory, &flag);
    (timer, purgatory, flag, wait)
}

/// A task polls while an event checks the condition: the answer comes before the poll or after it.
#[test]
fn poll_under_check() {
    let faults = [Failpoint::PollLeavesNoWaker, Failpoint::AnswerMissesPoll];
    check(&faults, || poll_against_event(false));
}

/// Polls a wait while its completing event comes, perhaps after another task has polled it.
fn poll_against_event(another_polled: bool) {
    let (_timer, purgatory, flag, mut wait) = waiting();
    if another_polled {
        assert!(poll(&mut wait).1.is_pending());
    }
    let event = beside(&purgatory, move |other| {
        flag.store(true, Relaxed);
        other.check_and_complete(&1);
    });
    let polled = poll(&mut wait);
    event.join().unwrap();
    assert_eq!(answer(&mut wait, polled), Ok(7));
    assert_nothing_left(&purgatory);
}

/// A second task polls while the event comes: that task is the one woken.
#[test]
fn second_task_polls_under_check() {
    check(&[Failpoint::FirstWakerStays], || poll_against_event(true));
}

/// A wait expires while it is polled: its answer is put in after its end, once its condition is
/// dropped.
#[test]
fn answer_of_ended_wait_against_poll() {
    check(&[Failpoint::AnswerMissesPoll], || {
        let (timer, purgatory, flag, mut wait) = waiting();
        let time = thread::spawn(move || timer.advance(MS));
        let polled = poll(&mut wait);
        time.join().unwrap();
        assert_eq!(answer(&mut wait, polled), Err(WaitError::Expired));
        assert_eq!(Arc::strong_count(&flag), 1, "its condition is there");
        assert_nothing_left(&purgatory);
    });
}

/// A wait expires while its future is dropped: it ends once, and nothing is left. No fault fits:
/// the answer finds the entry or does not.
#[test]
fn answer_of_ended_wait_against_future_drop() {
    check(&[], || {
        let (timer, purgatory, flag, wait) = waiting();
        let time = thread::spawn(move || timer.advance(MS));
        drop(wait);
        time.join().unwrap();
        assert_eq!(Arc::strong_count(&flag), 1, "its condition is there");
        assert_nothing_left(&purgatory);
        let stats = purgatory.stats();
        assert_eq!(stats.expired + stats.cancelled, 1);
    });
}

/// A wait is polled while a thread that has taken it out answers it.
#[test]
fn answer_of_taken_wait_against_poll() {
    check(&[Failpoint::AnswerMissesPoll], || {
        let (_timer, purgatory, flag, mut wait) = waiting();
        let id = wait.id().expect("the flag is not set");
        let taker = beside(&purgatory, move |other| {
            let taken = other.take(id).reached().expect("nothing checks it");
            flag.store(true, Relaxed);
            taken.on_complete(Outcome::Completed);
        });
        let polled = poll(&mut wait);
        taker.join().unwrap();
        assert_eq!(answer(&mut wait, polled), Ok(7));
        assert_nothing_left(&purgatory);
    });
}

/// An event ends the wait that it finds, and no wait that is registered later.
#[test]
fn event_against_next_event() {
    check(&[], || {
        let (_timer, purgatory) = by_hand::<BoxedOperation>();
        let event = beside(&purgatory, |other| other.check_and_complete(&1));
        let mut wait = purgatory.next_event(&[1], MS);
        let ended = event.join().unwrap();
        let (_, polled) = poll(&mut wait);
        assert_eq!(polled.is_ready(), ended == 1, "{ended} ended");
        drop(wait);
        assert_nothing_left(&purgatory);
    });
}

/// A future is dropped while an event checks its condition. If the condition yields a value, the
/// wait is over. Otherwise a drop that finds the check under way leaves the holder a request to end
/// the wait.
#[test]
fn future_drop_against_event() {
    let leaves = Failpoint::DroppedFutureLeavesOperation;
    for (faults, yields) in [
        (&[][..], true),
        (&[leaves, Failpoint::ExpiryLeavesNoRequest], false),
    ] {
        check(faults, move || {
            let (_timer, purgatory) = by_hand::<BoxedOperation>();
            let flag = Arc::new(AtomicBool::new(false));
            let value = std::sync::Arc::new(());
            let seen = flag.clone();
            let yielded = value.clone();
            let condition = move || seen.load(Relaxed).then(|| yielded.clone());
            let future = purgatory.wait(&[1], MS, condition);
            let event = beside(&purgatory, move |other| {
                flag.store(yields, Relaxed);
                other.check_and_complete(&1);
            });
            drop(future);
            event.join().unwrap();
            assert_nothing_left(&purgatory);
            assert_eq!(
                std::sync::Arc::strong_count(&value),
                1,
                "a value was not dropped"
            );
        });
    }
}

/// An event for one checks the condition of a wait whose future is being dropped: the event goes on
/// to the next wait, unless the first gets its value.
#[test]
fn future_drop_against_an_event_for_one() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, purgatory) = by_hand::<BoxedOperation>();
        let first = purgatory.wait(&[1], MS, || false);
        let mut second = purgatory.next_event(&[1], MS);
        let event = beside(&purgatory, |other| other.check_and_complete_one(&1));
        drop(first);
        assert!(event.join().unwrap());
        assert_eq!(ending(&mut second), Some(Ok(())));
        assert_nothing_left(&purgatory);
    });
}

/// A call completes a wait, by its id or its key, while an event checks its condition. The wait
/// ends in every interleaving: with its value if there is one, otherwise with an error.
#[test]
fn complete_of_a_wait_against_its_event() {
    for (by_key, has_value) in [(false, false), (false, true), (true, false), (true, true)] {
        let faults: &[Failpoint] = if has_value {
            &[]
        } else {
            &[Failpoint::ExpiryLeavesNoRequest]
        };
        check(faults, move || {
            let (_timer, purgatory) = by_hand::<BoxedOperation>();
            let flag = Arc::new(AtomicBool::new(false));
            let seen = flag.clone();
            let mut wait = purgatory.wait(&[1], MS, move || seen.load(Relaxed));
            let id = wait.id().expect("the flag is not set");
            flag.store(has_value, Relaxed);
            let completes = beside(&purgatory, move |other| {
                if by_key {
                    other.complete_for_key(&1);
                } else {
                    other.complete(id);
                }
            });
            purgatory.check_and_complete(&1);
            completes.join().unwrap();
            let ended = ending(&mut wait).expect("it has ended");
            assert_eq!(ended.is_ok(), has_value);
            assert_nothing_left(&purgatory);
        });
    }
}

/// The last handle is dropped while a task polls: the future outlives the purgatory.
#[test]
fn last_handle_drop_against_poll() {
    check(&[Failpoint::PollLeavesNoWaker], || {
        let (_timer, purgatory) = by_hand::<BoxedOperation>();
        let mut wait = purgatory.wait(&[1], MS, || None::<u8>);
        let last = thread::spawn(move || drop(purgatory));
        let polled = poll(&mut wait);
        last.join().unwrap();
        let dropped = Err(WaitError::Cancelled(CancelReason::Dropped));
        assert_eq!(answer(&mut wait, polled), dropped);
    });
}

/// A wait whose answer was taken has given its place back, so that another one can be parked.
#[test]
fn place_of_wait_against_its_answer() {
    check(&[Failpoint::AnsweredKeepsPlace], || {
        let timer = ManualTimer::new();
        let purgatory: Purgatory<u8> = Purgatory::builder("loom")
            .timer(&timer)
            .max_parked(1)
            .build()
            .unwrap();
        let flag = Arc::new(AtomicBool::new(false));
        let mut wait = wait_for(&purgatory, &flag);
        let event = beside(&purgatory, move |other| {
            flag.store(true, Relaxed);
            other.check_and_complete(&1);
        });
        if ending(&mut wait).is_some() {
            let next = purgatory.wait(&[1], MS, || false);
            assert!(next.id().is_some(), "there is no place");
        }
        event.join().unwrap();
    });
}
