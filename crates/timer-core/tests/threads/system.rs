//! The timer on real threads. No test sleeps, and none asserts how long anything took.

use std::{
    env,
    io::Read,
    process::{Command, Stdio},
};

use crate::{
    owner::{At, Owner},
    support::*,
};

/// Schedules a task that sends a value.
fn send<V: Send + 'static>(timer: &Timer, after: Duration, to: &mpsc::Sender<V>, value: V) {
    let to = to.clone();
    let scheduled = timer.schedule(after, move || to.send(value).unwrap());
    scheduled.unwrap();
}

#[test]
fn nothing_fires_early_for_any_tick() {
    for tick in [Duration::from_micros(100), MS, 7 * MS, 40 * MS] {
        let clock = SystemClock::new();
        let tick = TickLength::new(tick).unwrap();
        let timer = system_timer(|builder| builder.tick(tick).clock(clock));
        let (send, fired) = mpsc::channel();
        for micros in (0..50_000).step_by(331) {
            let delay = Duration::from_micros(micros);
            let deadline_ns = clock.now_ns() + delay.as_nanos() as u64;
            let send = send.clone();
            let task = move || send.send(clock.now_ns().checked_sub(deadline_ns)).unwrap();
            timer.schedule(delay, task).unwrap();
        }
        drop(send);
        let is_late = |lateness: Option<u64>| lateness.is_some();
        assert!(fired.iter().all(is_late), "early with {tick:?}");
    }
}

#[test]
fn starting_and_stopping_timers_wakes_nobody() {
    // The clock stands still: the loops take no time, however busy the machine is.
    let timer = system_timer(|builder| builder.clock(ManualTimer::new().clock()));
    let never = || unreachable!("cancelled");
    let start = |hours| timer.schedule(hours * HOUR, never).unwrap();
    start(1); // the shard's first task: the reaper hears of it
    let timers: Vec<_> = (0..10_000).map(|_| start(1)).collect();
    let (to, fired) = mpsc::channel();
    send(&timer, Duration::ZERO, &to, ());
    fired.recv().unwrap(); // the reaper has heard of it
    let before = timer.stats().wake_ups;
    for number in 0..10_000 {
        assert!(timer.cancel(start(2 + number % 2)));
        if number % 100 == 0 {
            thread::yield_now(); // a reaper that was signalled wakes up
        }
    }
    assert!(timers.into_iter().all(|handle| timer.cancel(handle)));
    // The reaper may just have been falling asleep, but 20 000 timers cause no more wake-ups.
    let wake_ups = timer.stats().wake_ups - before;
    assert!(wake_ups <= 2, "{wake_ups} wake-ups for 20 000 timers");
    assert_eq!(timer.len(), 1);
}

#[test]
fn a_grace_of_zero_does_not_keep_the_reaper_awake() {
    let timer = system_timer(|builder| builder.grace(Duration::ZERO));
    timer.schedule(HOUR, || unreachable!("shut down")).unwrap();
    let (to, fired) = mpsc::channel();
    for _ in 0..100 {
        send(&timer, MS, &to, ());
        fired.recv().unwrap();
    }
    timer.shutdown(Duration::MAX);
    let stats = timer.stats();
    assert!(stats.wake_ups < 1000 && stats.graces == 0, "{stats:?}");
}

#[test]
fn each_task_of_many_threads_runs_or_is_cancelled() {
    let timer = SystemTimer::builder().workers(2).build().unwrap();
    let (send, fired) = mpsc::channel();
    let cancelled = race(4, |thread| {
        let mut random = fastrand::Rng::with_seed(thread);
        let mut cancelled = 0;
        let mut handles = Vec::new();
        for _ in 0..5000 {
            let send = send.clone();
            let task = move || send.send(()).unwrap();
            let delay = Duration::from_micros(random.u64(0..30_000));
            handles.push(timer.schedule(delay, task).unwrap());
            let any = handles[random.usize(0..handles.len())];
            cancelled += usize::from(timer.cancel(any));
        }
        cancelled
    });
    drop(send);
    let cancelled: usize = cancelled.into_iter().sum();
    assert_eq!(fired.iter().count() + cancelled, 20_000);
    assert!(timer.is_empty());
}

