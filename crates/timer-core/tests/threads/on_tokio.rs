//! A timer that is a task of a tokio runtime, and follows that runtime's clock (feature `tokio`).
#![cfg(all(feature = "tokio", not(loom)))]

use std::future::poll_fn;

use timer_core::driver::on_timer_thread;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{mpsc::unbounded_channel, oneshot},
    time::Instant,
};

use crate::support::*;

fn here() -> SystemTimer {
    system_timer(|builder| builder.tokio(Handle::current()))
}

/// Makes a runtime of one thread, on which time advances only when all tasks wait for it.
fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn tasks_run_by_the_paused_clock() {
    let (timer, began) = (here(), Instant::now());
    let (send, mut fired) = unbounded_channel();
    for ms in [3_600_000, 7, 250, 0, 1, 90_000] {
        let send = send.clone();
        let task = move || send.send((ms, began.elapsed().as_millis())).unwrap();
        timer.schedule(MS * ms, task).unwrap();
    }
    let never = timer.schedule(MS * 100, || unreachable!()).unwrap();
    assert!(timer.cancel(never));
    for ms in [0, 1, 7, 250, 90_000, 3_600_000] {
        let (fired, at_ms) = fired.recv().await.unwrap();
        // Each fires to the tick. The first waits for no time, or for the tick that has begun.
        assert_eq!(fired, ms);
        let in_time = u128::from(ms)..=u128::from(ms) + 1;
        assert!(in_time.contains(&at_ms), "{ms} at {at_ms}");
    }
}

/// Tasks of the runtime run the expired tasks, so these may spawn. A task that is scheduled
/// meanwhile, earlier than the time for which the reaper sleeps, wakes the reaper.
#[tokio::test(start_paused = true)]
async fn what_expires_may_spawn_and_schedule_earlier_ones() {
    let timer = here();
    let (send, told) = oneshot::channel();
    timer.schedule(HOUR, || unreachable!()).unwrap();
    let again = timer.clone();
    let task = move || {
        let spawned = move || drop(tokio::spawn(async { send.send(Instant::now()) }));
        again.schedule(MS, spawned).unwrap();
    };
    let began = Instant::now();
    timer.schedule(MS * 5, task).unwrap();
    assert!(told.await.unwrap() - began <= MS * 10);
    assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 1);
}

/// The queue follows a paused clock to the tick, and a running one at all.
#[test]
fn delay_queue_follows_the_runtimes_clock() {
    for is_paused in [true, false] {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(is_paused).build();
        runtime.unwrap().block_on(async {
            let began = Instant::now();
            let mut queue = DelayQueue::new(&here());
            let delays = [40, 5].map(|ms| ms * if is_paused { MS * 90_000 } else { MS });
            for delay in delays {
                queue.insert(delay, delay).unwrap();
            }
            for expected in [delays[1], delays[0]] {
                let expired = queue.next().await.unwrap().unwrap();
                assert_eq!(expired.value, expected);
                assert!(began.elapsed() >= expected, "early");
                assert!(!is_paused || began.elapsed() <= expected + MS * 2, "late");
            }
            assert!(queue.next().await.is_none());
        });
    }
}

/// The timer's task ends with the last handle, and with a shutdown.
#[test]
fn nothing_of_it_is_left_on_the_runtime() {
    let runtime = paused();
    for shuts_down in [false, true] {
        runtime.block_on(async {
            let timer = here();
            timer.schedule(HOUR, || ()).unwrap();
            tokio::task::yield_now().await;
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
            if shuts_down {
                assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 1);
                assert!(timer.schedule(MS, || ()).is_err());
            }
            drop(timer);
            tokio::task::yield_now().await;
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        });
    }
}

/// Sleeps on the timer end with an error, and tasks scheduled later are refused.
#[test]
fn a_runtime_that_goes_shuts_the_timer_down() {
    for driven in [true, false] {
        let runtime = paused();
        let inside = runtime.enter();
        let timer = here();
        drop(inside);
        if driven {
            runtime.block_on(tokio::task::yield_now()); // the reaper knows its owners
        }
        let (mut sleep, task) = (timer.sleep(HOUR), Woken::task());
        assert!(task.poll(&mut sleep).is_pending());
        drop(runtime);
        while task.times() == 0 {
            std::thread::yield_now(); // for ever, if the task were not woken
        }
        assert!(matches!(task.poll(&mut sleep), Poll::Ready(Err(_))));
        assert!(timer.schedule(MS, || ()).is_err());
        assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 0);
    }
}

/// The wakers of the timer's sleeps run on the thread that drops the runtime.
#[test]
fn a_shutdown_waits_for_a_runtime_that_goes() {
    let runtime = paused();
    let inside = runtime.enter();
    let timer = here();
    drop(inside);
    runtime.block_on(tokio::task::yield_now());
    let (begin, begun) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let waker = waker(move || {
        begin.send(()).unwrap();
        _ = held.lock().unwrap().recv();
    });
    let mut sleep = timer.sleep(HOUR);
    assert!(poll_by(&mut sleep, &waker).is_pending());
    let dropped = std::thread::spawn(move || drop(runtime));
    begun.recv().unwrap();
    assert_eq!(timer.shutdown(Duration::ZERO).threads, 1);
    drop(release);
    assert_eq!(timer.shutdown(Duration::MAX).threads, 0);
    dropped.join().unwrap();
}

