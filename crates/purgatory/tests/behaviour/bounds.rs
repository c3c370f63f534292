//! Bounds: of the waits, whose places come back; of the work in one lock hold.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    mpsc,
};

use purgatory::{
    BoxedOperation, Permits, Purgatory, ReplicaSets, Rule, WaitError, WaitFuture, Watermarks, when,
};
use timer_core::{Clock, ManualTimer, SystemTimer};

use crate::support::{Later, MS, SECOND, poll, watermarks, watermarks_with};

/// Ends what waits in a form.
type End<'a, F, W> = (&'a str, &'a dyn Fn(&ManualTimer, &F, &mut Option<W>));

/// Checks each way out of a form with one place: the place is free then, once. `park` returns
/// `None` at the bound. Callbacks and wake-ups at a deadline are late: a place does not wait for
/// them.
fn each_returns_its_place<F, W>(
    make: impl Fn(&ManualTimer, Later) -> F,
    park: impl Fn(&F) -> Option<W>,
    ends: &[End<'_, F, W>],
) {
    for (way, end) in ends {
        let timer = ManualTimer::new();
        let form = make(&timer, Later::default());
        let mut wait = park(&form);
        assert!(wait.is_some(), "{way}: it waits");
        assert!(park(&form).is_none(), "{way}: the place is taken");
        end(&timer, &form, &mut wait);
        let next = park(&form);
        assert!(next.is_some(), "{way}: the place is free");
        assert!(park(&form).is_none(), "{way}: it is one place");
    }
}

/// A future that waits; `None` if it was refused at the bound.
fn waits<T: std::fmt::Debug>(mut wait: WaitFuture<T>) -> Option<WaitFuture<T>> {
    match poll(&mut wait) {
        std::task::Poll::Pending => Some(wait),
        std::task::Poll::Ready(result) => {
            let full = WaitError::Full { limit: 1 };
            assert_eq!(result.unwrap_err(), full);
            None
        }
    }
}

#[test]
fn each_way_out_of_watermarks_returns_its_place() {
    type Form = Watermarks<u32>;
    let make = |timer: &ManualTimer, later| {
        let builder = Watermarks::builder("test").timer(timer).executor(later);
        let form: Form = builder.max_parked(1).build().unwrap();
        form
    };
    let future = |form: &Form| waits(form.wait_for(&1, 10, SECOND));
    let several = |form: &Form| waits(form.wait_for_each(&[(1, 10)], SECOND));
    let observer = |form: &Form| waits(form.wanted(&2, SECOND));
    let callback = |form: &Form| form.park(&1, 10, SECOND, drop).ok();
    /// The ends that callbacks have, too. Each leaves the key as it was.
    fn ends<W>() -> [End<'static, Form, W>; 9] {
        [
            ("advance", &|_, form, _| {
                assert_eq!(form.advance(&1, 10).unwrap(), 1);
                form.remove(&1);
            }),
            ("add", &|_, form, _| {
                assert_eq!(form.add(&1, 10).unwrap(), 1);
                form.remove(&1);
            }),
            ("epoch", &|_, form, _| {
                assert_eq!(form.begin_epoch(&1, 1, 0).unwrap(), 1)
            }),
            ("epoch that reaches it", &|_, form, _| {
                assert_eq!(form.begin_epoch(&1, 1, 10).unwrap(), 1);
                form.remove(&1);
            }),
            ("epoch that keeps it and reaches it", &|_, form, _| {
                assert_eq!(form.begin_epoch_and_keep(&1, 1, 10).unwrap(), 1);
                form.remove(&1);
            }),
            ("remove", &|_, form, _| assert_eq!(form.remove(&1), 1)),
            ("close", &|_, form, _| {
                assert_eq!(form.close(&1, "closed"), 1);
                form.remove(&1);
            }),
            ("cancel all", &|_, form, _| {
                assert_eq!(form.waits().cancel_all("gone"), 1)
            }),
            ("expiry", &|timer, _, _| timer.advance(SECOND)),
        ]
    }
    each_returns_its_place(make, future, &ends());
    each_returns_its_place(make, several, &ends());
    each_returns_its_place(make, callback, &ends());
    let left: [End<'_, Form, WaitFuture<u64>>; 2] = [
        ("drop", &|_, _, wait| *wait = None),
        ("cancel", &|_, form, wait| {
            _ = form
                .waits()
                .cancel(wait.as_ref().unwrap().id().unwrap(), "gone");
        }),
    ];
    each_returns_its_place(make, future, &left);
    each_returns_its_place(make, observer, &left);
    each_returns_its_place(make, several, &[("drop", &|_, _, wait| *wait = None)]);
}

#[test]
fn each_way_out_of_replica_sets_returns_its_place() {
    type Form = ReplicaSets<u32, u8>;
    let make = |timer: &ManualTimer, later| {
        let builder = ReplicaSets::builder("test").timer(timer).executor(later);
        let form: Form = builder.max_parked(1).build().unwrap();
        form
    };
    // All of two have to have it.
    let park = |form: &Form| {
        if form.epoch(&1).is_none() {
            form.set(&1, 1, [(0, 10), (1, 0)], Rule::all()).unwrap();
        }
        waits(form.wait_for(&1, 10, SECOND))
    };
    each_returns_its_place(
        make,
        park,
        &[
            ("report", &|_, form, _| {
                assert_eq!(form.report(&1, &1, 10).unwrap(), 1);
                form.remove(&1);
            }),
            ("leave", &|_, form, _| {
                assert_eq!(form.leave(&1, &1).unwrap(), 1);
                form.remove(&1);
            }),
            ("replace", &|_, form, _| {
                assert_eq!(form.replace(&1, &1, 2, 10).unwrap(), 1);
                form.remove(&1);
            }),
            ("epoch", &|_, form, _| {
                assert_eq!(form.set(&1, 2, [(0, 0)], Rule::all()).unwrap(), 1);
            }),
            ("remove", &|_, form, _| assert_eq!(form.remove(&1), 1)),
            ("close", &|_, form, _| {
                assert_eq!(form.close(&1, "closed"), 1);
                form.remove(&1);
            }),
            ("expiry", &|timer, _, _| timer.advance(SECOND)),
            ("drop", &|_, _, wait| *wait = None),
        ],
    );
}

#[test]
fn each_way_out_of_permits_returns_its_place() {
    // The permits, and one that is held.
    type Form = (Permits<u32>, Mutex<Vec<purgatory::Permit<u32>>>);
    let make = |timer: &ManualTimer, later| {
        let builder = Permits::keyed_builder("test").timer(timer).executor(later);
        let permits = builder.limit(2).max_parked(1).build().unwrap();
        let held = permits.try_acquire_for(&1, 2).unwrap();
        let form: Form = (permits, Mutex::new(vec![held]));
        form
    };
    let permit = |(permits, _): &Form| waits(permits.acquire_for(&1, 2, SECOND));
    let lease = |(permits, _): &Form| waits(permits.lease_for(&1, 2, SECOND, SECOND));
    fn ends<W>() -> [End<'static, Form, W>; 6] {
        [
            // It is held in turn, by the future, which is kept.
            ("return", &|_, (_, held), _| {
                drop(held.lock().unwrap().pop())
            }),
            ("more permits", &|_, (permits, held), wait| {
                permits.add(2);
                permits.remove(2);
                *wait = None;
                assert_eq!(held.lock().unwrap().len(), 1);
            }),
            ("too heavy now", &|_, (permits, _), _| {
                permits.resize(1);
                permits.resize(2);
            }),
            ("cancel all", &|_, (permits, _), _| {
                assert_eq!(permits.waits().cancel_all("gone"), 1);
            }),
            ("expiry", &|timer, _, _| timer.advance(SECOND)),
            ("drop", &|_, _, wait| *wait = None),
        ]
    }
    each_returns_its_place(make, permit, &ends());
    each_returns_its_place(make, lease, &ends());
}

/// Waits of one key.
const MANY: usize = 200;
/// The most that end in one lock hold.
const HOLD: usize = 64;

/// What ends many waits of a key lets go of the lock between some: callbacks see the rest wait. (A new
/// epoch and a removal end all in one lock hold, so that no later value meets one of them.)
#[test]
fn many_waits_of_a_key_end_in_several_lock_holds() {
    type End = fn(&Watermarks<u32>) -> usize;
    let ends: [(&str, End); 3] = [
        ("advance", |values| values.advance(&1, 10).unwrap()),
        ("kept epoch", |values| {
            values.begin_epoch_and_keep(&1, 1, 10).unwrap()
        }),
        ("close", |values| values.close(&1, "closed")),
    ];
    for (way, end) in ends {
        // Another key came first, in the same shard.
        let (_timer, _, values) = watermarks_with::<u32>(|builder| builder.shards(1));
        let mut other = values.wait_for(&0, 99, SECOND);
        let left = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..MANY {
            let left = left.clone();
            let waits = values.waits();
            let see = move |_| left.lock().unwrap().push(waits.len());
            values.park(&1, 10, SECOND, see).unwrap();
        }
        assert_eq!(end(&values), MANY, "{way}");
        let left = left.lock().unwrap();
        let holds = (1..=MANY).map(|ended| 1 + MANY - ended.next_multiple_of(HOLD).min(MANY));
        assert!(left.iter().copied().eq(holds), "{way}: {left:?}");
        assert!(poll(&mut other).is_pending());
    }
}

/// A clock that a test sets. It does not keep step with a sleep.
#[derive(Clone, Debug, Default)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn sleep_max(&self) -> Option<std::time::Duration> {
        Some(MS)
    }
}

