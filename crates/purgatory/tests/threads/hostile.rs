//! Users' code that misbehaves: callbacks that park again without end, executors that drop their
//! jobs, hooks and wakers that panic, keys that panic where nobody is there to be told.

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use crate::support::{MINUTE, MS, Park, by_hand, never};
use purgatory::{
    BoxedOperation, CancelReason, DelayedOperation, LocalPurgatory, Monitor, Outcome, Purgatory,
    ThresholdPurgatory, Timeout, WaitError, WatchKey, Watches, when,
};
use timer_core::{Executor, Job, ManualTimer, SystemTimer, Timer};

type Waits<K> = Purgatory<K, BoxedOperation>;

fn waits<K: WatchKey + Send>() -> Waits<K> {
    Purgatory::builder("hostile").timer(&ManualTimer::new()).build().unwrap()
}

/// Parks again when it is cancelled, until so many have: for ever, were it not for the test.
#[derive(Clone)]
struct Again {
    purgatory: Purgatory<u32, Again>,
    parked: Arc<AtomicUsize>,
}

const ENOUGH: usize = 10_000;

impl Again {
    fn park(self) {
        if self.parked.fetch_add(1, SeqCst) < ENOUGH {
            let purgatory = self.purgatory.clone();
            let watches = Watches::up_to(&[(1, 5)]);
            drop(purgatory.try_complete_else_watch(self, watches, MINUTE).unwrap());
        }
    }
}

impl DelayedOperation for Again {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, outcome: Outcome) {
        if outcome != Outcome::Cancelled(CancelReason::Shutdown) {
            self.park();
        }
    }
}

#[test]
fn what_a_cancelled_operation_parks_is_not_cancelled_with_it() {
    let (_timer, purgatory) = by_hand();
    let again = Again { purgatory: purgatory.clone(), parked: Arc::default() };
    (0..300).for_each(|_| again.clone().park());
    assert_eq!((purgatory.cancel_for_key(&1, "over"), purgatory.len()), (300, 300));
    purgatory.shutdown();
}

#[test]
fn what_a_completed_wait_parks_is_not_completed_with_it() {
    fn again(purgatory: ThresholdPurgatory, parked: Arc<AtomicUsize>) {
        let next = (purgatory.clone(), parked.clone());
        let then = move |outcome| {
            if outcome == Outcome::Completed && next.1.fetch_add(1, SeqCst) < ENOUGH {
                again(next.0, next.1);
            }
        };
        purgatory.park(5, MINUTE, then).unwrap();
    }
    let purgatory = ThresholdPurgatory::from(waits());
    let parked = Arc::default();
    (0..300).for_each(|_| again(purgatory.clone(), Arc::clone(&parked)));
    assert_eq!((purgatory.complete_all(), purgatory.waiting()), (300, 300));
    purgatory.shutdown();
}

/// Drops what it is given, which so runs where it was handed in.
#[derive(Debug)]
struct Drops;

impl Executor for Drops {
    fn execute(&self, _: Job) {}
}

#[test]
fn defer_checks_nothing_under_the_callers_lock_though_the_executor_drops_its_job() {
    let timer = ManualTimer::new();
    let purgatory: Waits<u32> =
        Purgatory::builder("drops").timer(&timer).executor(Drops).build().unwrap();
    let log = Arc::new(Mutex::new(false));
    let seen = log.clone();
    let check = move || *seen.try_lock().expect("nobody checks while the log is locked");
    purgatory.park(when(check, drop), &[1], MINUTE);
    let mut locked = log.lock().unwrap();
    *locked = true;
    purgatory.defer(1);
    drop(locked);
    assert_eq!((purgatory.run_deferred(), purgatory.stats().panics), (1, 0));
}

