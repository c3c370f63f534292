//! Keys whose `Clone` or `Eq` panics: the call unwinds, and leaves nothing half done. Those whose
//! `Drop` panics harm no other operation.
#![cfg(not(loom))]

use std::panic::resume_unwind;

use crate::support::*;

/// A key that cannot be stored.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Uncloneable(u32);

impl Clone for Uncloneable {
    fn clone(&self) -> Self {
        resume_unwind(Box::new("cloned")) // without a message
    }
}

/// Calls its purgatory as it is dropped.
struct LooksBack {
    waits: Purgatory<Uncloneable, LooksBack>,
    seen: mpsc::Sender<usize>,
}

impl DelayedOperation for LooksBack {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, _: Outcome) {}
}

impl Drop for LooksBack {
    fn drop(&mut self) {
        self.seen.send(self.waits.len()).unwrap();
    }
}

/// The operation of a call that unwinds is dropped with nothing locked.
#[test]
fn operation_whose_key_panics_is_dropped_unlocked() {
    let keys = || [Uncloneable(1), Uncloneable(2)];
    type Way = fn(&[Uncloneable; 2]) -> Watches<'_, Uncloneable>;

    let ways: [Way; 2] = [|keys| Watches::keys(&keys[..1]), |keys| Watches::keys(keys)];
    for (number, way) in ways.into_iter().enumerate() {
        let (_timer, waits) = by_hand();
        let (seen, looks) = mpsc::channel();
        let own = waits.clone();
        let parker = thread::spawn(move || {
            let operation = LooksBack {
                waits: own.clone(),
                seen,
            };
            let keys = keys();
            let park = || own.try_complete_else_watch(operation, way(&keys), NEVER);
            assert!(catch_unwind(AssertUnwindSafe(park)).is_err());
        });
        assert_eq!(looks.recv_timeout(MINUTE), Ok(0), "way {number}");
        parker.join().unwrap();
        assert_empty(&waits);
        assert_eq!(waits.stats().checks, 1, "it was checked before");
    }
}

/// So is the callback of a wait for a value.
#[test]
fn callback_whose_key_panics_is_dropped_unlocked() {
    let (_timer, waits, values) = watermarks_with(|builder| builder.shards(1));
    let (seen, looks) = mpsc::channel();
    let own = values.clone();
    let parker = thread::spawn(move || {
        let looks_back = LooksBackAt(own.clone(), seen);
        let then = move |_| drop(looks_back);
        let park = || own.park(&Uncloneable(1), 1, NEVER, then);
        assert!(catch_unwind(AssertUnwindSafe(park)).is_err());
    });
    assert_eq!(looks.recv_timeout(Duration::from_secs(10)), Ok(None));
    parker.join().unwrap();
    assert_nothing_waits(&waits);
}

/// Looks into its values as it is dropped.
struct LooksBackAt(Watermarks<Uncloneable>, mpsc::Sender<Option<u64>>);

impl Drop for LooksBackAt {
    fn drop(&mut self) {
        self.1.send(self.0.value(&Uncloneable(1))).unwrap();
    }
}

thread_local! {
    /// Called by the comparisons of this thread's keys, until one panics as it returns true.
    static COMPARED: RefCell<Option<Box<dyn FnMut() -> bool>>> = const { RefCell::new(None) };
}

/// A key whose `Eq` calls out, and may panic.
#[allow(
    clippy::derived_hash_with_manual_eq,
    reason = "equal keys have one hash"
)]
#[derive(Clone, Debug, Eq, Hash)]
struct Comparable(u32);

impl PartialEq for Comparable {
    fn eq(&self, other: &Self) -> bool {
        if let Some(mut compared) = COMPARED.take() {
            if compared() {
                resume_unwind(Box::new("compared")); // without a message
            }
            COMPARED.set(Some(compared));
        }
        self.0 == other.0
    }
}

/// Lets keys be compared this many times; the next one panics.
fn panic_after(mut comparisons: usize) {
    COMPARED.set(Some(Box::new(move || {
        let is_over = comparisons == 0;
        comparisons = comparisons.saturating_sub(1);
        is_over
    })));
}

/// Runs `work` while keys can be compared this many times.
fn with_comparisons<T>(count: usize, work: impl FnOnce() -> T) -> thread::Result<T> {
    panic_after(count);
    let done = catch_unwind(AssertUnwindSafe(work));
    COMPARED.set(None);
    done
}

