//! Sleeps, timeouts and intervals, one aspect at a time, under a manual clock. (`runtimes` has them
//! on real threads and runtimes.)

use std::future::{pending, ready};

use cooked_waker::{IntoWaker, WakeRef};

use crate::support::*;

const READY: Poll<Result<(), TimerError>> = Poll::Ready(Ok(()));
const CLOSED: Poll<Result<(), TimerError>> = Poll::Ready(Err(TimerError::Closed));

#[test]
fn a_sleep_is_ready_at_its_time_and_wakes_once() {
    let (timer, task) = manual();
    let (mut sleep, mut other) = (timer.sleep(5 * MS), timer.sleep(5 * MS));
    timer.advance(3 * MS); // the sleep's time counts from the call
    assert_eq!(timer.sleepers(), 0);
    assert_eq!(task.poll(&mut sleep), Poll::Pending);
    timer.advance(2 * MS - Duration::from_nanos(1));
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!(
        (task.times(), task.wakers(), timer.sleepers(), timer.len()),
        (0, 1, 1, 0)
    );
    timer.advance(Duration::from_nanos(1));
    assert_eq!((task.times(), task.wakers()), (1, 0));
    assert_eq!(task.poll(&mut sleep), READY);
    assert_eq!(task.poll(&mut sleep), READY);
    assert_eq!((task.poll(&mut other), timer.sleepers()), (READY, 0)); // never registered
    assert_eq!(task.poll(&mut timer.sleep(Duration::ZERO)), READY);
    timer.advance(5 * MS);
    assert_eq!((task.times(), task.wakers()), (1, 0));
}

#[test]
fn a_deadline_between_two_ticks_is_rounded_up() {
    let (timer, task) = manual();
    let mut sleep = timer.sleep_until(Moment::from_nanos(1_500_000));
    timer.advance(Duration::from_nanos(1_499_999));
    assert!(!sleep.is_due() && task.poll(&mut sleep).is_pending());
    timer.advance(Duration::from_nanos(500_000));
    assert!(sleep.is_due() && task.poll(&mut sleep).is_pending()); // the wheel decides
    timer.advance(Duration::from_nanos(1));
    assert!(task.poll(&mut sleep).is_ready());
    assert_eq!(
        task.poll(&mut timer.sleep_until(Moment::from_nanos(7))),
        READY
    ); // in the past
}

#[test]
fn a_sleep_counts_in_the_ticks_of_its_timer() {
    let tick = TickLength::new(7 * MS).unwrap();
    let (timer, task) = (ManualTimer::with(tick, WheelSize::KAFKA), Woken::task());
    let mut sleep = timer.sleep(50 * MS);
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!(timer.next_due_in(), Some(56 * MS));
    timer.advance(56 * MS);
    assert_eq!((task.times(), task.poll(&mut sleep)), (1, READY));
}

#[test]
fn a_sleep_without_time_is_ready_at_its_first_poll() {
    let (timer, task) = manual();
    timer.advance(MS / 2); // between two ticks
    assert_eq!(task.poll(&mut timer.sleep(Duration::ZERO)), READY);
    assert_eq!(task.poll(&mut timer.sleep_until(timer.now())), READY);
    assert_eq!(timer.sleepers(), 0);
    // A registered sleep is woken at once.
    let mut sleep = timer.sleep(MS);
    assert!(task.poll(&mut sleep).is_pending());
    sleep.reset(Duration::ZERO);
    timer.advance(Duration::ZERO);
    assert_eq!((task.times(), task.poll(&mut sleep)), (1, READY));
    // A sleep whose time is not over is not ready.
    let mut soon = timer.sleep(Duration::from_nanos(1));
    assert!(!soon.is_due() && task.poll(&mut soon).is_pending());
}

/// Otherwise its task would never wait.
#[test]
fn an_interval_of_a_nanosecond_ticks_once_a_tick() {
    let (timer, task) = manual();
    let mut beat = timer.interval(Duration::from_nanos(1)).unwrap();
    for _ in 0..3 {
        assert!(tick(&mut beat, &task).is_pending());
        timer.pass(MS / 2);
        assert!(tick(&mut beat, &task).is_pending());
        timer.advance(MS / 2);
        assert!(tick(&mut beat, &task).is_ready());
        timer.pass(Duration::from_nanos(5));
        assert!(tick(&mut beat, &task).is_pending());
        timer.advance(MS - Duration::from_nanos(5));
        assert!(tick(&mut beat, &task).is_ready());
    }
}