/// Deferred events that defer more leave the executor's worker time to expire others.
#[test]
fn events_that_defer_events_for_ever_do_not_starve_expiry() {
    struct Pump(Waits<u32>, Arc<AtomicBool>, bool);
    impl DelayedOperation for Pump {
        fn try_complete(&mut self) -> bool {
            std::mem::replace(&mut self.2, true) // at the second look
        }
        fn on_complete(self, _: Outcome) {
            if !self.1.load(SeqCst) {
                let purgatory = self.0.clone();
                let next = BoxedOperation::new(Pump(self.0, self.1, false));
                if purgatory.try_complete_else_watch(next, &[1], MINUTE).is_ok() {
                    purgatory.defer(1);
                }
            }
        }
    }
    let purgatory: Waits<u32> = Purgatory::new("pump").unwrap();
    let (stop, (send, expired)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let pump = BoxedOperation::new(Pump(purgatory.clone(), stop.clone(), false));
    purgatory.park(pump, &[1], MINUTE);
    purgatory.defer(1);
    let waits = when(|| false, move |outcome| send.send(outcome).unwrap());
    purgatory.park(waits, &[2], 10 * MS);
    assert_eq!(expired.recv(), Ok(Outcome::Expired));
    stop.store(true, SeqCst);
    purgatory.shutdown();
}

/// On the one worker that would have to tell it that its time is up.
#[test]
fn a_blocking_wait_on_a_timers_worker_is_refused() {
    let timer = SystemTimer::new().unwrap();
    let purgatory: Waits<u32> = Purgatory::builder("worker").timer(&timer).build().unwrap();
    let (send, result) = mpsc::channel();
    let inside = purgatory.clone();
    let task = move || send.send(inside.wait_blocking(&[1], MS, || None::<()>)).unwrap();
    timer.schedule(MS, task).unwrap();
    assert_eq!(result.recv(), Ok(Err(WaitError::InsideCallback)));
    assert!(purgatory.is_empty());
}

#[test]
fn a_wait_that_is_over_may_be_taken_inside_a_callback() {
    let purgatory: Waits<u32> = waits();
    let over = purgatory.wait(&[1], MINUTE, || Some(7));
    let waits = purgatory.wait(&[1], MINUTE, || None::<()>);
    let (send, result) = mpsc::channel();
    let then = move |_| send.send((over.block(), waits.block())).unwrap();
    purgatory.try_complete_else_watch(when(|| true, then).into(), &[1], MINUTE).unwrap();
    assert_eq!(result.recv(), Ok((Ok(7), Err(WaitError::InsideCallback))));
    assert!(purgatory.is_empty());
}

#[test]
fn a_hook_that_panics_is_contained_and_counted_also_while_its_task_unwinds() {
    let purgatory: Waits<u32> = waits();
    let filled = || {
        let future = purgatory.wait_or(&[1], MINUTE, || Some(1), |_| panic!("in a hook"));
        assert!(future.id().is_none());
        future
    };
    drop(filled());
    assert_eq!(purgatory.stats().panics, 1);
    let future = filled();
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _future = future;
        panic!("in a task");
    }));
    assert!(unwound.is_err());
    assert_eq!(purgatory.stats().panics, 2);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("in a waker");
    }
}

/// Two panics at once would end the process.
#[test]
fn a_waker_that_panics_does_not_meet_the_panic_of_its_condition() {
    let purgatory: Waits<u32> = waits();
    let mut first = true;
    let condition = move || {
        assert!(std::mem::take(&mut first), "in a condition");
        None::<()>
    };
    let mut wait = purgatory.wait(Watches::up_to(&[(1, 5)]), MINUTE, condition);
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(purgatory.complete_up_to(&1, 5), 1);
    assert_eq!(wait.block(), Err(WaitError::Cancelled(CancelReason::Panicked)));
}

/// A key whose `Eq` or `Clone` panics when told to.
#[derive(Debug)]
struct Bomb {
    number: u32,
    in_eq: Arc<AtomicBool>,
    in_clone: Arc<AtomicBool>,
}

impl Bomb {
    fn new(number: u32) -> Self {
        Bomb { number, in_eq: Arc::default(), in_clone: Arc::default() }
    }
}

impl PartialEq for Bomb {
    fn eq(&self, other: &Bomb) -> bool {
        assert!(!self.in_eq.load(SeqCst), "in a key's Eq");
        self.number == other.number
    }
}

impl Eq for Bomb {}

impl Hash for Bomb {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.number);
    }
}

impl Clone for Bomb {
    fn clone(&self) -> Self {
        assert!(!self.in_clone.load(SeqCst), "in a key's Clone");
        Bomb { number: self.number, in_eq: self.in_eq.clone(), in_clone: self.in_clone.clone() }
    }
}