/// A shard of which many are due is unlocked between some, in the kernel and in the table.
#[test]
fn many_that_are_due_expire_in_several_lock_holds() {
    let clock = Set::default();
    let timer = SystemTimer::builder().clock(clock.clone()).inline();
    let timer = timer.build().unwrap();
    let values = Watermarks::<u32>::builder("test")
        .timer(&timer)
        .build()
        .unwrap();
    let parked = Purgatory::<u32, BoxedOperation>::builder("test").timer(&timer);
    let parked = parked.build().unwrap();
    let (seen_by_values, of_values) = mpsc::channel();
    let (seen_by_parked, of_parked) = mpsc::channel();
    for _ in 0..MANY {
        let (seen, waits) = (seen_by_values.clone(), values.waits());
        let see = move |_| seen.send(waits.len()).unwrap();
        values.park(&1, 10, SECOND, see).unwrap();
        let (seen, waits) = (seen_by_parked.clone(), parked.clone());
        let see = move |_| seen.send(waits.len()).unwrap();
        let parked = parked.try_complete_else_watch(when(|| false, see), &[1], SECOND);
        assert!(matches!(parked, Ok(Some(_))));
    }
    clock.0.store(2 * SECOND.as_nanos() as u64, Relaxed);
    for seen in [of_values, of_parked] {
        let left: Vec<usize> = seen.iter().take(MANY).collect();
        assert!(left[0] >= MANY - HOLD, "{left:?}");
    }
}