/// The entry is there by then, with one watch of two and its place.
#[test]
fn a_park_whose_last_key_panics_leaves_nothing() {
    let (_timer, waits): (_, Purgatory<Comparable>) = by_hand_with(|builder| builder.max_parked(2));
    waits.park(never(), &[Comparable(1)], NEVER);
    let keys = [3, 2, 1].map(Comparable);
    let park = || waits.try_complete_else_watch(never(), &keys, NEVER);
    assert!(with_comparisons(0, park).is_err());
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (1, 1, 1));
    waits.park(never(), &[Comparable(2)], NEVER);
    assert_eq!(waits.stats().checks, 3);
}

/// It runs behind the callback, inside a call that goes on.
#[test]
fn panic_of_key_signalled_in_callback_is_counted() {
    for several in [false, true] {
        let (_timer, waits): (_, Purgatory<Comparable>) = by_hand();
        let monitor = Monitor::over(waits.clone(), ());
        let inside = monitor.clone();
        let signals = move |_| {
            match several {
                true => inside.update_keys(|()| ((), vec![Comparable(1), Comparable(2)])),
                false => inside.update_key(&Comparable(1), |()| ()),
            }
            panic_after(0);
        };
        waits.park(never(), &[Comparable(1)], NEVER);
        let parked = waits.try_complete_else_watch(when(|| true, signals), &[Comparable(2)], NEVER);
        COMPARED.set(None);
        let left = (waits.len(), waits.stats().panics);
        assert_eq!(
            (parked.is_ok(), left),
            (true, (1, 1)),
            "several keys: {several}"
        );
    }
}

/// The shard is free by then: the value looks at the waits.
#[test]
fn a_reply_whose_key_panics_is_dropped_unlocked() {
    let timer = ManualTimer::new();
    let replies = Replies::<Comparable, OnDrop>::on(&timer, "test").unwrap();
    let reply = replies.expect(Comparable(1), NEVER).unwrap();
    let (seen, looks) = mpsc::channel();
    let inside = replies.clone();
    let network = thread::spawn(move || {
        let waits = inside.waits();
        let value = OnDrop::new(move || seen.send(waits.len()).unwrap());
        let delivered = with_comparisons(0, || inside.deliver(&Comparable(1), value).is_ok());
        assert!(delivered.is_err());
    });
    assert_eq!(looks.recv_timeout(MINUTE), Ok(1));
    network.join().unwrap();
    drop(reply);
}

/// More than leave their key under one lock hold.
const MANY: usize = 150;

/// The key is looked up once: what the value reaches is found again by the value.
#[test]
fn an_advance_that_has_begun_completes_all() {
    let (_timer, _, values) = watermarks();
    let key = Comparable(1);
    let mut waits: Vec<_> = (0..MANY).map(|_| values.wait_for(&key, 5, NEVER)).collect();
    let advanced = with_comparisons(1, || values.advance(&key, 5));
    assert_eq!(advanced.unwrap(), Ok(MANY));
    assert!(waits.iter_mut().all(|wait| over(wait) == Ok(5)));
}

/// The key is looked up once, whatever waits for it.
#[test]
fn removal_that_has_begun_cancels_all() {
    let (_timer, waits, values) = watermarks();
    let key = Comparable(1);
    let mut parked: Vec<_> = (0..MANY).map(|_| values.wait_for(&key, 5, NEVER)).collect();
    let removed = with_comparisons(1, || values.remove(&key));
    assert_eq!(removed.unwrap(), MANY);
    assert!(parked.iter_mut().all(|wait| over(wait).is_err()));
    assert_eq!((waits.len(), waits.keys()), (0, 0));
}

/// A key that panics as it is dropped, once it is armed, if its number is even and not 0.
type Undroppable = Numbered<Panics>;

#[derive(Clone, Debug)]
struct Panics(bool, Arc<AtomicBool>);

impl Drop for Panics {
    fn drop(&mut self) {
        if self.0 && self.1.load(SeqCst) {
            panic!("dropped");
        }
    }
}

fn undroppable(number: usize, armed: &Arc<AtomicBool>) -> Undroppable {
    let holds = Panics(number > 0 && number % 2 == 0, armed.clone());
    Undroppable { number, holds }
}