#[test]
fn a_nested_event_that_a_key_panics_in_is_counted() {
    let purgatory: Waits<Bomb> = waits();
    let (bomb, calm) = (Bomb::new(1), Bomb::new(2));
    purgatory.park(never(), std::slice::from_ref(&bomb), MINUTE);
    let (inside, key) = (purgatory.clone(), bomb.clone());
    let raises = when(
        || false,
        move |_| {
            inside.check_and_complete(&key);
            inside.complete_up_to(&key, 1);
            key.in_eq.store(true, SeqCst); // for both, when they come
        },
    );
    let id = purgatory.park(raises, &[calm], MINUTE);
    purgatory.complete(id);
    assert_eq!(purgatory.stats().panics, 2);
    bomb.in_eq.store(false, SeqCst);
}

/// The key with the most waiters panics, whichever of the two the snapshot comes to first.
#[test]
fn a_snapshot_that_a_keys_clone_panics_in_reaches_its_caller_and_harms_nobody() {
    for _ in 0..20 {
        let (timer, purgatory): (_, Waits<Bomb>) = by_hand();
        let (calm, bomb) = (Bomb::new(1), Bomb::new(2));
        for key in [&calm, &bomb, &bomb] {
            purgatory.park(never(), std::slice::from_ref(key), MINUTE);
            timer.advance(MS); // the calm one's is the oldest
        }
        bomb.in_clone.store(true, SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| purgatory.snapshot(1))).is_err());
        bomb.in_clone.store(false, SeqCst);
        let snapshot = purgatory.snapshot(1);
        assert_eq!((snapshot.busiest[0].key.number, snapshot.oldest[0].keys[0].number), (2, 1));
    }
}

/// The value is its future's by then, and the other key is raised all the same.
#[test]
fn a_key_that_panics_as_a_condition_raises_it_loses_nothing_that_was_taken() {
    let (timer, waits): (_, Waits<Bomb>) = by_hand();
    let stock = Monitor::with(waits.clone(), (0, false));
    let [jobs, bomb, calm] = [1, 2, 3].map(Bomb::new);
    let changes = [bomb.clone(), calm.clone()];
    let take = |(stock, room): &mut (u32, bool)| {
        *stock = stock.checked_sub(1)?;
        *room = true;
        Some("a job")
    };
    let taken = stock.wait_taking(std::slice::from_ref(&jobs), MINUTE, &changes, take, |_, _| ());
    let room = stock.wait(std::slice::from_ref(&calm), MINUTE, |(_, room)| room.then_some(()));
    let never = stock.wait(std::slice::from_ref(&bomb), MINUTE, |_| None::<()>);
    bomb.in_clone.store(true, SeqCst); // it is cloned where somebody waits for it
    stock.update_key(&jobs, |(stock, _)| *stock = 1);
    bomb.in_clone.store(false, SeqCst);
    timer.advance(MINUTE); // what was missed ends, too
    let waits_over = (taken.block(), room.block(), never.block());
    assert_eq!(waits_over, (Ok("a job"), Ok(()), Err(WaitError::Expired)));
    assert_eq!((waits.stats().panics, waits.len()), (1, 0));
}

#[test]
fn a_rise_that_a_key_panics_in_finishes_what_it_had_taken() {
    let purgatory: Waits<Bomb> = waits();
    let (bomb, ended) = (Bomb::new(1), Arc::new(AtomicUsize::new(0)));
    for _ in 0..200 {
        let ended = ended.clone();
        let counts = when(|| false, move |_| _ = ended.fetch_add(1, SeqCst));
        let watches = [(bomb.clone(), 1)];
        let watches = Watches::up_to(&watches);
        purgatory.park(counts, watches, MINUTE);
    }
    bomb.in_eq.store(true, SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| purgatory.complete_up_to(&bomb, 1))).is_err());
    bomb.in_eq.store(false, SeqCst);
    assert_eq!(purgatory.complete_up_to(&bomb, 1) + ended.load(SeqCst), 400);
    assert_eq!((ended.load(SeqCst), purgatory.watched(), purgatory.keys()), (200, 0, 0));
}

#[test]
fn a_repeated_watermark_does_not_count_towards_the_most_there_can_be() {
    let purgatory: Waits<u32> = waits();
    let levels = vec![(1, 5); 20_000];
    purgatory.park(never(), Watches::up_to(&levels), MINUTE);
    assert_eq!((purgatory.watched(), purgatory.complete_up_to(&1, 5)), (1, 1));
}

