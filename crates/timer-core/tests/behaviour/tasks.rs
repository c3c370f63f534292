//! Each operation on the tasks of a timer, under a clock that the test advances.

use timer_core::Periodic;

use crate::support::*;

/// The times at which tasks ran, in ms.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Vec<u64>>>);

impl Times {
    fn note(&self, clock: &impl Clock) {
        self.0.lock().unwrap().push(clock.now_ns() / 1_000_000);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn setup() -> (ManualTimer, Times) {
    (ManualTimer::new(), Times::default())
}

#[test]
fn a_timers_own_tasks_come_first_in_a_tick() {
    let timer = ManualTimer::new();
    let (send, ran) = mpsc::channel();
    let own = send.clone();
    let handled = timer.with_handler(move |number: u64| send.send(number).unwrap());
    handled.schedule(MS, 2).unwrap();
    timer.schedule(MS, move || own.send(1).unwrap()).unwrap();
    timer.advance(MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn tasks_of_one_tick_run_in_the_order_of_scheduling() {
    let timer = ManualTimer::new();
    let (send, ran) = mpsc::channel();
    let schedule = |number: u64, delay: Duration| {
        let send = send.clone();
        timer
            .schedule(delay, move || send.send(number).unwrap())
            .unwrap()
    };
    for delay in [100 * MS, 10 * SECOND] {
        let handles: Vec<_> = (0..10).map(|number| schedule(number, delay)).collect();
        assert!(timer.cancel(handles[5]));
        timer.advance(delay - 40 * MS); // by now the tasks lie on the finest level
        schedule(10, 40 * MS);
        assert!(timer.cancel(handles[3]) && timer.cancel(handles[0]));
        timer.advance(40 * MS);
        let expected = [1, 2, 4, 6, 7, 8, 9, 10];
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn overdue_tasks_run_in_the_order_of_their_deadlines() {
    let timer = ManualTimer::new();
    timer.advance(10 * SECOND);
    let (send, ran) = mpsc::channel();
    for deadline in [3, 1, 9, 2, 1] {
        let send = send.clone();
        let deadline_ns = deadline * 1_000_000_000;
        timer
            .schedule_at(Moment::from_nanos(deadline_ns), move || {
                send.send(deadline).unwrap();
            })
            .unwrap();
    }
    timer.advance(MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 1, 2, 3, 9]);
}

#[test]
fn a_deadline_is_a_moment_of_the_timers_clock() {
    let (timer, times) = setup();
    timer.advance(SECOND);
    for deadline_ns in [1_020_000_001, 5, u64::MAX] {
        let (times, clock) = (times.clone(), timer.clock());
        timer
            .schedule_at(Moment::from_nanos(deadline_ns), move || times.note(&clock))
            .unwrap();
    }
    timer.advance(SECOND);
    assert_eq!((times.take(), timer.len()), (vec![1000, 1021], 1));
}

#[test]
fn a_closed_manual_timer_fires_nothing() {
    let timer = ManualTimer::new();
    let (send, fired) = mpsc::channel();
    let tasks = timer.with_handler(move |number: u64| send.send(number).unwrap());
    // A task of the tick in which another task, which runs first, shuts down; and a later one.
    for delay in [MS, SECOND] {
        tasks.schedule(delay, delay.as_millis() as u64).unwrap();
    }
    let own = timer.schedule(HOUR, || ()).unwrap();
    let inside = timer.clone();
    let (hand_back, left) = mpsc::channel();
    let shut_down = move || hand_back.send(inside.shutdown(Duration::MAX).unfired.len());
    timer.schedule(MS, move || shut_down().unwrap()).unwrap();
    timer.advance(MINUTE);
    assert_eq!((left.try_recv(), timer.cancel(own)), (Ok(1), false));
    assert_eq!(timer.next_due_in(), None);
    assert!(!timer.advance_to_next());

    // Time goes on, and tasks that never fired can still be taken back.
    assert_eq!(timer.now().as_nanos(), 60_000_000_000);
    assert_eq!(fired.try_iter().count(), 0);
    let mut unfired = tasks.shutdown();
    unfired.sort_unstable();
    assert_eq!(unfired, [1, 1000]);
}

#[test]
fn rescheduling_keeps_the_handle() {
    let (timer, times) = setup();
    let (noted, clock) = (times.clone(), timer.clock());
    let handle = timer
        .schedule(500 * MS, move || noted.note(&clock))
        .unwrap();
    timer.advance(400 * MS);
    assert!(timer.reschedule(handle, 5 * SECOND)); // to a later time, on a coarser level
    timer.advance(SECOND);
    assert!(times.take().is_empty());
    assert!(timer.reschedule(handle, 7 * MS)); // to an earlier time
    timer.advance(SECOND);
    assert_eq!(times.take(), [1407]);
    assert!(!timer.reschedule(handle, MS));
    timer.advance(10 * SECOND);
    assert!(times.take().is_empty());
}

// Periodic tasks.

#[test]
fn a_run_longer_than_its_period_makes_none_pile_up() {
    for (rate, expected) in [(true, &[10, 40, 70][..]), (false, &[10, 45])] {
        let (timer, times) = setup();
        let (noted, clock, inside) = (times.clone(), timer.clock(), timer.clone());
        let busy = move || {
            noted.note(&clock);
            inside.pass(25 * MS); // the run takes some time
        };
        let period = 10 * MS;
        let beat = match rate {
            true => timer.schedule_at_fixed_rate(period, period, busy).unwrap(),
            false => timer
                .schedule_with_fixed_delay(period, period, busy)
                .unwrap(),
        };
        timer.advance(20 * MS);
        assert_eq!(times.take(), expected, "at a fixed rate: {rate}");
        beat.cancel();
    }
}

/// Nor does it wait there for its own end.
#[test]
fn a_periodic_task_may_cancel_itself() {
    let (timer, times) = setup();
    let (noted, clock, own) = (times.clone(), timer.clock(), Arc::new(Mutex::new(None)));
    let handle: Arc<Mutex<Option<Periodic>>> = own.clone();
    let act = move || {
        noted.note(&clock);
        if clock.now_ns() >= 3_000_000 {
            assert!(!handle.lock().unwrap().as_ref().unwrap().cancel_and_wait());
        }
    };
    let beat = timer.schedule_at_fixed_rate(MS, MS, act).unwrap();
    *own.lock().unwrap() = Some(beat.clone());
    assert!(beat.is_active());
    timer.advance(SECOND);
    assert_eq!(times.take(), [1, 2, 3]);
    assert_eq!(timer.stats().panics, 0);
    assert_eq!(timer.len(), 0);
    assert!(!beat.is_active() && !beat.cancel() && beat.cancel_and_wait());
}

#[test]
fn a_periodic_task_is_over_with_its_timer() {
    let timers = [ManualTimer::new(), ManualTimer::new()];
    let beats = timers.each_ref().map(|timer| {
        let beat = timer.schedule_at_fixed_rate(MS, MS, || ()).unwrap();
        assert!(beat.is_active());
        beat
    });
    let [shut_down, dropped] = timers;
    let left = shut_down.shutdown(Duration::MAX);
    assert!(!beats[0].is_active() && left.unfired.len() == 1);
    drop(dropped);
    assert!(!beats[1].is_active());
    // No call had cancelled them. The tasks that the shutdown handed back no longer do anything.
    for beat in beats {
        assert!(beat.cancel() && !beat.cancel());
    }
}

/// That holds for any task; a cancel still prevents the run.
#[test]
fn a_run_that_fell_due_before_the_timer_ended_begins() {
    for is_shut_down in [true, false] {
        let (executor, (send, ran)) = (Later::default(), mpsc::channel());
        let timer = system_timer(|builder| builder.executor(executor.clone()));
        let beats = [0, 1].map(|number| {
            let ran = send.clone();
            let act = move || ran.send(number).unwrap();
            timer.schedule_at_fixed_rate(MS, HOUR, act).unwrap()
        });
        while !timer.is_empty() {
            thread::yield_now(); // until both are due
        }
        if is_shut_down {
            timer.shutdown(Duration::MAX);
        } else {
            drop(timer);
        }
        while beats.iter().any(Periodic::is_active) {
            thread::yield_now(); // the reaper may be looking at the timer
        }
        assert!(beats[1].cancel());
        let first = loop {
            executor.run();
            if let Ok(first) = ran.try_recv() {
                break first;
            }
        };
        executor.run();
        assert_eq!((first, ran.try_iter().count()), (0, 0));
    }
}

/// By then the task has no timer left that could report its panic.
#[test]
fn a_panic_of_the_last_run_is_reported() {
    let (send, said) = mpsc::channel();
    let hook = move |message: &str| send.send(message.to_owned()).unwrap();
    let executor = Later::default();
    let timer = system_timer(|builder| builder.on_panic(hook).executor(executor.clone()));
    let own = Mutex::new(Some(timer.clone()));
    let act = move || {
        drop(own.lock().unwrap().take());
        panic!("in the last run");
    };
    let beat = timer.schedule_at_fixed_rate(MS, MS, act).unwrap();
    drop(timer);
    while executor.run() == 0 {
        thread::yield_now(); // until it is due
    }
    assert_eq!(said.try_iter().collect::<Vec<_>>(), ["in the last run"]);
    assert!(!beat.is_active());
}

/// A task that cancels itself is dropped at the end of its run, before the run's panic is reported.
#[test]
fn panicking_drop_hides_no_panic_of_the_run() {
    let timer = ManualTimer::new();
    let beat: Arc<OnceLock<Periodic>> = Arc::default();
    let own = beat.clone();
    let dropped = OnDrop::new(|| panic!("in the drop"));
    let act = move || {
        let _ = &dropped;
        own.get().unwrap().cancel();
        panic!("in the run");
    };
    beat.set(timer.schedule_at_fixed_rate(MS, MS, act).unwrap())
        .unwrap();
    timer.advance(MS);
    assert_eq!(timer.stats().panics, 2);
}

#[test]
fn a_panic_in_one_run_does_not_stop_the_next() {
    let timer = ManualTimer::new();
    let mut runs = 0;
    let (send, ran) = mpsc::channel();
    let beat = timer.schedule_with_fixed_delay(MS, MS, move || {
        runs += 1;
        send.send(runs).unwrap();
        assert!(runs != 2, "in the second run");
    });
    timer.advance(3 * MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(timer.stats().panics, 1);
    assert!(beat.unwrap().is_active());
}

#[test]
fn a_random_first_start_lies_within_the_period() {
    assert_eq!(Periodic::first_after(Duration::ZERO), Duration::ZERO);
    assert!(Periodic::first_after(Duration::MAX) < Duration::MAX);
    let starts: Vec<_> = (0..1000).map(|_| Periodic::first_after(SECOND)).collect();
    assert!(starts.iter().all(|&start| start < SECOND));
    for tenth in 0..10 {
        let slot = tenth * SECOND / 10..(tenth + 1) * SECOND / 10;
        let there = starts.iter().filter(|start| slot.contains(start)).count();
        assert!(
            (20..300).contains(&there),
            "{there} of 1000 in slot {tenth}"
        );
    }
}

#[test]
fn a_periodic_task_does_not_keep_its_timer_alive() {
    let alive = Arc::new(());
    let timer = SystemTimer::new().unwrap();
    let inside = alive.clone();
    let beat = timer
        .schedule_at_fixed_rate(HOUR, HOUR, move || drop(inside.clone()))
        .unwrap();
    drop(timer);
    // The reaper may be looking at the timer; it then drops the timer.
    while Arc::strong_count(&alive) > 1 {
        std::thread::yield_now(); // for ever, if the task kept its timer alive
    }
    assert!(beat.cancel());
}

#[test]
fn panics_are_reported_to_the_hook() {
    let (send, said) = mpsc::channel();
    let hook = move |message: &str| send.send(message.to_owned()).unwrap();
    let timer = system_timer(|builder| builder.on_panic(hook).inline());
    timer.schedule(MS, || panic!("number {}", 7)).unwrap();
    assert_eq!(said.recv().unwrap(), "number 7");
}

/// A bucket of level 1 is handed down from 16 ticks before it expires. Due tasks go first; the last
/// few tasks wait until the bucket expires.
#[test]
fn due_tasks_go_before_a_near_hand_down() {
    let mut wheel = TimingWheel::with_phase(WheelSize::default(), 0, 0);
    for task in 0..10_000 {
        _ = wheel.insert(256 + task % 64, task).unwrap();
    }
    wheel.catch_up(200);
    wheel.insert(240, 10_000).unwrap();
    assert_eq!(wheel.next_due(), Some(240));
    let mut fired = Vec::new();
    for (now, task) in (240..255).zip(10_000..) {
        let advanced = wheel.advance(now, 256, |task| fired.push(task.take()));
        assert_eq!(fired.as_slice(), [task].as_slice());
        assert_eq!(advanced.cascaded, 255);
        assert_eq!(advanced.next_due, Some(now), "it goes on handing down");
        wheel.insert(now + 1, task + 1).unwrap();
        wheel.assert_valid();
        fired.clear();
    }
    let mut now = 255;
    while let Some(due) = wheel.next_due() {
        now = now.max(due);
        let advanced = wheel.advance(now, 256, |task| fired.push(now - task.deadline()));
        assert!(advanced.fired + advanced.cascaded <= 256);
    }
    assert_eq!((fired.len(), fired.iter().max()), (10_001, Some(&0)));
}

#[test]
fn a_sink_that_panics_leaves_the_others_scheduled() {
    let mut wheel = TimingWheel::new(WheelSize::default(), 0);
    for task in 0..100 {
        wheel.insert(5, task).unwrap();
    }
    // The third task makes the sink panic before it takes the task.
    let mut taken = Vec::new();
    let advanced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wheel.advance(5, usize::MAX, |task| {
            assert!(taken.len() < 2, "in the sink");
            taken.push(task.take());
        })
    }));
    assert!(advanced.is_err());
    wheel.assert_valid();
    assert_eq!((wheel.len(), wheel.scheduled_count()), (98, 97));
    // The other tasks are due as before, and can be cancelled.
    let first = wheel.first_from(0).unwrap();
    taken.extend(wheel.cancel(first));
    wheel.advance(5, usize::MAX, |task| taken.push(task.take()));
    assert_eq!((taken.len(), wheel.len()), (99, 1));
}

/// An owner of wheels needs that after the program has dropped the timer.
#[test]
fn a_driver_returns_its_timer_or_another_handle() {
    let timer = SystemTimer::new().unwrap();
    let driver = timer.driver();
    let task = timer.schedule(HOUR, || ()).unwrap();
    assert!(driver.timer().is_pending(task));
    drop(timer);
    // The timer's tasks went with it.
    let again = driver.timer();
    assert!(again.is_empty());
    let (send, fired) = mpsc::channel();
    again.schedule(MS, move || send.send(()).unwrap()).unwrap();
    fired.recv().unwrap();
    assert_eq!(driver.timer().shutdown(Duration::MAX).threads, 0);
    assert!(again.schedule(MS, || ()).is_err());
}