/// Whether it is their first key or another, and whatever ends them.
#[test]
fn a_key_that_panics_as_it_is_dropped_harms_no_other_operation() {
    type End = fn(&ManualTimer, &Purgatory<Undroppable>, &Undroppable);
    let ends: [End; 3] = [
        |timer, _, _| timer.advance(SECOND),
        |_, waits, shared| assert_eq!(waits.check_and_complete(shared), 3),
        |_, waits, _| assert_eq!(waits.cancel_all("over"), 3),
    ];
    for end in ends {
        for own_is_first in [true, false] {
            let (timer, waits) = by_hand_with(|builder| builder.max_parked(3));
            let armed = Arc::new(AtomicBool::new(false));
            let key = |number| undroppable(number, &armed);
            let (tell, told) = mpsc::channel();
            let holds = Arc::new(AtomicBool::new(false));
            for number in 1..=3 {
                let (tell, holds) = (tell.clone(), holds.clone());
                let check = move || holds.load(SeqCst);
                let operation = when(check, move |_| tell.send(number).unwrap());
                let mut keys = [key(number), key(0)];
                if !own_is_first {
                    keys.reverse();
                }
                waits.park(operation, &keys, SECOND);
            }
            holds.store(true, SeqCst);
            let shared = key(0);
            armed.store(true, SeqCst);
            end(&timer, &waits, &shared);
            armed.store(false, SeqCst);
            let mut ended: Vec<_> = told.try_iter().collect();
            ended.sort_unstable();
            assert_eq!((ended, waits.stats().panics), (vec![1, 2, 3], 1));
            assert_eq!((waits.watched(), waits.keys()), (0, 0));
            for number in 1..=3 {
                waits.park(never(), &[key(number)], NEVER); // there is a place
            }
            waits.cancel_all("over");
        }
    }
}

#[test]
fn a_key_that_panics_as_its_request_is_answered_is_contained() {
    let replies: Replies<Undroppable, u8> = Replies::on(&ManualTimer::new(), "test").unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let key = || undroppable(2, &armed);
    let mut reply = replies.expect(key(), MINUTE).unwrap();
    let asked = key();
    armed.store(true, SeqCst);
    assert_eq!(replies.deliver(&asked, 7), Ok(()));
    armed.store(false, SeqCst);
    assert_eq!(
        (over(&mut reply), replies.waits().stats().panics),
        (Ok(7), 1)
    );
}

/// Each of the keys that a future has.
#[test]
fn several_keys_that_panic_as_they_are_dropped_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_timer, waits, values) = watermarks_with(|builder| builder);
    let keys = [(undroppable(2, &panics), 1), (undroppable(2, &panics), 2)];
    let each = values.wait_for_each(&keys, NEVER);
    panics.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(each))).is_ok());
    panics.store(false, SeqCst);
    assert_nothing_waits(&waits);
    assert_eq!(
        waits.stats().panics,
        3,
        "those of the future, and of the table"
    );
}

/// The future that takes the failure has them, too.
#[test]
fn keys_of_a_failure_that_panic_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let (_timer, waits, values) = watermarks_with(|builder| builder);
    let key = undroppable(2, &panics);
    let mut each = values.wait_for_each(&[(key.clone(), 1), (key.clone(), 2)], NEVER);
    waits.cancel_all("over");
    panics.store(true, SeqCst);
    let taken = catch_unwind(AssertUnwindSafe(|| over(&mut each)));
    panics.store(false, SeqCst);
    assert!(taken.unwrap().is_err());
    assert_eq!(waits.stats().panics, 2);
}

/// As their set is replaced, as another is refused, and as the group is removed.
#[test]
fn members_that_panic_as_they_are_dropped_harm_no_other() {
    let panics = Arc::new(AtomicBool::new(false));
    let sets = ReplicaSets::on(&ManualTimer::new(), "test").unwrap();
    let members = [1, 2].map(|number| ((number, undroppable(2, &panics)), 7));
    let twice = [&members[..], &members[..]].concat();
    let set = |epoch, members: Vec<_>| sets.set(&1, epoch, members, 7, Rule::all());
    let (first, second, third) = (members.to_vec(), members.to_vec(), members.to_vec());
    assert_eq!(set(1, first), Ok(0));
    let leader = &members[0].0;
    let mut wait = sets.in_epoch(&1, 1).wait_for(9, NEVER);
    panics.store(true, SeqCst);
    let changed = catch_unwind(AssertUnwindSafe(|| {
        assert_eq!(set(1, second), Err(other_epoch(1, 1)));
        assert_eq!(set(2, twice), Err(WaitError::IsMember));
        assert_eq!(set(2, third), Ok(1));
        assert_eq!(sets.begin_epoch(&1, 3, leader, 8), Ok(0));
        assert_eq!(sets.remove(&1), 0);
    }));
    panics.store(false, SeqCst);
    assert!(changed.is_ok());
    assert!(over(&mut wait).is_err());
    assert_eq!(sets.watermark(&1), None);
}