#[test]
fn a_queue_of_deferred_events_gives_its_peak_back() {
    let purgatory: Waits<u64> = waits();
    let kept = allocation_counter::measure(|| {
        (0..100_000).for_each(|key| purgatory.defer(key));
        purgatory.run_deferred();
    });
    assert!(kept.bytes_current < 50_000, "{} bytes stay", kept.bytes_current);
}

/// The reaper and the worker, by their names.
#[cfg(target_os = "linux")]
#[test]
fn a_future_that_is_still_held_keeps_no_threads_of_a_purgatory_that_is_gone() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("lingers")).count()
    };
    let purgatory: Waits<u32> = Purgatory::new("lingers").unwrap();
    let wait = purgatory.wait(&[1], MINUTE, || None::<()>);
    drop(purgatory);
    while threads() > 0 {
        std::thread::yield_now(); // for ever, if they stayed
    }
    assert_eq!(wait.block(), Err(WaitError::Cancelled(CancelReason::Dropped)));
}

/// A key that is deferred for ever while nothing runs, and others after shutdown.
#[test]
fn deferred_events_take_as_much_as_there_are_keys_and_nothing_after_shutdown() {
    let purgatory: Waits<u64> = waits();
    let defer = |count: u64| {
        for number in 0..count {
            purgatory.defer(number % 100);
            purgatory.defer_up_to(number % 100, number);
        }
    };
    let kept = allocation_counter::measure(|| defer(100_000));
    assert!(kept.bytes_current < 50_000, "{} bytes", kept.bytes_current);
    assert_eq!((purgatory.stats().deferred, purgatory.run_deferred()), (200, 0));
    assert_eq!((purgatory.stats().deferred, purgatory.stats().events), (0, 200));
    defer(1);
    purgatory.shutdown();
    assert_eq!(purgatory.stats().deferred, 0);
    let kept = allocation_counter::measure(|| (0..100_000).for_each(|key| purgatory.defer(key)));
    assert_eq!((purgatory.stats().deferred, kept.bytes_current), (0, 0));
}

#[test]
fn a_rise_that_is_deferred_again_goes_to_the_highest_value_and_again_once_it_has_begun() {
    let purgatory: Waits<u32> = waits();
    let at = |value| {
        let inside = purgatory.clone();
        let then = move |_| inside.defer_up_to(1, 9); // the key has begun
        let watches = [(1, value)];
        purgatory.park(when(|| false, then), Watches::up_to(&watches), MINUTE);
    };
    [5, 7, 9].into_iter().for_each(at);
    [5, 7, 3].into_iter().for_each(|value| purgatory.defer_up_to(1, value));
    assert_eq!((purgatory.stats().deferred, purgatory.run_deferred()), (1, 3));
    assert_eq!((purgatory.stats().events, purgatory.len()), (3, 0));
}

/// What panics as it is dropped.
struct DropBomb;

impl Drop for DropBomb {
    fn drop(&mut self) {
        panic!("in a drop");
    }
}

impl Wake for DropBomb {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_whose_drop_panics_while_its_task_unwinds_is_contained_and_counted() {
    let purgatory: Waits<u32> = waits();
    let mut future = purgatory.wait(&[1], MINUTE, || None::<()>);
    let waker = Waker::from(Arc::new(DropBomb));
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(waker))).is_ok(), "the future has the last");
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _future = future;
        panic!("in a task");
    }));
    assert!(unwound.is_err());
    assert_eq!((purgatory.stats().panics, purgatory.len()), (1, 0));
}

#[test]
fn a_value_whose_drop_panics_while_its_task_unwinds_is_contained_and_counted() {
    let purgatory: Waits<u32> = waits();
    let future = purgatory.wait(&[1], MINUTE, || Some(DropBomb));
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _future = future;
        panic!("in a task");
    }));
    assert!(unwound.is_err());
    assert_eq!((purgatory.stats().panics, purgatory.len()), (1, 0));
}

