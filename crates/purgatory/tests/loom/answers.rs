//! Polls of futures whose answer stays in its entry, against everything that answers them.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use loom::thread;
use purgatory::{CancelReason, Reason, Replies, WaitError, WaitFuture};
use timer_core::ManualTimer;

use super::{
    MS, beside, check, ending, failpoints::Failpoint, replies::replies, watermarks::watermarks,
};

/// A task that counts its wake-ups.
#[derive(Default)]
pub(super) struct Task(AtomicUsize);

impl Task {
    pub(super) fn woken(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

pub(super) type Answer<T> = Result<T, WaitError>;

/// Polls a future by a new task.
pub(super) fn poll<T>(future: &mut WaitFuture<T>) -> (Arc<Task>, Poll<Answer<T>>) {
    let task = Arc::new(Task::default());
    let waker = Waker::from(task.clone());
    let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
    (task, polled)
}

/// Asserts that a task that was told to wait was woken once, and takes the answer.
#[track_caller]
pub(super) fn answer<T>(
    future: &mut WaitFuture<T>,
    polled: (Arc<Task>, Poll<Answer<T>>),
) -> Answer<T> {
    let (task, polled) = polled;
    match polled {
        Poll::Ready(answer) => answer,
        Poll::Pending => {
            assert_eq!(task.0.load(SeqCst), 1, "it sleeps on");
            ending(future).expect("it was woken for its answer")
        }
    }
}

/// Ends a reply. It may drop the last handle.
type End = fn(&ManualTimer, &mut Option<Replies<u8, u8>>);

const fn cancelled(reason: CancelReason) -> Answer<u8> {
    Err(WaitError::Cancelled(reason))
}

static ENDS: [(End, Answer<u8>); 4] = [
    (deliver, Ok(7)),
    (|timer, _| timer.advance(MS), Err(WaitError::Expired)),
    (
        fail_all,
        cancelled(CancelReason::Requested(Reason::text("closed"))),
    ),
    (|_, last| *last = None, cancelled(CancelReason::Dropped)),
];

fn deliver(_: &ManualTimer, replies: &mut Option<Replies<u8, u8>>) {
    assert_eq!(replies.as_ref().unwrap().deliver(&1, 7), Ok(()));
}

fn fail_all(_: &ManualTimer, replies: &mut Option<Replies<u8, u8>>) {
    assert_eq!(replies.as_ref().unwrap().fail_all("closed"), 1);
}

/// A reply ends, in each way, while its task polls: the task gets the answer or is woken for it.
#[test]
fn end_of_reply_against_poll() {
    for (end, expected) in &ENDS {
        check(&[Failpoint::PollLeavesNoWaker], move || {
            let (timer, replies) = replies();
            let mut reply = replies.expect(1, MS).unwrap();
            let mut handle = Some(replies);
            let ends = thread::spawn(move || {
                end(&timer, &mut handle);
                (timer, handle)
            });
            let polled = poll(&mut reply);
            let (_timer, handle) = ends.join().unwrap();
            assert_eq!(answer(&mut reply, polled), *expected);
            assert!(handle.is_none_or(|replies| replies.waits().is_empty()));
        });
    }
}

/// Two tasks poll one after the other: the one that polled last is woken.
#[test]
fn two_wakers_against_event() {
    check(&[Failpoint::FirstWakerStays], || {
        let (_timer, replies) = replies();
        let mut reply = replies.expect(1, MS).unwrap();
        assert!(poll(&mut reply).1.is_pending());
        let network = beside(&replies, |network| network.deliver(&1, 7));
        let polled = poll(&mut reply);
        assert_eq!(network.join().unwrap(), Ok(()));
        assert_eq!(answer(&mut reply, polled), Ok(7));
    });
}

/// A value comes while the purgatory shuts down: it is delivered, or its request had ended.
#[test]
fn answer_against_shutdown() {
    check(&[Failpoint::HandsOverInTwoHolds], || {
        let (_timer, replies) = replies();
        let mut reply = replies.expect(1, MS).unwrap();
        let network = beside(&replies, |network| network.deliver(&1, 7));
        let left = replies.waits().shutdown(Duration::ZERO);
        let polled = poll(&mut reply);
        let expected = if network.join().unwrap().is_ok() {
            Ok(7)
        } else {
            Err(WaitError::Cancelled(CancelReason::Shutdown))
        };
        assert_eq!(answer(&mut reply, polled), expected);
        assert!(left == 0 && replies.waits().is_empty());
        let stats = replies.waits().stats();
        assert_eq!(stats.completed + stats.cancelled, 1);
    });
}

/// A future is dropped while its value comes: the wait ends once, completed or cancelled.
#[test]
fn advance_against_future_drop() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, watermarks) = watermarks();
        let wait = watermarks.wait_for(&1, 5, MS);
        let never = watermarks.wait_for(&1, 9, MS);
        let leader = beside(&watermarks, |leader| leader.advance(&1, 7));
        drop((wait, never));
        let completed = leader.join().unwrap().unwrap() as u64;
        let waits = watermarks.waits();
        assert_eq!((waits.len(), waits.keys()), (0, 0));
        let stats = waits.stats();
        assert_eq!(stats.completed, completed);
        assert_eq!(stats.cancelled, 2 - completed);
    });
}