#[test]
fn shutdown_hands_back_unfired_tasks() {
    for workers in [1, 3] {
        let timer = system_timer(|builder| builder.workers(workers));
        let (to, fired) = mpsc::channel();
        for _ in 0..1000 {
            send(&timer, HOUR, &to, ());
        }
        let left = timer.shutdown(Duration::MAX).unfired;
        assert_eq!(left.len(), 1000);
        assert_eq!(timer.len(), 0);
        assert_eq!(fired.try_iter().count(), 0);
        for task in left {
            task.run();
        } // the tasks are complete
        assert_eq!(fired.try_iter().count(), 1000);
        let late = timer.schedule(MS, move || to.send(()).unwrap());
        let late = late.unwrap_err();
        assert_eq!(late.reason, TimerError::Closed);
        late.into_task().run();
        assert_eq!(fired.try_iter().count(), 1);
        assert!(timer.shutdown(Duration::MAX).unfired.is_empty());
    }
}

#[test]
fn jobs_that_wait_for_a_worker_are_counted() {
    let timer = SystemTimer::new().unwrap();
    let running = Stop::armed();
    let held = running.clone();
    timer.schedule(Duration::ZERO, move || held.here()).unwrap();
    running.meanwhile(|| {
        for _ in 0..2 {
            timer.driver().executors.execute(Job::new(|| ()));
        }
        assert_eq!(timer.stats().executor_queue, Some(2));
    });
    timer.shutdown(Duration::MAX);
}

/// That thread may be the one on which the task is about to run.
#[test]
fn a_timers_thread_waits_for_no_periodic_task() {
    let timer = SystemTimer::builder().workers(2).build().unwrap();
    let running = Stop::armed();
    let held = running.clone();
    let beat = timer.schedule_at_fixed_rate(Duration::ZERO, MS, move || held.here());
    let (send, waited) = mpsc::channel();
    running.meanwhile(|| {
        let beat = beat.unwrap();
        let cancels = move || send.send(beat.cancel_and_wait()).unwrap();
        timer.schedule(Duration::ZERO, cancels).unwrap();
        assert_eq!(waited.recv_timeout(MINUTE), Ok(false));
    });
    timer.shutdown(Duration::MAX);
}

#[test]
fn a_shutdown_in_a_task_does_not_wait_for_itself() {
    let timer = SystemTimer::new().unwrap();
    let (send, done) = mpsc::channel();
    let inside = timer.clone();
    let shut_down = move || inside.shutdown(Duration::MAX).unfired.len();
    let task = move || send.send(shut_down()).unwrap();
    timer.schedule(MS, task).unwrap();
    assert_eq!(done.recv().unwrap(), 0);
}

/// Both tasks are due in one round, in which the first owner of wheels shuts the timer down.
#[test]
fn a_shutdown_in_a_round_fires_nothing_after_it() {
    let hand = ManualTimer::new();
    let timer = system_timer(|builder| builder.clock(hand.clock()).inline());
    let inside = timer.clone();
    let (send, done) = mpsc::channel();
    let shut_down = move || send.send(inside.shutdown(Duration::MAX).threads).unwrap();
    timer.schedule(MS, shut_down).unwrap();
    let (send, fired) = mpsc::channel();
    let tasks = timer.with_handler(move |number: u64| send.send(number).unwrap());
    tasks.schedule(MS, 7).unwrap();
    hand.pass(MS);
    assert_eq!(done.recv(), Ok(1)); // the reaper's own thread
    timer.shutdown(Duration::MAX);
    assert_eq!((fired.try_iter().count(), tasks.shutdown()), (0, vec![7]));
}

/// Tasks due in one tick go to as many workers as there are: each task waits for three others.
#[test]
fn what_falls_due_together_is_spread_over_the_workers() {
    const WORKERS: usize = 4;
    let hand = ManualTimer::new();
    let timer = system_timer(|builder| builder.clock(hand.clock()).workers(WORKERS));
    let (together, (send, ran)) = (Arc::new(Barrier::new(WORKERS)), mpsc::channel());
    for _ in 0..2 * WORKERS {
        let (together, send) = (together.clone(), send.clone());
        let task = move || {
            together.wait();
            send.send(()).unwrap();
        };
        timer.schedule(5 * MS, task).unwrap();
    }
    hand.pass(5 * MS);
    let in_time = || ran.recv_timeout(MINUTE).is_ok(); // otherwise it would block for ever
    assert!(
        (0..2 * WORKERS).all(|_| in_time()),
        "some of the workers were left out"
    );
    assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 0);
}

