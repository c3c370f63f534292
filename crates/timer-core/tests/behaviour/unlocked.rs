//! User code that the timer drops or calls: nothing is locked meanwhile, and its panics leave the
//! timer working.

use std::cell::Cell;

use timer_core::Periodic;

use crate::{
    owner::{At, Owner},
    support::*,
};

/// Returns a value whose drop counts the pending tasks, which takes each lock.
fn looks_into<T: Send + 'static>(tasks: &TaskTimer<T>) -> OnDrop {
    let tasks = tasks.clone();
    OnDrop::new(move || _ = tasks.len())
}

#[test]
fn a_closure_for_a_gone_task_is_dropped_unlocked() {
    in_time(|| {
        let timer = ManualTimer::new();
        let tasks = timer.with_handler(drop::<u32>);
        let handle = tasks.schedule(MS, 7).unwrap();
        assert_eq!(tasks.cancel(handle), Some(7));
        let unused = looks_into(&tasks);
        assert_eq!(tasks.with(handle, move |_| drop(unused)), None);
    });
}

#[test]
fn a_panic_ends_one_advance_of_a_manual_timer() {
    let timer = ManualTimer::new();
    let owner = Owner::on(&timer.driver(), 1, &[At::FirstAdvance]);
    owner.insert(0, 5);
    let advanced = catch_unwind(AssertUnwindSafe(|| timer.advance(SECOND)));
    assert!(advanced.is_err());
    assert_eq!(timer.now().as_nanos(), 5_000_000);
    // Tasks that the owner's other shards handed over by then are not kept back.
    assert_eq!(owner.asked().rounds, 1);
    // The next advance is a call of its own, and makes up for the failed one.
    timer.advance(SECOND);
    assert_eq!(owner.asked().fired, 1);
    assert_eq!(timer.now().as_nanos(), 1_005_000_000);
}

#[test]
fn a_panic_at_the_close_of_one_closes_the_others() {
    let timer = ManualTimer::new();
    let panics: [&[At]; 3] = [&[At::Close], &[], &[At::Close]];
    let owners = panics.map(|panics| Owner::on(&timer.driver(), 1, panics));
    let left = timer.schedule(SECOND, || ()).unwrap();
    assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 1);
    let closed = owners.map(|owner| owner.asked().closed);
    assert_eq!((closed, timer.stats().panics), ([false, true, false], 2));
    assert!(!timer.cancel(left));
}

#[test]
fn tasks_are_dropped_unlocked_whatever_ends_them() {
    in_time(|| {
        let timer = ManualTimer::new();
        let others = timer.with_handler(drop::<()>);
        let drops = Arc::new(AtomicUsize::new(0));
        // Each drop looks into the wheels of its own kind, and of another.
        let on_drop = || {
            let (timer, others, drops) = (timer.clone(), others.clone(), drops.clone());
            OnDrop::new(move || {
                assert!(timer.is_empty() && others.is_empty());
                drops.fetch_add(1, SeqCst);
            })
        };
        let periodic = |first: Duration| {
            let captured = on_drop();
            let act = move || _ = &captured;
            timer.schedule_at_fixed_rate(first, SECOND, act)
        };
        // Tasks that are cancelled, that run, and that cancel themselves in their run.
        let captured = on_drop();
        let task = timer.schedule(MS, move || drop(captured)).unwrap();
        assert!(timer.cancel(task));
        assert!(periodic(MS).unwrap().cancel());
        let captured = on_drop();
        timer.schedule(MS, move || drop(captured)).unwrap();
        let beat = Arc::new(OnceLock::<Periodic>::new());
        let (own, captured) = (beat.clone(), on_drop());
        let cancels_itself = move || {
            let _ = &captured;
            own.get().unwrap().cancel();
        };
        let started = timer.schedule_at_fixed_rate(MS, MS, cancels_itself);
        beat.set(started.unwrap()).unwrap();
        timer.advance(SECOND);
        assert_eq!(drops.load(SeqCst), 4);
        // Tasks that are refused.
        timer.shutdown(Duration::MAX);
        assert!(periodic(MS).is_err());
        let captured = on_drop();
        assert!(timer.schedule(MS, move || drop(captured)).is_err());
        assert_eq!(drops.load(SeqCst), 6);
    });
}

thread_local! {
    /// The number of this thread's reads up to and including the one that panics, or 0.
    static READS_LEFT: Cell<usize> = const { Cell::new(0) };
}

/// A clock that stands still, and panics once at a read that the test chooses, on the test's
/// thread. (The reaper may read the clock at any time.)
#[derive(Debug)]
struct PanicsAt;

impl Clock for PanicsAt {
    fn now_ns(&self) -> u64 {
        let left = READS_LEFT.get();
        READS_LEFT.set(left.saturating_sub(1));
        assert!(left != 1, "the clock panics");
        0
    }
}

/// With a grace, waking the reaper for the next run reads the clock, while the task is put back.
#[test]
fn clock_panic_while_waking_the_reaper_is_counted() {
    in_time(|| {
        let executor = Later::default();
        let beat: Arc<OnceLock<Periodic>> = Arc::default();
        let own = beat.clone();
        let timer = system_timer(|builder| {
            let builder = builder.clock(PanicsAt).grace(SECOND);
            let hook = move |_: &str| _ = own.get().unwrap().cancel(); // takes the task's lock
            builder.on_panic(hook).executor(executor.clone())
        });
        let starts = timer.schedule_with_fixed_delay(Duration::ZERO, MS, || ());
        beat.set(starts.unwrap()).unwrap();
        while executor.len() == 0 {
            thread::yield_now(); // until it is due
        }
        // The round is over, and the reaper sleeps.
        let jobs = executor.take();
        while timer.stats().turns.count() == 0 {
            thread::yield_now();
        }
        READS_LEFT.set(2); // after the read at the end of the run
        jobs.into_iter().for_each(Job::run);
        assert_eq!(timer.stats().panics, 1);
        assert!(beat.get().unwrap().cancel());
    });
}
