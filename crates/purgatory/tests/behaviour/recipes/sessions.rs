//! Sessions: heartbeats in time and late, and members that join anew.

use std::sync::{atomic::AtomicU64, mpsc};

use purgatory::{BoxedOperation, Purgatory};
use timer_core::ManualTimer;

use super::{MS, SECOND, by_hand, by_hand_and_late, guide::sessions::Sessions};

type Reports = mpsc::Receiver<(&'static str, u64)>;

fn over(of: Purgatory<&'static str, BoxedOperation>) -> (Sessions, Reports) {
    let (gone, reports) = mpsc::channel();
    (Sessions { of, joined: AtomicU64::new(0), gone }, reports)
}

fn sessions() -> (ManualTimer, Sessions, Reports) {
    let (timer, of) = by_hand();
    let (sessions, reports) = over(of);
    (timer, sessions, reports)
}

#[track_caller]
fn told(reports: &Reports, expected: &[(&'static str, u64)]) {
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_member_is_gone_30_s_after_its_last_heartbeat() {
    let (timer, sessions, reports) = sessions();
    let alice = sessions.join("alice").unwrap();
    for _ in 0..100 {
        timer.advance(30 * SECOND - MS);
        assert!(sessions.heartbeat(&alice) && sessions.heartbeat(&alice));
    }
    timer.advance(30 * SECOND - MS);
    told(&reports, &[]);
    timer.advance(MS);
    told(&reports, &[("alice", alice.number)]);
    assert!(!sessions.heartbeat(&alice) && !sessions.leave(alice)); // too late
    timer.advance(300 * SECOND);
    told(&reports, &[]);
    super::nothing_is_left(&sessions.of);
}

#[test]
fn members_that_leave_are_not_reported() {
    let (timer, sessions, reports) = sessions();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| sessions.join(name).unwrap());
    assert!(sessions.leave(alice));
    assert_eq!(sessions.of.cancel_for_key(&"bob", "logged out"), 1);
    sessions.of.shutdown(SECOND);
    assert!(!sessions.heartbeat(&bob) && !sessions.heartbeat(&carol));
    assert!(sessions.join("dave").is_none());
    timer.advance(60 * SECOND);
    told(&reports, &[]);
    super::nothing_is_left(&sessions.of);
}

/// What the old connection still does is its session's alone.
#[test]
fn a_member_that_joins_anew_has_one_session() {
    let (timer, sessions, reports) = sessions();
    let old = sessions.join("alice").unwrap();
    timer.advance(20 * SECOND);
    let new = sessions.join("alice").unwrap();
    assert_eq!(sessions.of.waiters(&"alice"), 1);
    assert!(!sessions.heartbeat(&old) && !sessions.leave(old));
    timer.advance(30 * SECOND - MS);
    told(&reports, &[]);
    timer.advance(MS);
    told(&reports, &[("alice", new.number)]);
}

/// Its number says that it is not the new session that has gone. And nothing needs to listen.
#[test]
fn a_late_report_names_the_old_session() {
    let (timer, of, later) = by_hand_and_late();
    let (sessions, reports) = over(of);
    let old = sessions.join("alice").unwrap();
    timer.advance(30 * SECOND);
    let new = sessions.join("alice").unwrap();
    later.run();
    told(&reports, &[("alice", old.number)]);
    assert!(old.number < new.number && sessions.heartbeat(&new));
    drop(reports);
    timer.advance(30 * SECOND);
    later.run();
    super::nothing_is_left(&sessions.of);
}