#[test]
fn a_clock_at_the_end_of_time_fires_due_tasks_alone() {
    let hand = ManualTimer::new();
    hand.pass(Duration::MAX);
    let timer = SystemTimer::builder().clock(hand.clock()).build().unwrap();
    let scheduled = timer.schedule(HOUR, || unreachable!("after the end of time"));
    scheduled.unwrap();
    let (to, fired) = mpsc::channel();
    let scheduled = timer.schedule_at(Moment::from_nanos(5), move || to.send(()).unwrap());
    scheduled.unwrap();
    fired.recv().unwrap();
    assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 1);
}

#[test]
fn two_threads_advance_a_manual_timer() {
    let timer = ManualTimer::new();
    race(2, |_| {
        for _ in 0..100_000 {
            timer.advance(MS);
        }
    });
    timer.advance(Duration::ZERO);
    assert_eq!(timer.clock().now_ns(), 200_000 * 1_000_000);
}

/// Both see the same next moment: the second thread to advance does not go beyond it.
#[test]
fn two_threads_advance_a_manual_timer_to_one_moment() {
    let timer = ManualTimer::new();
    let arrived = AtomicUsize::new(0);
    let meet = |number: usize| {
        arrived.fetch_add(1, SeqCst);
        let mut looks = 0;
        while arrived.load(SeqCst) < 2 * number {
            looks += 1;
            match looks % 64 {
                0 => thread::yield_now(),
                _ => std::hint::spin_loop(), // so that both leave at once
            }
        }
    };
    race(2, |thread| {
        for round in 1..=20_000 {
            if thread == 0 {
                timer.schedule(MS, || ()).unwrap();
            }
            meet(2 * round - 1);
            timer.advance_to_next();
            meet(2 * round);
        }
    });
    assert_eq!(timer.clock().now_ns(), 20_000 * 1_000_000);
}

/// Each run checks whether it was cancelled for good. The test does not sleep: before each cancel it
/// spins until the task has run.
#[test]
fn a_cancelled_periodic_task_is_not_called() {
    let timer = SystemTimer::new().unwrap();
    let (late, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..200 {
        let over = Arc::new(AtomicBool::new(false));
        let (seen, late, counted) = (over.clone(), late.clone(), runs.clone());
        let act = move || {
            thread::yield_now();
            counted.fetch_add(1, SeqCst);
            late.fetch_add(usize::from(seen.load(SeqCst)), SeqCst);
        };
        let before = runs.load(SeqCst);
        let nanosecond = Duration::from_nanos(1);
        let periodic = timer
            .schedule_with_fixed_delay(Duration::ZERO, nanosecond, act)
            .unwrap();
        while runs.load(SeqCst) == before {
            std::hint::spin_loop();
        }
        assert!(periodic.cancel_and_wait());
        over.store(true, SeqCst);
    }
    timer.shutdown(Duration::MAX);
    assert_eq!(late.load(SeqCst), 0);
}

/// Keeps its jobs. As it takes one, it drops the timer handle that the test gave it.
#[derive(Clone, Debug, Default)]
struct LetsGo(Later, Arc<Mutex<Option<TaskTimer<TellsWhere>>>>);

impl Executor for LetsGo {
    fn execute(&self, job: Job) {
        self.0.execute(job);
        drop(self.1.lock().unwrap().take());
    }
}

/// The last other handle is dropped while the reaper works on the wheels, so the reaper's is the
/// last.
#[test]
fn the_reaper_drops_no_task_of_a_timer_that_goes() {
    let lets_go = LetsGo::default();
    let timer = system_timer(|builder| builder.executor(lets_go.clone()));
    let (tell, told) = mpsc::channel();
    let tasks = timer.with_handler(drop::<TellsWhere>);
    tasks.schedule(HOUR, TellsWhere(tell.clone())).unwrap();
    // The executor waits until this thread has handed its handle over.
    let mut handle = lets_go.1.lock().unwrap();
    tasks.schedule(Duration::ZERO, TellsWhere(tell)).unwrap();
    *handle = Some(tasks);
    drop(handle);
    while lets_go.0.len() < 2 {
        thread::yield_now();
    }
    timer.shutdown(Duration::MAX);
    assert!(told.try_recv().is_err());
    lets_go.0.run();
    let here = thread::current().name().unwrap().to_owned();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [here.clone(), here]);
}