#[test]
fn a_runtime_without_time_is_an_error_that_says_so() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let builder = SystemTimer::builder().tokio(runtime.handle().clone());
    let refused = builder.build().unwrap_err();
    assert!(matches!(refused, BuildError::NoTime));
    assert!(refused.to_string().contains("enable_time"), "{refused}");
}

/// Otherwise nothing would ever fire on it.
#[test]
fn timer_on_a_runtime_that_is_gone_is_refused() {
    let mut builder = Builder::new_multi_thread();
    let multi_thread = builder.worker_threads(2).enable_time().build().unwrap();
    assert_eq!(multi_thread.handle().parallelism(), 2);
    for runtime in [paused(), multi_thread] {
        let handle = runtime.handle().clone();
        drop(runtime);
        let refused = SystemTimer::builder().tokio(handle).build().unwrap_err();
        assert!(matches!(refused, BuildError::Closed), "{refused}");
        assert!(refused.to_string().contains("shut down"), "{refused}");
    }
}

/// Expired code must not wait for a thread that may be waiting for this one.
#[tokio::test(start_paused = true)]
async fn what_expires_is_told_apart_from_other_tasks() {
    let timer = here();
    let (send, told) = oneshot::channel();
    let scheduled = timer.schedule(MS, || send.send(on_timer_thread()).unwrap());
    scheduled.unwrap();
    assert!(told.await.unwrap());
    assert!(!on_timer_thread());
    let other_task = tokio::spawn(async { on_timer_thread() });
    assert!(!other_task.await.unwrap());
}

