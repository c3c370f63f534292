//! A timer's counts and its reports.

use std::sync::atomic::Ordering;

use timer_core::Workers;

use crate::support::*;

/// Returns the counts of pending, fired, cancelled and cascaded tasks.
fn counts(stats: &TimerStats) -> [u64; 4] {
    [stats.pending, stats.fired, stats.cancelled, stats.cascaded]
}

#[test]
fn tasks_are_counted_from_start_to_end() {
    let timer = ManualTimer::with(TickLength::default(), WheelSize::KAFKA);
    let handles = [5, 30, 450].map(|ms| timer.schedule(ms * MS, || ()).unwrap());
    assert_eq!((counts(&timer.stats()), timer.len()), ([3, 0, 0, 0], 3));
    assert!(timer.is_pending(handles[1]) && timer.cancel(handles[1]));
    assert!(!timer.cancel(handles[1]) && !timer.is_pending(handles[1]));
    assert_eq!(counts(&timer.stats()), [2, 0, 1, 0]);
    timer.advance(435 * MS); // hands down the last task, whose bucket begins at 440 ms
    assert_eq!(counts(&timer.stats()), [1, 1, 1, 1]);
    timer.advance(15 * MS);
    assert_eq!(counts(&timer.stats()), [0, 2, 1, 1]);
    assert!(!timer.is_pending(handles[0]) && !timer.cancel(handles[0])); // that task has fired
    assert_eq!(timer.stats().cancelled, 1);
}

/// That holds for any phase of the task's shard.
#[test]
fn what_is_never_due_is_neither_pending_nor_cancelled() {
    for timer in [
        ManualTimer::new().into(),
        Timer::from(system_timer(|builder| builder.shards(4))),
    ] {
        for _ in 0..8 {
            let on = timer.clone(); // each thread has its own shard
            let schedule = move || on.schedule(Duration::MAX, || ()).unwrap();
            let never = thread::spawn(schedule).join().unwrap();
            assert_eq!((counts(&timer.stats()), timer.len()), ([0; 4], 1));
            assert!(timer.is_pending(never) && timer.cancel(never));
            assert_eq!((counts(&timer.stats()), timer.len()), ([0; 4], 0));
        }
    }
}

#[test]
fn a_system_timer_counts_its_rounds() {
    let timer = SystemTimer::builder().name("rounds").build().unwrap();
    let (send, fired) = mpsc::channel();
    let cancelled = timer.schedule(HOUR, || ()).unwrap();
    timer.cancel(cancelled);
    for _ in 0..3 {
        let send = send.clone();
        timer.schedule(MS, move || send.send(()).unwrap()).unwrap();
        fired.recv().unwrap();
    }
    timer.shutdown(Duration::MAX); // the reaper has finished counting
    let stats = timer.stats();
    assert_eq!(stats.fired, 3);
    assert_eq!(stats.pending, 0);
    assert_eq!(stats.executor_queue, Some(0));
    assert_eq!((stats.cancelled, stats.turns.count()), (1, 3));
    assert!(stats.spurious_wake_ups < stats.wake_ups);
    assert_eq!(timer.name(), "rounds");
}

#[test]
fn cancels_do_not_go_down_while_wheels_go() {
    let timer = SystemTimer::builder().shards(1).build().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let goes = scope.spawn(|| {
            for _ in 0..20_000 {
                let wheels = timer.with_handler(|(): ()| ());
                let handle = wheels.schedule(HOUR, ()).unwrap();
                assert!(wheels.cancel(handle).is_some());
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut before = 0;
        while !over.load(Ordering::Relaxed) {
            let cancelled = timer.stats().cancelled;
            assert!(cancelled >= before, "{cancelled} after {before}");
            before = cancelled;
        }
        goes.join().unwrap(); // ThreadSanitizer does not see the end of a scope
    });
    timer.shutdown(Duration::MAX); // the reaper may be dropping the last wheel
    assert_eq!(timer.stats().cancelled, 20_000);
}

/// Panics when it is given its first job, which it drops, and when it is asked about its threads.
#[derive(Debug)]
struct Panicking(AtomicBool);

impl Executor for Panicking {
    fn execute(&self, job: Job) {
        let is_first = !self.0.swap(true, Ordering::Relaxed);
        assert!(!is_first, "the executor is full");
        job.run();
    }

    fn needs_this_thread(&self) -> bool {
        panic!("the executor knows no threads")
    }
}

#[test]
fn panics_of_executors_are_counted_and_reported() {
    let (send, said) = mpsc::channel();
    let timer = system_timer(|builder| {
        builder
            .on_panic(move |message: &str| send.send(message.to_owned()).unwrap())
            .executor(Panicking(AtomicBool::new(false)))
    });
    let (send, fired) = mpsc::channel();
    for number in 0..2 {
        let send = send.clone();
        let scheduled = timer.schedule(MS, move || send.send(number).unwrap());
        scheduled.unwrap();
        assert_eq!(fired.recv().unwrap(), number);
    }
    timer.shutdown(Duration::MAX); // the reaper has finished counting
    assert!(!timer.driver().executors.needs_this_thread());
    let said: Vec<_> = said.try_iter().collect();
    let expected = ["the executor is full", "the executor knows no threads"];
    assert_eq!(said, expected);
    assert_eq!(timer.stats().panics, 2);
}

/// That holds for any executor: the timer's workers, a given one, or the advancing thread.
#[test]
fn panics_of_jobs_are_counted_once() {
    let panics = || Job::new(|| panic!("a job that contains nothing"));
    let manual = ManualTimer::new();
    manual.driver().executors.execute(panics());
    assert_eq!(manual.stats().panics, 1);

    let later = Later::default();
    let timer = system_timer(|builder| builder.executor(later.clone()));
    timer.driver().executors.execute(panics());
    assert_eq!(later.run(), 1);
    let stats = timer.stats();
    assert_eq!((stats.panics, stats.executor_queue), (1, None));

    // Workers count the jobs that a program gives them; a timer counts those that it gives to its
    // own.
    let workers = Workers::start("workers", 1).unwrap();
    let timer = SystemTimer::new().unwrap();
    workers.execute(panics());
    timer.driver().executors.execute(panics());
    workers.close();
    workers.execute(panics()); // closed: it runs here
    workers.join(Duration::MAX);
    timer.shutdown(Duration::MAX);
    assert_eq!((workers.panicked(), timer.stats().panics), (2, 1));
}

/// The count stays when the handler is dropped.
#[test]
fn panics_of_a_handler_are_counted_by_its_timer() {
    let timer = ManualTimer::new();
    let tasks = timer.with_handler(|_: u8| panic!("the handler"));
    for _ in 0..2 {
        tasks.schedule(MS, 7).unwrap();
        timer.advance(MS);
    }
    assert_eq!((tasks.panicked(), timer.stats().panics), (2, 2));
    drop(tasks);
    assert_eq!(timer.stats().panics, 2);
}