#[test]
fn a_shutdown_waits_for_what_is_running_or_its_limit() {
    let timer = SystemTimer::new().unwrap();
    let (running, over) = (Stop::armed(), Arc::new(AtomicBool::new(false)));
    let (inside, task_over) = (running.clone(), over.clone());
    let stuck = move || {
        inside.here();
        task_over.store(true, SeqCst);
    };
    timer.schedule(Duration::ZERO, stuck).unwrap();
    let shut_down = |limit| (timer.shutdown(limit).threads, over.load(SeqCst));
    thread::scope(|scope| {
        let callers = running.meanwhile(|| {
            timer.schedule(HOUR, || ()).unwrap();
            let left = timer.shutdown(Duration::ZERO);
            assert_eq!((left.unfired.len(), left.threads > 0), (1, true));
            let (shut_down, callers) = (&shut_down, [HOUR, Duration::MAX, Duration::MAX]);
            let callers = callers.map(|limit| scope.spawn(move || shut_down(limit)));
            for _ in 0..10_000 {
                thread::yield_now();
            } // a shutdown that does not wait ends meanwhile
            while timer.shutdown(Duration::ZERO).threads != 1 {
                thread::yield_now(); // until the worker is the last
            }
            callers
        });
        for caller in callers {
            assert_eq!(caller.join().unwrap(), (0, true));
        }
    });
}

/// The machine's clock, which panics once after a test has told it to.
#[derive(Debug)]
struct PanicsOnce(SystemClock, Arc<AtomicBool>);

impl Clock for PanicsOnce {
    fn now_ns(&self) -> u64 {
        assert!(!self.1.swap(false, SeqCst), "the clock panics");
        self.0.now_ns()
    }
}

#[test]
fn a_round_whose_clock_panics_is_counted() {
    let panics = Arc::new(AtomicBool::new(false));
    let clock = PanicsOnce(SystemClock::new(), panics.clone());
    let timer = system_timer(|builder| builder.clock(clock).inline());
    // The reaper runs the task, and then reads the clock.
    let scheduled = timer.schedule(MS, move || panics.store(true, SeqCst));
    scheduled.unwrap();
    while timer.stats().panics == 0 {
        thread::yield_now();
    }
    let stats = timer.stats();
    assert_eq!((stats.fired, stats.pending), (1, 0));
    // The reaper goes on.
    let (to, fired) = mpsc::channel();
    send(&timer, MS, &to, ());
    fired.recv().unwrap();
}