#[test]
fn a_reset_moves_the_time_and_keeps_the_waker() {
    let (timer, task) = manual();
    let mut sleep = timer.sleep(5 * MS);
    sleep.reset(2 * MS); // not polled yet: nothing is registered
    assert!(timer.sleepers() == 0);
    assert!(task.poll(&mut sleep).is_pending());
    sleep.reset(10 * MS); // to a later time
    timer.advance(9 * MS);
    assert_eq!((task.times(), sleep.is_due()), (0, false));
    sleep.reset_to(Moment::from_nanos(9_500_000)); // to an earlier time
    sleep.reset(20 * MS);
    sleep.reset_to(Moment::default());
    timer.advance(Duration::ZERO);
    assert_eq!((task.times(), task.poll(&mut sleep)), (1, READY));
    sleep.reset(MS); // after its end: it sleeps again
    assert!(task.poll(&mut sleep).is_pending());
    timer.advance(MS);
    assert_eq!((task.times(), task.poll(&mut sleep)), (2, READY));
}

/// That holds for sleeps, intervals, tasks and the values of a queue.
#[test]
fn what_lies_beyond_the_end_of_time_never_comes() {
    // A tick that divides the end of time, so that one of the ticks begins there.
    let divisor = Duration::from_nanos(257 * 641 * 6_700_417);
    for length in [TickLength::MILLISECOND, TickLength::new(divisor).unwrap()] {
        let timer = ManualTimer::with(length, WheelSize::default());
        let task = Woken::task();
        let never = || unreachable!("at the end of time");
        let moved = timer.schedule(MS, never).unwrap();
        timer.schedule(Duration::MAX, never).unwrap();
        timer.schedule_at(Moment::NEVER, never).unwrap();
        assert!(timer.reschedule(moved, Duration::MAX));
        timer.advance(MS);
        let mut sleeps = [timer.sleep(Duration::MAX), timer.sleep_until(Moment::NEVER)];
        let mut beat = timer.interval(Duration::MAX).unwrap();
        let mut queue = DelayQueue::new(&timer);
        assert_eq!(over(&mut Box::pin(queue.next())), None);
        queue.insert_at((), Moment::NEVER).unwrap();
        let mut nothing_comes = || {
            assert!(sleeps.iter_mut().all(|sleep| task.poll(sleep).is_pending()));
            assert!(tick(&mut beat, &task).is_pending());
            assert!(task.poll(&mut Box::pin(queue.next())).is_pending());
            assert_eq!(
                (timer.next_due_in(), timer.advance_to_next()),
                (None, false)
            );
        };
        nothing_comes();
        timer.advance(Duration::MAX);
        nothing_comes();
        assert_eq!(task.times(), 0);
        assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 3);
        assert_eq!(task.times(), 4);
    }
}

#[test]
fn a_shutdown_wakes_all_who_sleep_and_refuses_more() {
    let (timer, task) = manual();
    let mut sleeps: Vec<_> = (1..=1000).map(|ms| timer.sleep(ms * MS)).collect();
    assert!(sleeps.iter_mut().all(|sleep| task.poll(sleep).is_pending()));
    let mut over = timer.sleep(Duration::ZERO);
    assert!(timer.shutdown(Duration::MAX).unfired.is_empty());
    assert_eq!(task.times(), 1000);
    assert_eq!(task.wakers(), 0);
    assert_eq!(timer.sleepers(), 0);
    assert!(sleeps.iter_mut().all(|sleep| task.poll(sleep) == CLOSED));
    assert_eq!(task.poll(&mut timer.sleep(MS)), CLOSED);
    assert_eq!(task.poll(&mut over), READY);
    timer.pass(MS); // time goes on
    assert_eq!(task.poll(&mut sleeps[0]), READY);
    assert_eq!(task.poll(&mut sleeps[1]), CLOSED);
}

/// A waker that shuts the timer down itself, in place, does not wait.
#[test]
fn a_shutdown_waits_for_what_another_runs_in_place() {
    in_time(|| {
        let timer = ManualTimer::new();
        let (stop, woken) = (Stop::armed(), Arc::new(AtomicUsize::new(0)));
        let (inside, held, count) = (timer.clone(), stop.clone(), woken.clone());
        let waker = waker(move || {
            held.here();
            assert!(inside.shutdown(Duration::MAX).threads >= 1);
            count.fetch_add(1, SeqCst);
        });
        let mut sleeps = [timer.sleep(MS), timer.sleep(MS)];
        for sleep in &mut sleeps {
            assert!(poll_by(sleep, &waker).is_pending());
        }
        let other = timer.clone();
        let first = thread::spawn(move || other.shutdown(Duration::ZERO).threads);
        stop.meanwhile(|| assert_eq!(timer.shutdown(Duration::ZERO).threads, 1));
        assert_eq!(timer.shutdown(Duration::MAX).threads, 0);
        assert_eq!((woken.load(SeqCst), timer.stats().panics), (2, 0));
        first.join().unwrap();
    });
}

