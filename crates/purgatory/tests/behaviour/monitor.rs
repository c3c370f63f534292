//! A state with waits, in the orders a real program has: changes before, between and after the
//! waits, closures that panic and that call back, futures that are dropped, shutdown; and real
//! threads, counted.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::Poll,
    thread,
    time::Duration,
};

use crate::support::{SECOND, by_hand, poll};
use purgatory::{
    BoxedOperation, CancelReason, Monitor, ParkResult, Purgatory, RefusedReason, Timeout, WaitError,
};
use timer_core::ManualTimer;

type Numbers = Vec<u32>;
type Waits = Purgatory<&'static str, BoxedOperation>;

/// A monitor under a hand-turned clock, and its purgatory to look into.
fn monitor<S: Send + 'static>(state: S) -> (ManualTimer, Waits, Monitor<&'static str, S>) {
    let (timer, waits) = by_hand();
    (timer, waits.clone(), Monitor::with(waits, state))
}

#[track_caller]
fn nothing_is_left(waits: &Waits) {
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
}

/// The message of a panic.
#[track_caller]
fn panic_of<R>(call: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().expect("a panic");
    let said = panic.downcast_ref::<String>().cloned();
    said.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string())
}

fn has(number: u32) -> impl FnMut(&mut Numbers) -> Option<u32> + Send + 'static {
    move |numbers| numbers.contains(&number).then_some(number)
}

#[test]
fn a_change_before_the_wait_between_and_after() {
    let (timer, waits, monitor) = monitor(Numbers::new());
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(poll(&mut monitor.wait(&["n"], SECOND, has(1))), Poll::Ready(Ok(1)));
    let mut two = monitor.wait(&["n"], SECOND, has(2));
    let mut three = monitor.wait(&["n"], SECOND, has(3));
    assert_eq!((monitor.waiting(), poll(&mut two)), (2, Poll::Pending));
    assert_eq!(monitor.update(|numbers| (numbers.push(2), numbers.len()).1), 2);
    assert_eq!((poll(&mut two), poll(&mut three)), (Poll::Ready(Ok(2)), Poll::Pending));
    timer.advance(SECOND);
    monitor.update(|numbers| numbers.push(3)); // too late
    assert_eq!(poll(&mut three), Poll::Ready(Err(WaitError::Expired)));
    nothing_is_left(&waits);
}

#[test]
fn an_update_raises_every_key_that_has_waiters_and_the_narrow_forms_only_theirs() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let checks = Arc::new(Mutex::new(Vec::new()));
    let futures = ["a", "b", "c"].map(|key| {
        let checks = checks.clone();
        monitor.wait(&[key], SECOND, move |_| {
            checks.lock().unwrap().push(key);
            None::<()>
        })
    });
    let checked = || {
        let mut checked = std::mem::take(&mut *checks.lock().unwrap());
        checked.sort_unstable();
        checked
    };
    assert_eq!(checked(), ["a", "b", "c"]); // at parking
    monitor.update(|_| ());
    assert_eq!(checked(), ["a", "b", "c"]);
    monitor.update_key(&"b", |_| ());
    assert_eq!(checked(), ["b"]);
    assert_eq!(monitor.update_keys(|_| (7, ["c", "a", "nobody"])), 7);
    assert_eq!(checked(), ["a", "c"]);
    monitor.read(|_| ());
    assert!(checked().is_empty());
    let [a, ..] = futures;
    drop(a);
    monitor.update(|_| ());
    assert_eq!(checked(), ["b", "c"]);
    nothing_after(monitor, &waits);
}

/// The other waits go with the monitor.
#[track_caller]
fn nothing_after<S: Send + 'static>(monitor: Monitor<&'static str, S>, waits: &Waits) {
    monitor.shutdown();
    nothing_is_left(waits);
}

