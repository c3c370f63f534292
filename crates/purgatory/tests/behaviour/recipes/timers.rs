//! Deadlines that move, and events that wait for an unlock: debounced saves, sessions, accounts.

use std::sync::{
    TryLockError,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use purgatory::when;

use super::{
    guide::{debounce::Document, raise_after_unlock::Accounts, sessions::Sessions},
    *,
};

struct Editor {
    notes: Document,
    disk: mpsc::Sender<String>,
    saved: mpsc::Receiver<String>,
}

impl Editor {
    fn over(saves: Purgatory<&'static str>) -> Editor {
        let (disk, saved) = mpsc::channel();
        let notes = Document { name: "notes", text: Default::default(), saves, pending: None };
        Editor { notes, disk, saved }
    }

    fn edit(&mut self, text: &str) -> bool {
        let disk = self.disk.clone();
        self.notes.edit(text, move |text| drop(disk.send(text)))
    }
}

#[test]
fn edits_are_saved_once_when_quiet_and_at_shutdown() {
    let (timer, saves) = by_hand();
    let mut editor = Editor::over(saves.clone());
    for text in ["a", "ab", "abc"] {
        assert!(editor.edit(text));
        timer.advance(2 * SECOND - MS);
    }
    told::<_, &str>(&editor.saved, &[]);
    timer.advance(MS);
    told(&editor.saved, &["abc"]);
    editor.edit("discarded");
    assert!(editor.notes.discard() && !editor.notes.discard());
    timer.advance(MINUTE);
    told::<_, &str>(&editor.saved, &[]);
    editor.edit("abcd");
    timer.advance(2 * SECOND);
    told(&editor.saved, &["abcd"]);
    editor.edit("abcde");
    let Editor { disk, saved, .. } = editor; // is closed
    timer.advance(2 * SECOND);
    told(&saved, &["abcde"]);
    let mut editor = Editor { disk, saved, ..Editor::over(saves.clone()) };
    editor.edit("b");
    saves.shutdown(SECOND);
    assert!(!editor.edit("bc"));
    told(&editor.saved, &["b"]);
    saves.nothing_is_left();
}

/// The save is on its way to the executor as the edit comes.
#[test]
fn an_edit_behind_an_expired_save_is_not_lost() {
    let (timer, saves, later) = by_hand_and_late();
    let mut editor = Editor::over(saves);
    editor.edit("a");
    timer.advance(2 * SECOND);
    editor.edit("ab");
    for _ in 0..2 {
        later.run();
        told(&editor.saved, &["ab"]); // the late one, which reads the newest text; then the next
        timer.advance(2 * SECOND);
    }
    editor.notes.saves.nothing_is_left();
}

type Reports = mpsc::Receiver<(&'static str, u64)>;

fn sessions() -> (ManualTimer, Sessions, Reports, Later) {
    let ((gone, reports), (timer, of, later)) = (mpsc::channel(), by_hand_and_late());
    (timer, Sessions { of, joined: AtomicU64::new(0), gone }, reports, later)
}

#[test]
fn a_member_is_gone_30_s_after_its_last_heartbeat() {
    let (timer, sessions, reports, later) = sessions();
    let alice = sessions.join("alice").unwrap();
    for _ in 0..100 {
        timer.advance(30 * SECOND - MS);
        assert!(sessions.heartbeat(&alice) && sessions.heartbeat(&alice));
    }
    timer.advance(30 * SECOND - MS);
    assert_eq!(later.run(), 0);
    timer.advance(MS);
    later.run();
    told(&reports, &[("alice", alice.number)]);
    assert!(!sessions.heartbeat(&alice) && !sessions.leave(alice)); // too late
    timer.advance(300 * SECOND);
    assert_eq!(later.run(), 0);
    sessions.of.nothing_is_left();
}

#[test]
fn members_that_leave_are_not_reported() {
    let (timer, sessions, reports, later) = sessions();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| sessions.join(name).unwrap());
    assert!(sessions.leave(alice));
    assert_eq!(sessions.of.cancel_for_key(&"bob", "logged out"), 1);
    sessions.of.shutdown(Duration::ZERO);
    assert!(!sessions.heartbeat(&bob) && !sessions.heartbeat(&carol));
    assert!(sessions.join("dave").is_none());
    timer.advance(MINUTE);
    later.run();
    told::<_, (&str, u64)>(&reports, &[]);
    sessions.of.nothing_is_left();
}

/// What the old connection still does is its session's alone; and a report's number says which
/// session has gone.
#[test]
fn a_member_that_joins_anew_has_one_session() {
    let (timer, sessions, reports, later) = sessions();
    let first = sessions.join("alice").unwrap();
    timer.advance(20 * SECOND);
    let second = sessions.join("alice").unwrap();
    assert_eq!(sessions.of.waiters(&"alice"), 1);
    assert!(!sessions.heartbeat(&first) && !sessions.leave(first));
    timer.advance(30 * SECOND - MS);
    later.run();
    told::<_, (&str, u64)>(&reports, &[]);
    timer.advance(MS);
    let third = sessions.join("alice").unwrap();
    later.run();
    told(&reports, &[("alice", second.number)]);
    assert!(second.number < third.number && sessions.heartbeat(&third));
    drop(reports); // nothing needs to listen
    timer.advance(30 * SECOND);
    later.run();
    sessions.of.nothing_is_left();
}

fn accounts() -> (ManualTimer, Accounts) {
    let (timer, waits) = by_hand();
    (timer, Accounts { balances: Arc::default(), waits })
}

#[test]
fn a_wait_ends_when_its_account_is_funded() {
    every_order_and_early(|| {
        let (timer, accounts) = accounts();
        let (waits, accounts) = (accounts.waits.clone(), Arc::new(accounts));
        let pays = accounts.clone();
        let complete = move || pays.pay(&[(2, 9), (1, 20), (1, 30)]);
        Wait::new(timer, &waits, 30 * SECOND, move || accounts.funded(1, 50), complete)
    });
}

/// A check that found the balances locked would wait for its own thread. And when the second
/// amount overflows, the first is raised all the same.
#[test]
fn checks_find_the_lock_free_also_after_a_panic() {
    for (payments, checks) in [([(1, 1), (2, 0)], 2), ([(1, 1), (2, 1)], 1)] {
        let (_timer, accounts) = accounts();
        accounts.pay(&[(2, u64::MAX)]);
        let (balances, free) = (accounts.balances.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = free.clone();
        let check = move || {
            let is_free = !matches!(balances.try_lock(), Err(TryLockError::WouldBlock));
            counted.fetch_add(usize::from(is_free), SeqCst);
            false
        };
        accounts.waits.try_complete_else_watch(when(check, drop), &[1, 2], SECOND).unwrap();
        let before = free.load(SeqCst);
        let paid = thread::scope(|scope| scope.spawn(|| accounts.pay(&payments)).join());
        assert_eq!((paid.is_ok(), free.load(SeqCst) - before), (checks == 2, checks));
    }
}
