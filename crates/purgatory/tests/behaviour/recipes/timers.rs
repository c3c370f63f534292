//! Deadlines that move, and keys signalled after an unlock: debounced saves, sessions, accounts.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
};

use purgatory::when;

use super::{
    guide::{debounce::Document, sessions::Sessions, signal_after_unlock::Accounts},
    *,
};

#[test]
fn edits_are_saved_once_when_quiet_and_at_shutdown() {
    let (timer, saves) = by_hand();
    let (disk, saved) = mpsc::channel();
    let mut notes = Document {
        name: "notes",
        text: Arc::default(),
        saves: saves.clone(),
        pending: None,
    };
    let edit = |notes: &mut Document, text| {
        let disk = disk.clone();
        notes.edit(text, move |text| disk.send(text).unwrap())
    };
    for text in ["ab", "abc"] {
        // An edit after a save parks another, one before it does not.
        assert!(edit(&mut notes, "a"));
        timer.advance(2 * SECOND - MS);
        assert!(edit(&mut notes, text));
        timer.advance(2 * SECOND);
        reported(&saved, &[text]);
    }
    assert!(edit(&mut notes, "discarded") && notes.discard() && !notes.discard());
    timer.advance(MINUTE);
    assert!(saved.try_recv().is_err());
    assert!(edit(&mut notes, "b"));
    saves.shutdown(SECOND);
    assert!(!edit(&mut notes, "bc"));
    reported(&saved, &["b"]);
    nothing_is_left(&saves);
}

type Reports = mpsc::Receiver<(&'static str, u64)>;

fn sessions() -> (ManualTimer, Sessions, Reports, Later) {
    let (gone, reports) = mpsc::channel();
    let (timer, parked, later) = manual_and_late();
    let sessions = Sessions {
        parked,
        joined: AtomicU64::new(0),
        gone,
    };
    (timer, sessions, reports, later)
}

/// Calls of the old connection concern its session alone; and a report's number says which session
/// has gone.
#[test]
fn a_member_that_joins_anew_has_one_session() {
    let (timer, sessions, reports, later) = sessions();
    let first = sessions.join("alice").unwrap();
    timer.advance(20 * SECOND);
    let second = sessions.join("alice").unwrap();
    assert_eq!(sessions.parked.waiters(&"alice"), 1);
    assert!(!sessions.heartbeat(&first) && !sessions.leave(first));
    timer.advance(30 * SECOND - MS);
    later.run();
    reported::<_, (&str, u64)>(&reports, &[]);
    timer.advance(MS);
    let third = sessions.join("alice").unwrap();
    later.run();
    reported(&reports, &[("alice", second.number)]);
    assert!(second.number < third.number && sessions.heartbeat(&third));
    drop(reports); // the receiver may go
    timer.advance(30 * SECOND);
    later.run();
    nothing_is_left(&sessions.parked);
}

#[test]
fn a_wait_ends_when_its_account_is_funded() {
    let accounts = Accounts {
        balances: Arc::default(),
        waits: by_hand().1,
    };
    let mut funded = accounts.funded(1, 50);
    accounts.pay(&[(2, 90), (1, 49)]);
    assert!(poll(&mut funded).is_pending());
    accounts.pay(&[(1, 1)]);
    assert_eq!(got(&mut funded), 50);
    nothing_is_left(&accounts.waits);
}

/// A check that found the balances locked would wait for its own thread. When the second amount
/// overflows, the first account is signalled all the same.
#[test]
fn checks_find_the_lock_free_also_after_a_panic() {
    for (payments, checks) in [([(1, 1), (2, 0)], 2), ([(1, 1), (2, 1)], 1)] {
        let accounts = Accounts {
            balances: Arc::default(),
            waits: by_hand().1,
        };
        accounts.pay(&[(2, u64::MAX)]);
        let balances = accounts.balances.clone();
        let free = Arc::new(AtomicUsize::new(0));
        let counted = free.clone();
        let check = move || {
            let is_free = !matches!(balances.try_lock(), Err(TryLockError::WouldBlock));
            counted.fetch_add(usize::from(is_free), SeqCst);
            false
        };
        accounts
            .waits
            .try_complete_else_watch(when(check, drop), &[1, 2], SECOND)
            .unwrap();
        let before = free.load(SeqCst);
        let paid = on_another_thread(|| catch_unwind(AssertUnwindSafe(|| accounts.pay(&payments))));
        assert_eq!(paid.is_ok(), checks == 2);
        assert_eq!(free.load(SeqCst) - before, checks);
    }
}