#[test]
fn several_waits_of_one_key_and_repeated_keys_are_counted_to_the_last() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let mut one = monitor.wait(&["a", "b", "a"], SECOND, has(1));
    let mut two = monitor.wait(&["a"], SECOND, has(2));
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(poll(&mut one), Poll::Ready(Ok(1)));
    monitor.update(|numbers| numbers.push(2)); // somebody still waits under "a"
    assert_eq!(poll(&mut two), Poll::Ready(Ok(2)));
    nothing_is_left(&waits);
}

#[test]
fn a_closure_that_panics_raises_first_and_leaves_the_lock_free() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    type Change = fn(&Monitor<&'static str, Numbers>);
    let changes: [Change; 3] = [
        |monitor| {
            monitor.update(|numbers| {
                numbers.push(7);
                panic!("half way");
            })
        },
        |monitor| {
            monitor.update_key(&"n", |numbers| {
                numbers.push(7);
                panic!("half way");
            })
        },
        |monitor| {
            monitor.update_keys(|numbers| -> ((), [&str; 1]) {
                numbers.push(7);
                panic!("half way");
            })
        },
    ];
    for change in changes {
        monitor.update(Vec::clear);
        let mut seven = monitor.wait(&["n"], SECOND, has(7));
        assert_eq!(panic_of(|| change(&monitor)), "half way");
        assert_eq!(poll(&mut seven), Poll::Ready(Ok(7)));
    }
    assert_eq!(panic_of(|| monitor.read(|_| panic!("looking"))), "looking");
    assert_eq!(monitor.read(|numbers| numbers.len()), 1);
    nothing_is_left(&waits);
}

#[test]
fn a_condition_that_panics_ends_its_wait_and_no_other() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let panicked = Err(WaitError::Cancelled(CancelReason::Panicked));
    let at_once = monitor.wait(&["n"], SECOND, |_| -> Option<()> { panic!("at once") });
    assert_eq!(at_once.block(), panicked);
    let mut later = monitor.wait(&["n"], SECOND, |numbers| {
        assert!(numbers.is_empty(), "later");
        None::<u32>
    });
    let (told, ends) = mpsc::channel();
    let bad = |numbers: &mut Numbers| -> Option<()> {
        numbers.first().map(|_| panic!("in a callback's condition"))
    };
    monitor.park(&["n"], SECOND, bad, move |end| told.send(end).unwrap()).unwrap();
    let mut one = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(poll(&mut later), Poll::Ready(Err(WaitError::Cancelled(CancelReason::Panicked))));
    assert_eq!(ends.try_recv().unwrap(), panicked);
    assert_eq!(poll(&mut one), Poll::Ready(Ok(1)));
    assert_eq!((monitor.read(Vec::len), waits.stats().panics), (1, 3)); // the lock is free
    nothing_is_left(&waits);
}

#[test]
fn a_call_of_the_same_monitor_inside_a_closure_is_a_panic_that_names_it() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let inside = |call: fn(&Monitor<&'static str, Numbers>)| {
        let around = [
            panic_of(|| monitor.update(|_| call(&monitor))),
            panic_of(|| monitor.read(|_| call(&monitor))),
        ];
        assert_eq!(around[0], around[1]);
        let [message, _] = around;
        message
    };
    let of = |call: &str| format!("Monitor::{call} called inside a closure of the same monitor");
    assert_eq!(inside(|monitor| monitor.update(|_| ())), of("update"));
    assert_eq!(inside(|monitor| monitor.update_key(&"n", |_| ())), of("update_key"));
    assert_eq!(inside(|monitor| monitor.update_keys(|_| ((), ["n"]))), of("update_keys"));
    assert_eq!(inside(|monitor| monitor.read(|_| ())), of("read"));
    assert_eq!(inside(|monitor| drop(monitor.wait(&["n"], SECOND, has(1)))), of("wait"));
    assert_eq!(
        inside(|monitor| _ = monitor.wait_blocking(&["n"], SECOND, has(1))),
        of("wait_blocking")
    );
    assert_eq!(
        inside(|monitor| {
            drop(monitor.wait_taking(&["n"], SECOND, &[], has(1), |_, _| ()));
        }),
        of("wait_taking")
    );
    assert_eq!(
        inside(|monitor| _ = monitor.park(&["n"], SECOND, has(1), drop).unwrap()),
        of("park")
    );
    assert_eq!(inside(|monitor| monitor.shutdown()), of("shutdown"));

    // In a condition it ends the wait; and so does an event that somebody raises under the lock.
    let again = monitor.clone();
    let calls_back = monitor.wait(&["n"], SECOND, move |_| Some(again.read(Vec::len)));
    assert_eq!(calls_back.block(), Err(WaitError::Cancelled(CancelReason::Panicked)));
    let under_the_lock = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|_| waits.check_and_complete(&"n"));
    assert_eq!(under_the_lock.block(), Err(WaitError::Cancelled(CancelReason::Panicked)));
    nothing_is_left(&waits);
}