/// The reason of a cancel that its parker was to carry out, and that panics as it is dropped.
#[test]
fn a_park_whose_last_key_panics_contains_the_reason_of_its_end() {
    for first in 2.. {
        let (_timer, waits): (_, Purgatory<Comparable>) =
            by_hand_with(|builder| builder.shards(64));
        waits.park(never(), &[Comparable(1)], NEVER);
        let cancels = waits.clone();
        let mut is_first = true;
        let cancel = move || {
            if !mem::take(&mut is_first) {
                return false;
            }
            let cancels = cancels.clone();
            let (send, is_left) = mpsc::channel();
            thread::spawn(move || {
                let reason = Reason::with("late", OnDrop::new(|| panic!("dropped")));
                let ended = cancels.cancel_for_key(&Comparable(first), reason);
                let _ = send.send(ended);
            });
            // For ever, if both keys lie in one shard, which is locked.
            is_left.recv_timeout(SECOND) == Ok(0)
        };
        COMPARED.set(Some(Box::new(cancel)));
        let keys = [first, 1].map(Comparable);
        let park = || waits.try_complete_else_watch(never(), &keys, NEVER);
        let parked = catch_unwind(AssertUnwindSafe(park));
        COMPARED.set(None);
        if parked.is_ok() {
            continue; // they do
        }
        assert_eq!((waits.len(), waits.stats().panics), (1, 1));
        return;
    }
}

/// Those that a signal inside a callback keeps until it is its turn.
#[test]
fn keys_that_panic_behind_a_signal_in_a_callback_are_contained() {
    let (_timer, waits): (_, Purgatory<Undroppable>) = by_hand();
    let panics = Arc::new(AtomicBool::new(false));
    let key = |number| undroppable(number, &panics);
    waits.park(never(), &[key(2)], NEVER);
    let (signals, signalled, armed) = (waits.clone(), key(2), panics.clone());
    let signal = move |_| {
        assert_eq!(signals.check_and_complete(&signalled), 0);
        drop(signalled);
        armed.store(true, SeqCst);
    };
    waits.park(when(|| false, signal), &[key(1)], NEVER);
    let called = || waits.complete_for_key(&key(1));
    assert_eq!(catch_unwind(AssertUnwindSafe(called)).unwrap(), 1);
    panics.store(false, SeqCst);
    assert_eq!((waits.len(), waits.stats().panics), (1, 1));
}

#[test]
fn keys_that_panic_behind_a_change_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let key = |number| undroppable(number, &panics);
    let changes = Monitor::on(&ManualTimer::new(), "test", ()).unwrap();
    let _waits = changes.wait(&[key(2), key(3)], NEVER, |()| false);
    let change = |by: &dyn Fn()| {
        let before = changes.purgatory().stats().panics;
        assert!(catch_unwind(AssertUnwindSafe(by)).is_ok());
        panics.store(false, SeqCst);
        changes.purgatory().stats().panics - before
    };
    let arm = || panics.store(true, SeqCst);
    assert_eq!(change(&|| changes.update(|()| arm())), 1);
    let keys = || vec![key(2), key(2)];
    let both = || changes.update_keys(|()| (arm(), keys()));
    assert_eq!(change(&both), 2);
    // Inside a callback they are left to its call, which has copies of its own, too.
    let (own, inside) = (panics.clone(), changes.clone());
    let keys = keys();
    let update = move |_| {
        inside.update_keys(|()| ((), keys));
        own.store(true, SeqCst);
    };
    changes
        .purgatory()
        .park(when(|| false, update), &[key(1)], NEVER);
    let nested = || assert_eq!(changes.purgatory().complete_for_key(&key(1)), 1);
    assert_eq!(change(&nested), 4);
}

/// Those of an operation that is shown, and of one whose event was missed.
#[test]
fn keys_that_panic_behind_a_look_are_contained() {
    let panics = Arc::new(AtomicBool::new(false));
    let keys = [2, 4].map(|number| undroppable(number, &panics));
    let arm = |panics: &Arc<AtomicBool>| {
        let panics = panics.clone();
        move || panics.store(true, SeqCst)
    };
    let (missed, shown) = (arm(&panics), arm(&panics));
    let (timer, waits): (_, Purgatory<_>) =
        by_hand_with(|builder| builder.check_at_expiry(move |_| missed()));
    waits.park(never(), &keys, NEVER); // it keeps the keys
    let look = || waits.for_each(|_, _, _| shown());
    assert!(catch_unwind(AssertUnwindSafe(look)).is_ok());
    panics.store(false, SeqCst);
    assert_eq!(waits.stats().panics, 2);
    let mut checks = 0..;
    let unasked = when(move || checks.next() > Some(0), drop);
    waits.park(unasked, &keys, SECOND);
    timer.advance(SECOND);
    panics.store(false, SeqCst);
    let stats = waits.stats();
    assert_eq!((stats.missed_events, stats.panics), (1, 4));
}
