//! Deadlines that move, and keys signalled after an unlock: debounced saves, sessions, accounts.

use super::{
    guide::{debounce::Document, sessions::Sessions, signal_after_unlock::Accounts},
    *,
};

/// Creates a document that is saved.
fn notes(saves: &Purgatory<&'static str>) -> Document {
    Document {
        name: "notes",
        unsaved: Arc::default(),
        saves: saves.clone(),
        pending: None,
    }
}

#[test]
fn edits_are_saved_once_when_quiet_and_at_shutdown() {
    let (timer, saves) = by_hand();
    let (disk, saved) = mpsc::channel();
    let mut notes = notes(&saves);
    let edit = |notes: &mut Document, text| {
        let disk = disk.clone();
        notes.edit(text, move |text| disk.send(text).unwrap())
    };
    for text in ["ab", "abc"] {
        // An edit after a save parks another save; an edit before it does not.
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

/// The save has expired, and its callback waits for the executor.
#[test]
fn a_discarded_text_is_not_saved() {
    let (timer, saves, later) = manual_and_late();
    let (disk, saved) = mpsc::channel();
    let mut notes = notes(&saves);
    assert!(notes.edit("secret", move |text| disk.send(text).unwrap()));
    timer.advance(2 * SECOND);
    assert!(notes.discard());
    later.run();
    reported::<_, &str>(&saved, &[]);
}

/// The first save was due before the shutdown, and its callback waits for the executor.
#[test]
fn a_refused_text_stays_unless_a_due_save_takes_it() {
    let (timer, saves, later) = manual_and_late();
    let (disk, saved) = mpsc::channel();
    let mut notes = notes(&saves);
    let unsaved = notes.unsaved.clone();
    let mut edit = |text| {
        let disk = disk.clone();
        notes.edit(text, move |text| disk.send(text).unwrap())
    };
    assert!(edit("a"));
    timer.advance(2 * SECOND);
    saves.shutdown(Duration::ZERO);
    assert!(!edit("ab"));
    later.run();
    reported(&saved, &["ab"]);
    assert!(!edit("abc"));
    later.run();
    reported::<_, &str>(&saved, &[]);
    assert_eq!(unsaved.lock().unwrap().take().as_deref(), Some("abc"));
    nothing_is_left(&saves);
}

type Reports = mpsc::Receiver<(&'static str, u64)>;

fn sessions() -> (ManualTimer, Sessions, Reports, Later) {
    let (gone, reports) = mpsc::channel();
    let (timer, parked, later) = manual_and_late();
    let sessions = Sessions {
        members: Arc::default(),
        parked,
        gone,
    };
    (timer, sessions, reports, later)
}

/// Calls of the old connection affect only its own session, and a replaced session is not reported,
/// even if it had expired before.
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
    timer.advance(MS); // the second session expires, and its callback waits for the executor
    let third = sessions.join("alice").unwrap();
    later.run();
    reported::<_, (&str, u64)>(&reports, &[]);
    assert!(second.number < third.number);
    assert!(sessions.heartbeat(&third));
    timer.advance(30 * SECOND);
    later.run();
    reported(&reports, &[("alice", third.number)]);
    let last = sessions.join("alice").unwrap();
    drop(reports); // the receiver may be dropped
    timer.advance(30 * SECOND);
    later.run();
    assert!(!sessions.leave(last));
    nothing_is_left(&sessions.parked);
}

/// A member that is refused has no session, so it cannot leave or be reported.
#[test]
fn sessions_that_end_with_the_server_are_not_gone() {
    let (_timer, sessions, reports, later) = sessions();
    let alice = sessions.join("alice").unwrap();
    sessions.parked.shutdown(Duration::ZERO);
    later.run();
    assert!(sessions.join("bob").is_none());
    assert!(!sessions.leave(alice));
    reported::<_, (&str, u64)>(&reports, &[]);
    nothing_is_left(&sessions.parked);
}

/// The second join comes between the first one's steps, when its park reads the clock.
#[test]
fn a_member_that_joins_twice_at_once_has_one_session() {
    let still = ManualTimer::new().clock();
    let builder = SystemTimer::builder().clock(Acting(still));
    let timer = builder.inline().build().unwrap();
    let (gone, _reports) = mpsc::channel();
    let sessions = Arc::new(Sessions {
        members: Arc::default(),
        parked: Purgatory::on(&timer, "test").unwrap(),
        gone,
    });
    let (joins, joined) = mpsc::channel();
    let other = sessions.clone();
    at_next_read(move || {
        on_another_thread(|| joins.send(other.join("alice").unwrap()).unwrap());
    });
    let first = sessions.join("alice");
    let second = joined.try_recv().unwrap();
    assert_eq!(sessions.parked.waiters(&"alice"), 1);
    assert!(first.is_none());
    assert!(sessions.heartbeat(&second));
    assert!(sessions.leave(second));
    nothing_is_left(&sessions.parked);
}

/// A check that found the balances locked would wait for its own thread. When the second balance
/// overflows, the first account is still signalled, and its wait ends.
#[test]
fn early_return_signals_after_the_unlock() {
    for (payments, checks) in [([(1, 1), (2, 0)], 2), ([(1, 1), (2, 1)], 1)] {
        let accounts = Accounts {
            balances: Arc::default(),
            waits: by_hand().1,
        };
        accounts.pay(&[(2, u64::MAX)]).unwrap();
        let mut funded = accounts.funded(1, 1);
        let balances = accounts.balances.clone();
        let free = Arc::new(AtomicUsize::new(0));
        let counted = free.clone();
        let check = move || {
            let is_free = balances.try_lock().is_ok();
            counted.fetch_add(usize::from(is_free), SeqCst);
            false
        };
        accounts
            .waits
            .try_complete_else_watch(when(check, drop), &[1, 2], SECOND)
            .unwrap();
        let before = free.load(SeqCst);
        assert_eq!(accounts.pay(&payments).is_ok(), checks == 2);
        assert_eq!(free.load(SeqCst) - before, checks);
        assert_eq!(got(&mut funded), 1);
    }
}