#[test]
fn another_monitor_may_be_used_inside_a_closure() {
    let (_timer, _waits, numbers) = monitor(Numbers::new());
    let (_timer, _waits, other) = monitor(0);
    let sum = other.wait(&["sum"], SECOND, |sum| (*sum > 0).then_some(*sum));
    numbers.update(|numbers| {
        numbers.push(3);
        other.update(|sum| *sum += numbers.len());
    });
    assert_eq!(sum.block(), Ok(1));
}

#[test]
fn a_future_that_is_dropped_leaves_nothing_even_inside_a_closure() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    drop(monitor.wait(&["n"], SECOND, has(1)));
    nothing_is_left(&waits);
    let future = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|_| drop(future));
    nothing_is_left(&waits);
    let mut answered = monitor.wait(&["n"], SECOND, has(1));
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(poll(&mut answered), Poll::Ready(Ok(1)));
    drop(answered);
    nothing_is_left(&waits);
}

#[test]
fn a_wait_that_is_over_leaves_no_key_behind() {
    let (timer, waits) = by_hand();
    let (monitor, key) = (Monitor::with(waits, Numbers::new()), Arc::<str>::from("n"));
    let keys = [key.clone()];
    let completed = monitor.wait(&keys, SECOND, has(1));
    let expired = monitor.wait(&keys, SECOND / 2, has(2));
    let dropped = monitor.wait(&keys, SECOND, has(2));
    let cancelled = monitor.wait(&keys, SECOND, has(2));
    let at_once = monitor.wait_taking(&keys, SECOND, &keys, |_| Some(()), |_, ()| ());
    assert_eq!(at_once.block(), Ok(()));
    monitor.update(|numbers| numbers.push(1));
    timer.advance(SECOND / 2);
    drop(dropped);
    monitor.shutdown();
    let refused = monitor.wait(&keys, SECOND, has(2));
    drop(keys);
    assert_eq!(Arc::strong_count(&key), 1);
    drop((completed, expired, cancelled, refused));
}

#[test]
fn what_a_condition_took_goes_back_when_nobody_takes_it_and_is_raised() {
    let (_timer, waits, monitor) = monitor(VecDeque::<u32>::new());
    let take = || {
        let pop = |jobs: &mut VecDeque<u32>| jobs.pop_front();
        monitor.wait_taking(&["jobs"], SECOND, &["room"], pop, VecDeque::push_front)
    };
    let gone = take();
    let mut room = monitor.wait(&["room"], SECOND, |jobs| jobs.is_empty().then_some(()));
    assert_eq!(poll(&mut room), Poll::Ready(Ok(())));
    monitor.update(|jobs| jobs.push_back(1)); // the first takes it
    let mut room = monitor.wait(&["room"], SECOND, |jobs| jobs.is_empty().then_some(()));
    assert_eq!(poll(&mut room), Poll::Ready(Ok(())));
    let mut next = take();
    assert_eq!(poll(&mut next), Poll::Pending);
    drop(gone); // and has not taken it away
    assert_eq!(poll(&mut next), Poll::Ready(Ok(1)));

    monitor.update(|jobs| jobs.push_back(2));
    let mut room = monitor.wait(&["room"], SECOND, |jobs| jobs.is_empty().then_some(()));
    assert_eq!(poll(&mut room), Poll::Pending);
    let mut second = take(); // takes at once, and raises
    assert_eq!((poll(&mut room), poll(&mut second)), (Poll::Ready(Ok(())), Poll::Ready(Ok(2))));
    nothing_is_left(&waits);
}

