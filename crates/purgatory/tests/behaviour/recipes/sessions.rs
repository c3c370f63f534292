//! Sessions in every order.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

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
fn without_a_heartbeat_a_member_is_gone_after_thirty_seconds_and_told_once() {
    let (timer, sessions, reports) = sessions();
    let alice = sessions.join("alice").unwrap();
    timer.advance(30 * SECOND - MS);
    told(&reports, &[]);
    timer.advance(MS);
    told(&reports, &[("alice", alice.number)]);
    assert!(!sessions.heartbeat(&alice)); // too late
    assert!(!sessions.leave(alice));
    timer.advance(300 * SECOND);
    told(&reports, &[]);
    super::nothing_is_left(&sessions.of);
}

#[test]
fn a_heartbeat_counts_from_when_it_comes_and_twice_does_no_harm() {
    let (timer, sessions, reports) = sessions();
    let alice = sessions.join("alice").unwrap();
    assert!(sessions.heartbeat(&alice)); // at once
    for _ in 0..100 {
        timer.advance(30 * SECOND - MS);
        assert!(sessions.heartbeat(&alice) && sessions.heartbeat(&alice));
    }
    timer.advance(30 * SECOND - MS);
    told(&reports, &[]);
    timer.advance(MS);
    told(&reports, &[("alice", alice.number)]);
}

#[test]
fn a_member_that_leaves_is_not_reported() {
    let (timer, sessions, reports) = sessions();
    let [alice, bob] = ["alice", "bob"].map(|member| sessions.join(member).unwrap());
    assert!(sessions.leave(alice));
    assert_eq!(sessions.of.cancel_for_key(&"bob", "logged out"), 1);
    assert!(!sessions.heartbeat(&bob));
    timer.advance(60 * SECOND);
    told(&reports, &[]);
    super::nothing_is_left(&sessions.of);
}

/// What the old connection still does is its session's alone.
#[test]
fn a_member_that_joins_anew_has_one_session_the_new() {
    let (timer, sessions, reports) = sessions();
    let old = sessions.join("alice").unwrap();
    timer.advance(20 * SECOND);
    let new = sessions.join("alice").unwrap();
    assert_eq!(sessions.of.waiters(&"alice"), 1);
    assert!(!sessions.heartbeat(&old));
    assert!(!sessions.leave(old));
    timer.advance(30 * SECOND - MS);
    told(&reports, &[]);
    assert!(sessions.heartbeat(&new));
    timer.advance(30 * SECOND);
    told(&reports, &[("alice", new.number)]);
}

/// It had expired before; its number says that it is not the new one that has gone.
#[test]
fn a_report_that_is_late_names_the_old_session() {
    let (timer, of, later) = by_hand_and_late();
    let (sessions, reports) = over(of);
    let old = sessions.join("alice").unwrap();
    timer.advance(30 * SECOND);
    let new = sessions.join("alice").unwrap();
    later.run();
    told(&reports, &[("alice", old.number)]);
    assert!(old.number < new.number && sessions.heartbeat(&new));
    assert_eq!(sessions.of.len(), 1);
}

#[test]
fn who_watches_may_have_gone() {
    let (timer, sessions, reports) = sessions();
    drop(reports);
    sessions.join("alice").unwrap();
    timer.advance(30 * SECOND);
    super::nothing_is_left(&sessions.of);
}

#[test]
fn a_shutdown_reports_nobody_and_lets_nobody_join() {
    let (timer, sessions, reports) = sessions();
    let alice = sessions.join("alice").unwrap();
    sessions.of.shutdown(SECOND);
    assert!(!sessions.heartbeat(&alice) && sessions.join("bob").is_none());
    timer.advance(60 * SECOND);
    told(&reports, &[]);
    super::nothing_is_left(&sessions.of);
}

/// A heartbeat that races with the end of the time: either it was in time, or the member is told
/// gone.
#[test]
fn a_heartbeat_is_in_time_or_the_member_is_reported() {
    let (timer, sessions, reports) = sessions();
    for round in 0..500 {
        let alice = sessions.join("alice").unwrap();
        timer.advance(29 * SECOND);
        let in_time = thread::scope(|scope| {
            let expires = scope.spawn(|| timer.advance(SECOND));
            let in_time = scope.spawn(|| sessions.heartbeat(&alice)).join().unwrap();
            expires.join().unwrap();
            in_time
        });
        assert_eq!((sessions.of.len() == 1, reports.try_recv().is_err()), (in_time, in_time));
        assert!(!in_time || sessions.leave(alice), "round {round}");
    }
    super::nothing_is_left(&sessions.of);
}

/// Each session that began ends once: reported, left, or by another that began for its member.
#[test]
fn of_many_that_join_at_once_each_session_ends_once() {
    const EACH: usize = 500;
    let (timer, sessions, reports) = sessions();
    let (left, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for at in 0..EACH {
                    match sessions.join("alice") {
                        Some(session) if at % 3 == 0 => {
                            left.fetch_add(u64::from(sessions.leave(session)), SeqCst);
                        }
                        Some(session) => _ = sessions.heartbeat(&session),
                        None => _ = refused.fetch_add(1, SeqCst),
                    }
                }
            });
        }
        scope.spawn(|| (0..10).for_each(|_| timer.advance(SECOND)));
    });
    let parked = sessions.of.len();
    assert!(parked <= 3, "one for each thread at most: {parked}");
    timer.advance(30 * SECOND);
    let mut numbers: Vec<_> = reports.try_iter().map(|(_, number)| number).collect();
    let reported = numbers.len() as u64;
    numbers.sort_unstable();
    numbers.dedup();
    let stats = sessions.of.stats();
    assert_eq!((reported, numbers.len() as u64), (stats.expired, stats.expired));
    assert_eq!(stats.expired + stats.cancelled, 3 * EACH as u64);
    assert!(left.load(SeqCst) + refused.load(SeqCst) <= stats.cancelled);
    super::nothing_is_left(&sessions.of);
}