/// A waker that panics when it wakes, and that checks at each call that nothing of the timer is
/// locked.
struct Hostile {
    timer: ManualTimer,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Hostile {
    fn called(&self, call: &'static str) {
        self.timer.sleepers(); // takes every lock of the timer
        self.calls.lock().unwrap().push(call);
    }
}

impl Clone for Hostile {
    fn clone(&self) -> Self {
        self.called("clone");
        Hostile {
            timer: self.timer.clone(),
            calls: self.calls.clone(),
        }
    }
}

impl WakeRef for Hostile {
    fn wake_by_ref(&self) {
        self.called("wake");
        panic!("in a waker");
    }
}

impl cooked_waker::Wake for Hostile {}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.called("drop");
    }
}

#[test]
fn wakers_run_with_nothing_locked() {
    let (timer, other) = manual();
    let calls = Arc::default();
    let hostile = Hostile {
        timer: timer.clone(),
        calls: Arc::clone(&calls),
    };
    let waker = &*Box::leak(Box::new(Box::new(hostile).into_waker())); // never dropped
    let mut sleeps = [
        timer.sleep(MS),
        timer.sleep(MS),
        timer.sleep(MS),
        timer.sleep(5 * MS),
    ];
    for sleep in &mut sleeps {
        assert!(poll_by(sleep, waker).is_pending());
    }
    assert!(other.poll(&mut sleeps[0]).is_pending()); // replaces the waker, which is dropped
    assert!(poll_by(&mut sleeps[0], waker).is_pending());
    assert!(other.poll(&mut sleeps[1]).is_pending()); // between two wakers that panic
    let [called, _woken, called_too, dropped] = &mut sleeps;
    *dropped = timer.sleep(9 * MS);
    timer.advance(MS);
    assert_eq!(
        (other.times(), timer.stats().panics),
        (1, 2),
        "no other is held up"
    );
    assert_eq!(poll_by(called, waker), READY);
    assert_eq!(poll_by(called_too, waker), READY);
    assert!(poll_by(dropped, waker).is_pending());
    timer.shutdown(Duration::MAX);
    let count = |of| {
        calls
            .lock()
            .unwrap()
            .iter()
            .filter(|&&call| call == of)
            .count()
    };
    assert_eq!((count("clone"), count("wake"), count("drop")), (6, 3, 6));
    assert_eq!(timer.stats().panics, 3);
}

#[test]
fn a_timeout_ends_with_the_future_or_its_time() {
    let (timer, task) = manual();
    let none = Duration::ZERO;
    let expected = Poll::Ready(Ok(7));
    assert_eq!(
        task.poll(&mut pin!(timeout(timer.sleep(none), ready(7)))),
        expected
    );
    let late = Poll::Ready(Err(TimerError::Elapsed));
    assert_eq!(
        task.poll(&mut pin!(timeout(timer.sleep(none), pending::<()>()))),
        late
    );

    // A future that is ready at the end of its time is in time.
    let mut both = pin!(timeout(timer.sleep(MS), timer.sleep(MS)));
    let mut dropped = Box::pin(timeout(timer.sleep(MS), pending::<()>()));
    let mut never = pin!(timeout(timer.sleep(2 * MS), pending::<()>()));
    let mut closed = pin!(timeout(timer.sleep(3 * MS), pending::<()>()));
    assert!(task.poll(&mut both).is_pending() && task.poll(&mut never).is_pending());
    assert!(task.poll(&mut dropped).is_pending() && task.poll(&mut closed).is_pending());
    assert_eq!(timer.sleepers(), 5);
    drop(dropped);
    assert_eq!((task.wakers(), timer.sleepers()), (4, 4));
    timer.advance(MS);
    assert_eq!(task.times(), 2);
    assert_eq!(task.poll(&mut both), Poll::Ready(Ok(Ok(()))));
    timer.advance(MS);
    assert_eq!((task.times(), task.poll(&mut never)), (3, late));
    timer.shutdown(Duration::MAX);
    assert_eq!(task.times(), 4);
    assert_eq!(task.poll(&mut closed), Poll::Ready(Err(TimerError::Closed)));
}

#[test]
fn a_sleep_takes_32_bytes_and_no_allocation() {
    fn anywhere<T: Send + Sync + Unpin + 'static>() {}
    anywhere::<Sleep>();
    anywhere::<Interval>();
    assert_eq!(size_of::<Sleep>(), 32);

    let (timer, task) = manual();
    let once = || {
        let mut sleep = timer.sleep(MS);
        assert!(task.poll(&mut sleep).is_pending());
    };
    assert_eq!(a_hundred_more(once).count_total, 0);
}