#[test]
fn a_taking_condition_that_panics_raises_what_it_may_have_changed() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let mut one = monitor.wait(&["room"], SECOND, has(1));
    let breaks = |numbers: &mut Numbers| -> Option<()> {
        numbers.push(1);
        panic!("half way");
    };
    let taken = monitor.wait_taking(&["n"], SECOND, &["room"], breaks, |_, ()| ());
    assert_eq!(taken.block(), Err(WaitError::Cancelled(CancelReason::Panicked)));
    assert_eq!(poll(&mut one), Poll::Ready(Ok(1)));
    nothing_is_left(&waits);
}

#[test]
fn callbacks_call_back_and_their_panics_stay_inside() {
    let (timer, waits, monitor) = monitor(0u32);
    let ends = Arc::new(Mutex::new(Vec::new()));
    fn step(monitor: &Monitor<&'static str, u32>, ends: &Arc<Mutex<Vec<u32>>>, number: u32) {
        let (again, seen) = (monitor.clone(), ends.clone());
        let reached = move |value: &mut u32| (*value >= number).then_some(*value);
        let then = move |end: Result<u32, WaitError>| {
            seen.lock().unwrap().push(end.unwrap());
            again.update(|value| *value += 1); // the next is waiting for this
            if number < 3000 {
                step(&again, &seen, number + 2);
            }
            panic!("in a callback");
        };
        monitor.park(&["value"], Timeout::Never, reached, then).unwrap();
    }
    step(&monitor, &ends, 1);
    step(&monitor, &ends, 2);
    monitor.update(|value| *value = 1);
    timer.advance(SECOND);
    let ends = ends.lock().unwrap();
    assert_eq!((ends.len(), waits.stats().panics), (3001, 3001));
    assert!(ends.is_sorted());
    nothing_is_left(&waits);
}

#[test]
fn a_wait_that_blocks_inside_a_callback_is_an_error() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let (told, ends) = mpsc::channel();
    let inside = monitor.clone();
    let then = move |_| told.send(inside.wait_blocking(&["n"], SECOND, has(9))).unwrap();
    monitor.park(&["n"], SECOND, has(1), then).unwrap();
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(ends.try_recv(), Ok(Err(WaitError::InsideCallback)));
    nothing_is_left(&waits);
}

#[test]
fn a_shutdown_ends_the_waits_and_the_state_stays() {
    let (_timer, waits, monitor) = monitor(Numbers::new());
    let waiting = monitor.wait(&["n"], SECOND, has(1));
    let (told, ends) = mpsc::channel();
    monitor.park(&["n"], SECOND, has(1), move |end| told.send(end).unwrap()).unwrap();
    monitor.shutdown();
    let shut_down = || Err(WaitError::Cancelled(CancelReason::Shutdown));
    assert_eq!((waiting.block(), ends.try_recv()), (shut_down(), Ok(shut_down())));
    monitor.update(|numbers| numbers.push(1));
    assert_eq!(monitor.wait(&["n"], SECOND, has(1)).block(), Ok(1)); // needs not wait
    let closed = Err(WaitError::Refused(RefusedReason::Closed));
    assert_eq!(monitor.wait(&["n"], SECOND, has(2)).block(), closed);
    let refused = monitor.park(&["n"], SECOND, has(2), |_| unreachable!()).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::Closed);
    let no_keys = monitor.wait(&[], SECOND, has(1)).block();
    assert_eq!(no_keys, Err(WaitError::Refused(RefusedReason::NoKeys)));
    nothing_is_left(&waits);
}