thread_local! {
    /// Schedules when its thread's destructors run.
    static AT_THE_END: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

/// By then tokio's own thread-locals are gone, and a panic would abort the process.
#[test]
fn a_thread_that_ends_schedules_on_a_runtimes_timer() {
    let runtime = paused();
    let timer = runtime.block_on(async { here() });
    let scheduling = timer.clone();
    let ends = move || {
        let inside = scheduling.clone();
        let schedules = OnDrop::new(move || _ = inside.schedule(MS, || ()).unwrap());
        AT_THE_END.set(Some(schedules)); // made first, dropped last
        scheduling.schedule(MS, || ()).unwrap();
    };
    thread::spawn(ends).join().unwrap();
    assert_eq!(timer.len(), 2);
}

/// A task of another runtime, whose clock is behind or ahead, schedules by the timer's own clock.
#[test]
fn another_runtimes_task_schedules_by_this_clock() {
    let (own, other) = (paused(), paused());
    let inside = own.enter();
    let timer = here();
    drop(inside);
    let advance = |runtime: &Runtime, by| runtime.block_on(tokio::time::advance(by));
    for (ahead, behind) in [(&own, &other), (&other, &own)] {
        advance(ahead, HOUR);
        let before = timer.now();
        let scheduling = timer.clone();
        let (send, mut fired) = oneshot::channel();
        let task = other.spawn(async move {
            let scheduled = scheduling.schedule(MS * 20, || send.send(()).unwrap());
            scheduled.unwrap();
            scheduling.now()
        });
        assert_eq!(other.block_on(task).unwrap(), before);
        own.block_on(async {
            tokio::task::yield_now().await;
            assert!(fired.try_recv().is_err());
            let began = Instant::now();
            fired.await.unwrap();
            assert!(began.elapsed() >= MS * 20 && began.elapsed() <= MS * 22);
        });
        advance(behind, HOUR);
    }
}

#[tokio::test(start_paused = true)]
async fn runtime_timer_follows_its_paused_clock() {
    let began = Instant::now();
    let mut queue = DelayQueue::new(&Timer::tokio().unwrap());
    queue.insert(7, HOUR).unwrap();
    assert_eq!(queue.next().await.unwrap().unwrap().value, 7);
    assert!(began.elapsed() >= HOUR && began.elapsed() <= HOUR + 2 * MS);
    // Every call returns the same timer.
    let task = Timer::tokio().unwrap().schedule(HOUR, || ()).unwrap();
    tokio::task::yield_now().await;
    assert!(Timer::tokio().unwrap().cancel(task));
}

#[test]
fn each_runtime_has_a_timer_that_goes_with_it() {
    let outside = Timer::tokio();
    assert!(matches!(outside, Err(BuildError::NoRuntime)));
    let of = |runtime: &Runtime| runtime.block_on(async { Timer::tokio().unwrap() });
    let start = || {
        let runtime = paused();
        let timer = of(&runtime);
        (runtime, timer)
    };
    let (first_runtime, first) = start();
    let (_second_runtime, second) = start();
    assert!(of(&first_runtime).cancel(first.schedule(HOUR, || ()).unwrap()));
    drop(first_runtime);
    let refused = first.schedule(HOUR, || ()).unwrap_err();
    assert_eq!(refused.reason, TimerError::Closed);
    assert!(second.schedule(HOUR, || ()).is_ok());
    // After a shutdown by hand the next call makes another timer.
    let (runtime, third) = start();
    third.shutdown(Duration::ZERO);
    assert!(of(&runtime).schedule(HOUR, || ()).is_ok());
}

/// The runtime drops pending tasks, on its thread, even if no handle of the timer is left.
#[test]
fn a_runtime_that_goes_takes_the_tasks_of_its_timer() {
    let runtime = paused();
    let (send, held) = std::sync::mpsc::channel::<()>();
    runtime.block_on(async {
        for is_shut_down in [true, false] {
            let send = send.clone();
            let timer = Timer::tokio().unwrap();
            timer.schedule(HOUR, move || drop(send)).unwrap();
            if is_shut_down {
                timer.shutdown(Duration::ZERO);
            }
        }
    });
    drop(send);
    let still_held = held.try_recv().unwrap_err();
    assert_eq!(still_held, std::sync::mpsc::TryRecvError::Empty);
    drop(runtime);
    let dropped = held.try_recv().unwrap_err();
    assert_eq!(dropped, std::sync::mpsc::TryRecvError::Disconnected);
}

/// Schedules itself again for the present until `over` is set, at most `runs_left` times.
fn again_until(timer: SystemTimer, over: Arc<AtomicBool>, runs_left: usize) {
    if runs_left > 0 && !over.load(SeqCst) {
        let next = timer.clone();
        let task = move || again_until(next, over, runs_left - 1);
        timer.schedule_at(Moment::default(), task).unwrap();
    }
}

/// The reaper is one task of many, even if each round finds that more has become due.
#[tokio::test(start_paused = true)]
async fn busy_reaper_lets_other_tasks_run() {
    let timer = system_timer(|builder| builder.tokio(Handle::current()).inline());
    let over = Arc::new(AtomicBool::new(false));
    again_until(timer.clone(), over.clone(), 10_000);
    tokio::task::yield_now().await;
    over.store(true, SeqCst);
    timer.sleep(MS).await.unwrap();
    assert!(timer.stats().fired < 2000, "{} runs", timer.stats().fired);
}

/// A loop over values or sleeps that are due at once takes part in the runtime's cooperative
/// budget: its task yields, so futures joined with it have their turns.
#[tokio::test]
async fn a_loop_over_due_values_yields_to_its_neighbours() {
    let timer = ManualTimer::new();
    let mut queue = DelayQueue::new(&timer);
    for number in 0..10_000 {
        queue.insert(number, Duration::ZERO).unwrap();
    }
    let values = async {
        for _ in 0..10_000 {
            assert!(queue.next().await.unwrap().is_ok());
        }
    };
    assert!(turns_of_a_neighbour_of(values).await > 10);
    let sleeps = async {
        for _ in 0..10_000 {
            timer.sleep(Duration::ZERO).await.unwrap();
        }
    };
    assert!(turns_of_a_neighbour_of(sleeps).await > 10);
}

/// Due values come out at their time, however often the task yields meanwhile.
#[tokio::test]
async fn a_settle_waits_for_loops_that_yield() {
    let timer = ManualTimer::new();
    let mut queue = DelayQueue::new(&timer);
    for number in 0..20_000 {
        queue.insert(number, SECOND).unwrap();
    }
    let owner = async {
        while let Some(expired) = queue.next().await {
            expired.unwrap();
        }
        for _ in 0..20_000 {
            timer.sleep(Duration::ZERO).await.unwrap();
        }
        timer.now().as_nanos()
    };
    assert_eq!(tokio::join!(owner, timer.settle(MINUTE)).0, 1_000_000_000);
}

/// After a task has used up its budget, the settle does not wait for its values that are not due.
#[tokio::test]
async fn a_settle_passes_by_a_busy_task() {
    let timer = ManualTimer::new();
    let mut queue = DelayQueue::new(&timer);
    queue.insert((), HOUR).unwrap();
    let mut sleep = timer.sleep(HOUR);
    let mut polls = 0;
    let busy = poll_fn(|context| {
        polls += 1;
        assert!(polls < 10_000, "the settle waits for it");
        while pin!(tokio::task::consume_budget()).poll(context).is_ready() {}
        assert!(queue.poll_expired(context).is_pending());
        Pin::new(&mut sleep).poll(context).map(drop)
    });
    tokio::select! {
        () = busy => unreachable!("it has an hour"),
        () = timer.settle(MINUTE) => {}
    }
}

/// A future that uses up its task's budget does not keep its timeout from ending it.
#[tokio::test]
async fn a_timeout_needs_no_budget() {
    let timer = ManualTimer::new();
    let eager = async {
        for _ in 0..10_000 {
            timer.sleep(Duration::ZERO).await.unwrap();
        }
    };
    let ended = timeout(timer.sleep(Duration::ZERO), eager).await;
    assert_eq!(ended, Err(TimerError::Elapsed));
}