/// A clock that stands still, and shows whether anything still holds it.
#[derive(Debug)]
struct Counted(#[expect(dead_code, reason = "counted")] Arc<()>);

impl Clock for Counted {
    fn now_ns(&self) -> u64 {
        0
    }
}

#[test]
fn a_timer_that_is_gone_leaves_nothing_behind() {
    let alive = Arc::new(());
    for grace in [None, Some(SECOND)] {
        let mut builder = SystemTimer::builder().clock(Counted(alive.clone()));
        if let Some(bound) = grace {
            builder = builder.grace(bound);
        }
        let timer = builder.build().unwrap();
        let beat = timer.schedule_at_fixed_rate(MS, MS, || ()).unwrap();
        assert!(poll(&mut timer.sleep(HOUR)).is_pending());
        timer.shutdown(Duration::MAX);
        drop(timer);
        assert_eq!(Arc::strong_count(&alive), 1, "grace: {grace:?}");
        assert!(beat.cancel());
    }
}

thread_local! {
    /// Dropped when its thread ends.
    static AT_THREADS_END: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

#[test]
fn a_shutdown_at_a_workers_end_does_not_wait() {
    let timer = SystemTimer::new().unwrap();
    let (send, left) = mpsc::channel();
    let inside = timer.clone();
    let shuts_down = OnDrop::new(move || {
        let _ = send.send(inside.shutdown(Duration::MAX).threads);
    });
    let keep = move || AT_THREADS_END.set(Some(shuts_down));
    timer.schedule(Duration::ZERO, keep).unwrap();
    while timer.stats().fired == 0 {
        thread::yield_now();
    }
    timer.shutdown(Duration::ZERO);
    left.recv().unwrap(); // a thread that joins itself ends the process
}

/// In a process of its own, whose threads would need a larger stack than any machine has.
#[test]
fn a_timer_without_threads_is_an_error() {
    const STACK: &str = "RUST_MIN_STACK";
    let huge = (1_u64 << 60).to_string();
    if env::var(STACK).is_ok_and(|stack| stack == huge) {
        for builder in [SystemTimer::builder(), SystemTimer::builder().inline()] {
            assert!(matches!(builder.build(), Err(BuildError::Thread(_))));
        }
        return;
    }
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", "system::a_timer_without_threads_is_an_error"]);
    let piped = again.env(STACK, &huge).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // The child's output ends with the child, which may never happen.
    let mut stdout = child.stdout.take().unwrap();
    let (send, output) = mpsc::channel();
    thread::spawn(move || {
        let mut said = String::new();
        stdout.read_to_string(&mut said).unwrap();
        send.send(said)
    });
    let said = output.recv_timeout(MINUTE);
    let _ = child.kill(); // the child may have ended
    assert!(child.wait().unwrap().success(), "{said:?}");
    assert!(said.is_ok_and(|said| said.contains("1 passed")));
}

/// A panic at the end of the round is made up for, too.
#[test]
fn a_turn_that_panicked_is_made_up_for() {
    let timer = SystemTimer::new().unwrap();
    let driver = timer.driver();
    let owner = Owner::on(&driver, 1, &[At::FirstAdvance, At::RoundOver]);
    owner.insert(0, driver.config.tick.deadline(driver.now_ns(), 5 * MS));
    while owner.asked().fired == 0 {
        thread::yield_now(); // for ever, if the shard were not looked at again
    }
    timer.shutdown(Duration::MAX);
    let asked = owner.asked();
    assert_eq!((asked.fired, asked.closed), (1, true));
    assert!(!driver.attach(&owner, &owner.shards));
}

/// A wall clock that the test sets. It never goes back, and jumps ahead while threads sleep.
#[derive(Clone, Debug, Default)]
struct SetByHand {
    shows_ns: Arc<AtomicU64>,
    latest_ns: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl SetByHand {
    fn set(&self, shows: Duration) {
        self.shows_ns.store(shows.as_nanos() as u64, SeqCst);
    }

    /// Blocks until the reaper has read the clock twice more: for a round, and to plan the next.
    fn wait_until_read(&self) {
        let until = self.reads.load(SeqCst) + 2;
        while self.reads.load(SeqCst) < until {
            thread::yield_now(); // for ever, if the reaper kept sleeping
        }
    }
}

impl Clock for SetByHand {
    fn now_ns(&self) -> u64 {
        let now_ns = self.shows_ns.load(SeqCst);
        self.reads.fetch_add(1, SeqCst);
        self.latest_ns.fetch_max(now_ns, SeqCst).max(now_ns)
    }

    fn sleep_max(&self) -> Option<Duration> {
        Some(MS)
    }
}

#[test]
fn wall_clock_that_is_set_fires_late_never_early() {
    let clock = SetByHand::default();
    let timer = SystemTimer::builder().clock(clock.clone()).build().unwrap();
    let (send, fired) = mpsc::channel();
    clock.set(10 * HOUR);
    for hours in [11, 12] {
        let send = send.clone();
        let deadline = Moment::default() + hours * HOUR;
        let scheduled = timer.schedule_at(deadline, move || send.send(hours).unwrap());
        scheduled.unwrap();
    }
    // Set back, the clock stands still. Set ahead, it has the reaper notice the deadline in its
    // sleep.
    clock.set(9 * HOUR);
    assert_eq!(timer.now(), Moment::default() + 10 * HOUR);
    clock.wait_until_read();
    assert!(fired.try_recv().is_err());
    clock.set(11 * HOUR);
    assert_eq!(fired.recv().unwrap(), 11);
    clock.set(HOUR);
    clock.wait_until_read();
    assert!(fired.try_recv().is_err());
    clock.set(13 * HOUR);
    assert_eq!(fired.recv().unwrap(), 12);
}