#[test]
fn the_last_handle_ends_what_waits_and_drops_the_state() {
    let state = Arc::new(());
    let monitor = Monitor::new("dropped", state.clone()).unwrap();
    let waiting = monitor.clone().wait(&["n"], Timeout::Never, |_| None::<()>);
    assert_eq!((monitor.waiting(), Arc::strong_count(&state)), (1, 2));
    drop(monitor);
    assert_eq!(Arc::strong_count(&state), 1); // though a future is there
    assert_eq!(waiting.block(), Err(WaitError::Cancelled(CancelReason::Dropped)));
}

#[test]
fn a_wait_without_time_looks_once() {
    let (_timer, waits, monitor) = monitor(vec![1]);
    assert_eq!(monitor.wait(&["n"], Duration::ZERO, has(1)).block(), Ok(1));
    let nothing = monitor.wait(&["n"], Duration::ZERO, has(2)).block();
    assert_eq!(nothing, Err(WaitError::Expired));
    let refused = monitor.park(&["n"], SECOND, has(1), |end| assert_eq!(end, Ok(1)));
    assert!(matches!(refused, Ok(ParkResult::Ended(_))));
    nothing_is_left(&waits);
}

/// Producers and consumers of a queue with room for a few. Each job is taken once, none is lost
/// with a future that is dropped, and nobody waits though there is a job, or room.
#[test]
fn every_job_of_a_bounded_queue_is_done_once_on_real_threads() {
    const JOBS: usize = 4000;
    const ROOM: usize = 3;
    let queue = Monitor::new("queue", VecDeque::new()).unwrap();
    let done: Vec<_> = (0..JOBS).map(|_| AtomicUsize::new(0)).collect();
    let (left, never) = (AtomicUsize::new(JOBS), Duration::from_secs(600));
    thread::scope(|scope| {
        for first in 0..2 {
            let queue = &queue;
            scope.spawn(move || {
                for job in (first..JOBS).step_by(2) {
                    let push = move |jobs: &mut VecDeque<usize>| {
                        (jobs.len() < ROOM).then(|| jobs.push_back(job))
                    };
                    let pushed = queue.wait_taking(&["room"], never, &["jobs"], push, |_, ()| ());
                    assert_eq!(pushed.block(), Ok(()));
                }
            });
        }
        for consumer in 0..2 {
            let (queue, done, left) = (&queue, &done, &left);
            scope.spawn(move || {
                let take = || {
                    let pop = |jobs: &mut VecDeque<usize>| jobs.pop_front();
                    queue.wait_taking(&["jobs"], never, &["room"], pop, VecDeque::push_front)
                };
                for turn in 0.. {
                    let job = take();
                    if turn % 4 == consumer {
                        drop(job); // a client that goes, with or without its job
                        continue;
                    }
                    let Ok(job) = job.block() else { return };
                    done[job].fetch_add(1, SeqCst);
                    if left.fetch_sub(1, SeqCst) == 1 {
                        return queue.shutdown();
                    }
                }
            });
        }
    });
    assert!(done.iter().all(|done| done.load(SeqCst) == 1));
    assert_eq!((queue.waiting(), queue.read(VecDeque::len)), (0, 0));
}

/// Whether a change comes before, while or after the wait for it is registered is the scheduler's
/// choice, and none may be missed: there is no second one.
#[test]
fn no_change_is_missed_on_real_threads() {
    const ROUNDS: usize = 20_000;
    let rounds = Monitor::new("rounds", 0).unwrap();
    let about_to_wait = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            for round in 1..=ROUNDS {
                while about_to_wait.load(SeqCst) < round {
                    thread::yield_now();
                }
                (0..random.u32(0..200)).for_each(|_| std::hint::spin_loop());
                rounds.update(|now| *now = round);
            }
        });
        for round in 1..=ROUNDS {
            about_to_wait.store(round, SeqCst);
            let over = move |now: &mut usize| (*now == round).then_some(());
            let waited = rounds.wait_blocking(&["round"], SECOND * 5, over);
            if waited.is_err() {
                about_to_wait.store(ROUNDS, SeqCst); // lets the other thread end
            }
            assert_eq!(waited, Ok(()), "round {round}");
        }
    });
    assert_eq!(rounds.waiting(), 0);
}