/// Checks, callbacks and wakers panic on whatever thread brings them about; the timer hears of it.
#[test]
fn a_timers_panic_hook_hears_of_checks_and_callbacks() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = heard.clone();
    let hears = move |message: &str| hook.lock().unwrap().push(message.to_owned());
    let timer = SystemTimer::builder().on_panic(hears).build().unwrap();
    let parked = Purgatory::<u32, BoxedOperation>::builder("test").timer(&timer);
    let parked = parked.build().unwrap();
    let values = Watermarks::<u32>::builder("test")
        .timer(&timer)
        .build()
        .unwrap();
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let check = move || {
        assert!(!armed.load(SeqCst), "check");
        false
    };
    parked
        .try_complete_else_watch(when(check, drop), &[1], SECOND * 600)
        .unwrap();
    is_armed.store(true, SeqCst);
    parked.check_and_complete(&1);
    let callback = when(|| false, |_| panic!("callback"));
    parked
        .try_complete_else_watch(callback, &[1], SECOND * 600)
        .unwrap();
    parked.cancel_all("gone");
    values
        .park(&1, 1, SECOND * 600, |_| panic!("value"))
        .unwrap();
    values.advance(&1, 1).unwrap();
    assert_eq!(*heard.lock().unwrap(), ["check", "callback", "value"]);
}

/// An epoch is an event of its key, whether its waits are kept or end; one that is refused is none.
#[test]
fn an_epoch_counts_as_an_event() {
    let (_timer, waits, values) = watermarks::<u32>();
    values.begin_epoch(&1, 1, 5).unwrap();
    assert_eq!(waits.stats().events, 1);
    values.begin_epoch_and_keep(&1, 2, 5).unwrap();
    assert_eq!(waits.stats().events, 2);
    values.begin_epoch(&1, 2, 5).unwrap_err();
    assert_eq!(waits.stats().events, 2);
}
