//! Conditions that are true or false, without a value.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
};

use crate::support::{MS, by_hand, poll};
use purgatory::{BoxedOperation, CancelReason, Monitor, Purgatory, WaitError};

#[test]
fn true_ends_a_wait_and_false_waits_on() {
    let (timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    assert_eq!(poll(&mut waits.wait(&["k"], MS, || true)), Poll::Ready(Ok(())));
    let ready = Arc::new(AtomicBool::new(false));
    let seen = ready.clone();
    let mut wait = waits.wait(&["k"], 10 * MS, move || seen.load(SeqCst));
    let mut never = waits.wait(&["k"], 10 * MS, || false);
    assert_eq!(waits.check_and_complete(&"k"), 0);
    ready.store(true, SeqCst);
    assert_eq!(waits.check_and_complete(&"k"), 1);
    assert_eq!(poll(&mut wait), Poll::Ready(Ok(())));
    timer.advance(10 * MS);
    assert_eq!(poll(&mut never), Poll::Ready(Err(WaitError::Expired)));
}

/// A wait that is completed by a call still asks its condition for the value.
#[test]
fn false_yields_no_value_when_completed_by_a_call() {
    let (_timer, waits): (_, Purgatory<&str, BoxedOperation>) = by_hand();
    let mut wait = waits.wait(&["k"], 10 * MS, || false);
    assert_eq!(waits.complete_for_key(&"k"), 1);
    let without = CancelReason::Requested("completed without a value".into());
    assert_eq!(poll(&mut wait), Poll::Ready(Err(WaitError::Cancelled(without))));
}

#[test]
fn a_monitors_condition_may_be_true() {
    let (timer, waits) = by_hand();
    let jobs = Monitor::with(waits, 0);
    let mut any = jobs.wait(&["jobs"], 10 * MS, |jobs| *jobs > 0);
    let mut many = jobs.wait(&["jobs"], 10 * MS, |jobs| *jobs > 1);
    jobs.update(|jobs| *jobs += 1);
    assert_eq!(poll(&mut any), Poll::Ready(Ok(())));
    timer.advance(10 * MS);
    assert_eq!(poll(&mut many), Poll::Ready(Err(WaitError::Expired)));
}