/// What a closure has captured and what its callback has, or the callback's own panic.
#[test]
fn two_drops_that_panic_at_once_do_not_end_the_process() {
    let purgatory: Waits<u32> = waits();
    let (one, other) = (DropBomb, DropBomb);
    let check = move || {
        let _captured = &one;
        false
    };
    let callback = move |_| {
        // One panic is enough: the check's drop is the second.
        let _captured = std::mem::ManuallyDrop::new(other);
        panic!("in a callback");
    };
    purgatory.park(when(check, callback), &[1], MINUTE);
    assert_eq!(purgatory.cancel_for_key(&1, "over"), 1);
    let held = DropBomb;
    let wait = purgatory.wait_or(
        &[2],
        MINUTE,
        move || {
            let _held = &held;
            None::<DropBomb>
        },
        |_| (),
    );
    assert_eq!(purgatory.cancel_for_key(&2, "over"), 1);
    assert!(wait.block().is_err());
    assert!(purgatory.stats().panics >= 2 && purgatory.is_empty());
}

/// The key's panic is the caller's; that of the operation, which nobody has any more, is not to
/// meet it.
#[test]
fn an_operation_whose_drop_panics_while_a_keys_clone_does_is_dropped_all_the_same() {
    let purgatory: Waits<Bomb> = waits();
    let keys: Vec<_> = (0..40).map(Bomb::new).collect();
    for count in [1, 2, 40] {
        for bomb in [0, count - 1] {
            keys[bomb].in_clone.store(true, SeqCst);
            let held = DropBomb;
            let waits = when(move || std::ptr::eq(&held, std::ptr::null()), drop);
            let park = || purgatory.try_complete_else_watch(waits.into(), &keys[..count], MINUTE);
            let panic = catch_unwind(AssertUnwindSafe(park)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"in a key's Clone"));
            keys[bomb].in_clone.store(false, SeqCst);
        }
    }
    assert_eq!((purgatory.len(), purgatory.watched(), purgatory.keys()), (0, 0, 0));
}

/// Does not know how many threads it has.
#[derive(Debug)]
struct CannotCount;

impl Executor for CannotCount {
    fn execute(&self, job: Job) {
        job.run();
    }

    fn parallelism(&self) -> usize {
        panic!("how many?")
    }
}

#[test]
fn an_executor_that_panics_as_it_is_asked_for_its_threads_loses_nothing() {
    let (send, told) = std::sync::mpsc::channel();
    for own in [false, true] {
        let mut timer = SystemTimer::builder();
        if !own {
            timer = timer.executor(CannotCount);
        }
        let timer = timer.build().unwrap();
        let builder = Purgatory::builder("count").timer(&timer);
        let builder = if own { builder.executor(CannotCount) } else { builder };
        let purgatory: Purgatory<u32, BoxedOperation> = builder.build().unwrap();
        for timeout in [Duration::from_millis(1), MINUTE] {
            let send = send.clone();
            let waits = when(|| false, move |outcome| send.send(outcome).unwrap());
            purgatory.park(waits, &[1], timeout);
        }
        assert_eq!(told.recv().unwrap(), Outcome::Expired);
        purgatory.shutdown_timeout(MINUTE);
        assert_eq!(told.recv().unwrap(), Outcome::Cancelled(CancelReason::Shutdown));
        timer.shutdown(Duration::MAX);
    }
}

/// Two panics at once would end the process: of a key's clone, and of the operation that is dropped
/// for it.
#[test]
fn on_one_thread_a_key_whose_clone_panics_does_not_meet_an_operation_whose_drop_does() {
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Uncloned(u8);
    impl Clone for Uncloned {
        fn clone(&self) -> Self {
            panic!("a clone")
        }
    }
    struct Undropped;
    impl DelayedOperation for Undropped {
        fn try_complete(&mut self) -> bool {
            false
        }
        fn on_complete(self, _: Outcome) {}
    }
    impl Drop for Undropped {
        fn drop(&mut self) {
            panic!("a drop");
        }
    }
    let waits: LocalPurgatory<Uncloned, Undropped> = LocalPurgatory::new();
    for keys in [vec![Uncloned(1)], vec![Uncloned(1), Uncloned(2)]] {
        let park = || waits.try_complete_else_watch(Undropped, &keys, Timeout::Never).is_ok();
        let panic = catch_unwind(AssertUnwindSafe(park)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a clone"));
        assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
    }
}
