//! `DelayQueue` under a manual clock, one promise at a time. (`models/stepped_queue` compares it
//! with a map.)

use std::{cell::Cell, rc::Rc};

use timer_core::Expired;

use crate::support::*;

const NONE: Duration = Duration::ZERO;

/// Polls until the queue is empty or has to wait; returns the values.
fn poll_all<T>(queue: &mut DelayQueue<T>, task: &Arc<Woken>) -> Vec<T> {
    let mut values = Vec::new();
    while let Poll::Ready(Some(expired)) = poll(queue, task) {
        values.push(expired.unwrap().value);
    }
    values
}

/// Polls as the task, again at once if the queue woke the task.
fn poll<T>(
    queue: &mut DelayQueue<T>,
    task: &Arc<Woken>,
) -> Poll<Option<Result<Expired<T>, TimerError>>> {
    loop {
        let woken = task.times();
        let polled = queue.poll_expired(&mut Context::from_waker(&task.clone().into()));
        if polled.is_ready() || task.times() == woken {
            return polled;
        }
    }
}

#[test]
fn moments_are_deadlines_of_the_timers_clock() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    timer.advance(10 * MS);
    let began = timer.now();
    let moved = queue.insert_at("moved", began + HOUR).unwrap();
    queue.insert_at("never", Moment::NEVER).unwrap();
    queue.insert_at("past", Moment::from_nanos(5)).unwrap();
    assert_eq!(poll_all(&mut queue, &task), ["past"]);
    assert!(queue.reset_at(&moved, began + MS / 2)); // rounded up
    timer.advance(MS - Duration::from_nanos(1));
    assert_eq!((task.times(), poll_all(&mut queue, &task)), (0, vec![]));
    timer.advance(Duration::from_nanos(1));
    assert_eq!(task.times(), 1);
    assert_eq!(poll_all(&mut queue, &task), ["moved"]);
}

#[test]
fn idle_queue_wakes_its_owner_for_work_alone() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    let never = queue.insert(0, Duration::MAX).unwrap();
    let mut key = queue.insert(0, HOUR).unwrap();
    assert!(poll(&mut queue, &task).is_pending());
    for value in 1..1000 {
        queue.remove(&key).unwrap();
        key = queue.insert(value, HOUR).unwrap();
        timer.advance(10 * MS);
    }
    assert_eq!((task.times(), timer.sleepers()), (0, 1));
    // One wake-up is left over from the removed values; the hour takes one for each level.
    queue.remove(&key).unwrap();
    timer.advance(2 * HOUR);
    assert_eq!(task.times(), 1);
    queue.remove(&never).unwrap();
    assert!(matches!(poll(&mut queue, &task), Poll::Ready(None)));
    queue.insert(0, HOUR).unwrap();
    while timer.advance_to_next() {
        poll(&mut queue, &task).is_ready();
    }
    assert!((1..=4).contains(&(task.times() - 1)), "{}", task.times());
}

/// A task waits for a queue that it shares with another task, which empties the queue.
#[test]
fn taking_the_last_value_out_wakes_a_waiting_owner() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    for (times, way) in ["remove", "clear", "drain"].into_iter().enumerate() {
        let keys = [3, 5].map(|ms| queue.insert(0, MS * ms).unwrap());
        assert!(poll(&mut queue, &task).is_pending());
        assert_eq!((task.times(), timer.sleepers()), (times, 1));
        match way {
            "remove" => assert_eq!(keys.map(|key| queue.remove(&key)), [Some(0); 2]),
            "clear" => queue.clear(),
            _ => assert_eq!(queue.drain(), [0, 0]),
        }
        assert_eq!((task.times(), timer.sleepers()), (times + 1, 0), "{way}");
        // The task is woken once; a queue that no task waits for wakes none.
        let key = queue.insert(1, MS).unwrap();
        queue.remove(&key).unwrap();
        assert_eq!(task.times(), times + 1);
        assert_eq!(poll(&mut queue, &task), Poll::Ready(None));
        // A task that saw the queue empty waits only for an insertion.
        let key = queue.insert(1, MS).unwrap();
        queue.remove(&key).unwrap();
        assert_eq!((task.times(), timer.sleepers()), (times + 1, 1));
    }
}

/// After an idle time the wheel catches up with the present: a short delay takes no coarse bucket.
#[test]
fn a_short_delay_after_an_idle_time_wakes_once() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    queue.insert("far", 10 * HOUR).unwrap();
    assert!(poll(&mut queue, &task).is_pending());
    for (times, by_delay) in [true, false].into_iter().enumerate() {
        timer.advance(HOUR / 2);
        if by_delay {
            queue.insert("near", 50 * MS).unwrap();
        } else {
            // `insert_at` reads no clock, so a poll has to bring the wheel up to date.
            assert!(poll(&mut queue, &task).is_pending());
            queue.insert_at("near", timer.now() + 50 * MS).unwrap();
        }
        timer.advance(49 * MS);
        assert_eq!(task.times(), times);
        timer.advance(MS);
        assert_eq!(task.times(), times + 1);
        assert_eq!(poll_all(&mut queue, &task), ["near"]);
    }
    // A new queue begins at the present.
    let mut queue = DelayQueue::new(&timer);
    queue.insert_at("near", timer.now() + 50 * MS).unwrap();
    assert_eq!(queue.next_due_in(), Some(50 * MS));
}

#[test]
fn removed_value_no_longer_counts_in_next_due_in() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    let first = queue.insert("first", 5 * MS).unwrap();
    queue.insert("second", 50 * MS).unwrap();
    assert_eq!(queue.next_due_in(), Some(5 * MS));
    queue.remove(&first);
    assert_eq!(queue.next_due_in(), Some(50 * MS));
    // Values that were found due do not count either, once all are taken out.
    queue.insert("third", 50 * MS).unwrap();
    timer.pass(50 * MS);
    assert!(poll(&mut queue, &task).is_ready());
    queue.clear();
    queue.insert("fourth", HOUR).unwrap();
    let until = queue.next_due_in().unwrap();
    assert!(until > 30 * MINUTE, "{until:?}");
}

/// The owner has its value, and polls again by itself.
#[test]
fn an_owner_that_got_a_value_is_not_woken() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    queue.insert("first", MS).unwrap();
    let last = queue.insert("last", HOUR).unwrap();
    assert!(poll(&mut queue, &task).is_pending());
    timer.pass(MS); // its waker is still on the timer
    assert!(poll(&mut queue, &task).is_ready());
    assert_eq!((queue.remove(&last), task.times()), (Some("last"), 0));
}

#[test]
fn a_waker_that_panics_loses_no_value() {
    let timer = ManualTimer::new();
    let mut queue = DelayQueue::new(&timer);
    let key = queue.insert("kept", MS).unwrap();
    let waker = waker(|| panic!("in a waker"));
    let polled = queue.poll_expired(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert_eq!(queue.remove(&key), Some("kept"));
    assert_eq!(timer.stats().panics, 1);
}

#[test]
fn poll_hands_down_a_bounded_number_of_values() {
    // Late, and in the very tick at which a bucket is to be handed down.
    for (delay, advanced) in [(HOUR, HOUR - MS), (4100 * MS, 4096 * MS)] {
        let (timer, task) = manual();
        let mut queue = DelayQueue::new(&timer);
        for value in 0..1000 {
            queue.insert(value, delay + MS * (value % 50)).unwrap();
        }
        timer.advance(advanced);
        let mut polls = 0;
        loop {
            let woken = task.times();
            let polled = queue.poll_expired(&mut Context::from_waker(&task.clone().into()));
            assert!(polled.is_pending());
            if task.times() == woken {
                break;
            }
            polls += 1;
        }
        assert!(polls >= 1000 / 64, "{polls} polls");
        timer.advance(HOUR);
        assert_eq!(poll_all(&mut queue, &task).len(), 1000);
    }
}

#[test]
fn closed_timer_refuses_and_hands_values_back() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    queue.insert("due", MS).unwrap();
    queue.insert("left", 10 * MS).unwrap();
    let mut idle = DelayQueue::<()>::new(&timer);
    assert!(matches!(poll(&mut idle, &task), Poll::Ready(None)));
    assert!(poll(&mut queue, &task).is_pending());
    timer.shutdown(Duration::MAX);
    assert_eq!(task.times(), 2, "owners are woken");
    timer.pass(MS);
    let Poll::Ready(Some(Ok(due))) = poll(&mut queue, &task) else {
        panic!("time goes on");
    };
    assert_eq!(due.value, "due");
    for _ in 0..2 {
        let closed = poll(&mut queue, &task);
        assert_eq!(closed, Poll::Ready(Some(Err(TimerError::Closed))));
    }
    let refused = queue.insert("new", MS).unwrap_err();
    assert_eq!(refused.reason, TimerError::Closed);
    assert_eq!(refused.into_task(), "new");
    assert_eq!(queue.drain(), ["left"]);
    assert_eq!(poll(&mut queue, &task), Poll::Ready(None));
    assert_eq!(poll(&mut idle, &task), Poll::Ready(None));
}

/// Counts its drops. It is not `Send`, which a queue does not require.
struct Dropped(Rc<Cell<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn values_are_dropped_with_clear_and_the_queue() {
    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    let dropped = Rc::new(Cell::new(0));
    let fill = |queue: &mut DelayQueue<Dropped>| {
        for ms in 0..200 {
            queue.insert(Dropped(dropped.clone()), MS * ms).unwrap();
        }
        timer.advance(10 * MS);
        drop(poll(queue, &task)); // some of the other values were found due
    };
    fill(&mut queue);
    queue.clear();
    assert_eq!((dropped.get(), queue.len()), (200, 0));
    fill(&mut queue);
    assert_eq!(dropped.get(), 201);
    assert!(timer.sleepers() <= 1);
    drop(queue);
    assert_eq!(dropped.get(), 400);
    assert_eq!(timer.sleepers(), 0);
    assert_eq!(task.wakers(), 0);
}

#[test]
fn insert_and_remove_allocate_nothing_when_warm() {
    fn owned_anywhere<T: Send + Sync + Unpin + 'static>() {}
    owned_anywhere::<DelayQueue<String>>();

    let (timer, task) = manual();
    let mut queue = DelayQueue::new(&timer);
    let kept = queue.insert(0, HOUR).unwrap(); // keeps its page
    let mut round = || {
        for value in 0..50 {
            let key = queue.insert(value, MS * 20).unwrap();
            assert!(queue.reset(&key, MS * 30));
            assert!(poll(&mut queue, &task).is_pending());
            assert_eq!(queue.remove(&key), Some(value));
        }
    };
    round();
    assert_eq!(allocation_counter::measure(&mut round).count_total, 0);
    assert_eq!(queue.remove(&kept), Some(0));
}

/// A queue with a grace of 100 ms, and its owner.
struct Graced {
    timer: ManualTimer,
    queue: DelayQueue<&'static str>,
    owner: Arc<Woken>,
}

impl Graced {
    fn new() -> Self {
        let timer = ManualTimer::new();
        Graced {
            queue: DelayQueue::new(&timer).grace(100 * MS),
            timer,
            owner: Woken::task(),
        }
    }

    /// Polls after `by` has passed, like an owner that is woken; returns the number of wake-ups by
    /// then.
    fn values_after(&mut self, by: Duration) -> (Vec<&'static str>, usize) {
        self.timer.advance(by);
        (poll_all(&mut self.queue, &self.owner), self.owner.times())
    }

    /// Polls after a pause of the process, before the timer's own thread runs.
    fn values_after_pause(&mut self, by: Duration) -> Vec<&'static str> {
        self.timer.pass(by);
        poll_all(&mut self.queue, &self.owner)
    }
}

#[test]
fn after_a_pause_due_values_wait_one_bound() {
    let mut graced = Graced::new();
    let kept_alive = graced.queue.insert("kept alive", 1000 * MS).unwrap();
    graced.queue.insert("gone", 1010 * MS).unwrap();
    assert_eq!(graced.values_after(MS), (vec![], 0));
    // While the owner waits, it looks at the clock at least once in each bound.
    assert_eq!(graced.values_after(100 * MS), (vec![], 1));
    assert_eq!(graced.values_after(100 * MS), (vec![], 2));
    assert_eq!(graced.values_after_pause(1600 * MS), [""; 0]);
    assert_eq!(graced.queue.next_due_in(), Some(100 * MS));
    // The heartbeat that came meanwhile is read. Another poll does not shorten the rest of the
    // period.
    assert!(graced.queue.reset(&kept_alive, 1000 * MS));
    let woken = graced.owner.times();
    assert_eq!(graced.values_after(60 * MS), (vec![], woken));
    graced.queue.insert("new", NONE).unwrap();
    assert_eq!(graced.values_after(39 * MS).0, [""; 0]);
    // No second period follows, although this poll is late.
    assert_eq!(graced.values_after_pause(500 * MS), ["gone", "new"]);
    assert_eq!(graced.queue.len(), 1);
}

/// Otherwise nothing would wake the owner at the period's end.
#[test]
fn a_period_ends_with_the_timer() {
    let mut graced = Graced::new();
    graced.queue.insert("gone", 50 * MS).unwrap();
    graced.queue.insert("later", HOUR * 3).unwrap();
    assert_eq!(graced.values_after(NONE).0, [""; 0]);
    assert_eq!(graced.values_after_pause(HOUR), [""; 0]); // a period begins
    graced.timer.shutdown(Duration::MAX);
    let due = poll(&mut graced.queue, &graced.owner);
    assert_eq!(due.map_ok(|due| due.value), Poll::Ready(Some(Ok("gone"))));
    let left = poll(&mut graced.queue, &graced.owner);
    assert_eq!(left, Poll::Ready(Some(Err(TimerError::Closed))));
}

#[test]
fn a_pause_of_an_idle_queue_is_noticed() {
    let mut graced = Graced::new();
    assert_eq!(poll_all(&mut graced.queue, &graced.owner), [""; 0]);
    assert_eq!(graced.values_after(HOUR), (vec![], 0)); // an empty queue wakes nobody
    graced.queue.insert("session", 30_000 * MS).unwrap();
    assert_eq!(graced.values_after_pause(29_999 * MS), [""; 0]);
    assert_eq!(graced.values_after(50 * MS).0, [""; 0]); // due, but within the period
    assert_eq!(graced.values_after(50 * MS).0, ["session"]);
}

/// An owner that polls only while the queue holds values is not late because of the time in which
/// the queue was empty, whether its last value was removed, yielded or drained.
#[test]
fn an_empty_queue_is_no_pause() {
    let mut graced = Graced::new();
    let wait_for_next = |graced: &mut Graced| {
        assert!(graced.queue.is_empty());
        graced.timer.advance(HOUR);
        graced.queue.insert("next", 50 * MS).unwrap();
        assert_eq!(graced.queue.next_due_in(), Some(50 * MS));
        assert_eq!(graced.values_after(MS).0, [""; 0]);
        assert_eq!(graced.values_after(49 * MS).0, ["next"]); // by a poll
    };
    let kept_alive = graced.queue.insert("kept alive", 500 * MS).unwrap();
    assert_eq!(graced.values_after(MS).0, [""; 0]);
    graced.queue.remove(&kept_alive);
    wait_for_next(&mut graced);
    wait_for_next(&mut graced);
    graced.queue.insert("drained", 500 * MS).unwrap();
    graced.queue.clear();
    wait_for_next(&mut graced);
}

/// No value waited in the queue that a heartbeat could have kept.
#[test]
fn a_late_poll_of_an_empty_queue_begins_no_period() {
    let mut graced = Graced::new();
    graced.queue.insert("first", NONE).unwrap();
    assert!(poll(&mut graced.queue, &graced.owner).is_ready());
    assert_eq!(graced.values_after(HOUR).0, [""; 0]);
    graced.queue.insert("next", NONE).unwrap();
    assert_eq!(poll_all(&mut graced.queue, &graced.owner), ["next"]);
}

/// The period of the earlier values ends with them.
#[test]
fn pause_after_the_queue_was_emptied_is_noticed() {
    let mut graced = Graced::new();
    let kept_alive = graced.queue.insert("kept alive", 500 * MS).unwrap();
    assert_eq!(graced.values_after(NONE).0, [""; 0]);
    assert_eq!(graced.values_after_pause(HOUR), [""; 0]); // a period begins
    graced.queue.remove(&kept_alive);
    graced.timer.advance(HOUR);
    graced.queue.insert("session", 50 * MS).unwrap();
    assert_eq!(graced.values_after(NONE).0, [""; 0]);
    assert_eq!(graced.values_after_pause(HOUR), [""; 0]); // another period begins
    assert_eq!(graced.values_after(100 * MS).0, ["session"]);
}

#[test]
fn a_poll_within_the_bound_yields_at_once() {
    for bound in [Duration::ZERO, 100 * MS] {
        let mut graced = Graced::new();
        graced.queue = graced.queue.grace(bound);
        graced.queue.insert("due", 50 * MS).unwrap();
        assert_eq!(graced.values_after(NONE), (vec![], 0));
        assert_eq!(graced.values_after_pause(150 * MS), ["due"]);
        // The queue is empty now, and wakes nobody.
        let woken = graced.owner.times();
        assert_eq!(graced.values_after(HOUR), (vec![], woken));
    }
    // A bound of zero means no grace.
    let mut graced = Graced::new();
    graced.queue = graced.queue.grace(NONE);
    graced.queue.insert("due", 50 * MS).unwrap();
    assert_eq!(graced.values_after_pause(HOUR), ["due"]);
}

#[test]
fn an_owner_is_late_from_its_last_poll_on() {
    let mut graced = Graced::new();
    for (value, due) in [("first", 50 * MS), ("second", 155 * MS)] {
        graced.queue.insert(value, due).unwrap();
    }
    assert_eq!(graced.values_after(NONE), (vec![], 0));
    graced.timer.pass(140 * MS);
    assert!(poll(&mut graced.queue, &graced.owner).is_ready());
    assert_eq!(graced.values_after_pause(20 * MS), ["second"]);
}

/// The grace may be set after the values were inserted.
#[test]
fn grace_bounds_the_wake_up_of_present_values() {
    let mut graced = Graced::new();
    graced.queue = DelayQueue::new(&graced.timer);
    graced.queue.insert("session", 1000 * MS).unwrap();
    graced.queue = graced.queue.grace(100 * MS);
    assert_eq!(graced.values_after(NONE), (vec![], 0));
    assert_eq!(graced.queue.next_due_in(), Some(100 * MS));
    assert_eq!(graced.values_after(100 * MS), (vec![], 1));
    assert_eq!(graced.values_after_pause(1000 * MS), [""; 0]);
    assert_eq!(graced.values_after(100 * MS).0, ["session"]);
}

/// Each of these polls comes soon after the one before.
#[test]
fn polls_that_hand_values_down_are_no_pause() {
    let mut graced = Graced::new();
    for _ in 0..1000 {
        graced.queue.insert("later", 8000 * MS).unwrap();
    }
    let waker = graced.owner.clone().into();
    let mut context = Context::from_waker(&waker);
    let mut is_woken_after = |by| {
        graced.timer.advance(by);
        let woken = graced.owner.times();
        assert!(graced.queue.poll_expired(&mut context).is_pending());
        graced.owner.times() > woken
    };
    while !is_woken_after(50 * MS) {}
    for poll in 2..=15 {
        assert!(is_woken_after(30 * MS), "poll {poll} puts the others off");
    }
}

/// The owner has no key of the value, but is woken for it.
#[test]
fn a_value_whose_insertion_panicked_comes_out_in_time() {
    let clock = Set::default();
    let timer = system_timer(|builder| builder.clock(Acting(clock.clone())).inline());
    let owner = Woken::task();
    let mut queue = DelayQueue::new(&timer).grace(SECOND);
    assert!(poll(&mut queue, &owner).is_ready());
    at_next_read(|| panic!("the clock panics"));
    let at = Moment::from_nanos(100_000_000);
    let inserted = catch_unwind(AssertUnwindSafe(|| queue.insert_at(7, at)));
    assert!(inserted.is_err());
    assert!(queue.next_due_in().is_some_and(|due| due <= 100 * MS));
    clock.0.store(100_000_000, SeqCst);
    assert_eq!(poll_all(&mut queue, &owner), [7]);
}

/// A clock must not do that. If it does, values are late, and their owner waits.
#[test]
fn a_clock_that_goes_back_keeps_no_poll_from_its_end() {
    in_time(|| {
        let clock = Set::default();
        let timer = system_timer(|builder| builder.clock(clock.clone()).inline());
        let owner = Woken::task();
        let mut queue = DelayQueue::new(&timer);
        for ms in [10, 20] {
            queue.insert(ms, MS * ms).unwrap();
        }
        clock.0.store(15_000_000, SeqCst);
        assert!(matches!(poll(&mut queue, &owner), Poll::Ready(Some(_))));
        clock.0.store(12_000_000, SeqCst);
        assert!(poll(&mut queue, &owner).is_pending());
        clock.0.store(20_000_000, SeqCst);
        assert_eq!(poll_all(&mut queue, &owner), [20]);
    });
}

/// A clock that the test sets.
#[derive(Clone, Debug, Default)]
struct Set(Arc<AtomicU64>);

impl Clock for Set {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }
}

#[test]
fn a_timer_that_is_shut_down_begins_no_period() {
    let mut graced = Graced::new();
    graced.queue.insert("due", 50 * MS).unwrap();
    assert_eq!(graced.values_after(NONE), (vec![], 0));
    graced.timer.shutdown(Duration::MAX);
    assert_eq!(graced.values_after_pause(HOUR), ["due"]);
}

/// Numbers have no spare value that an `Option` could use for `None`.
#[test]
fn a_value_takes_26_bytes_beside_an_option_of_it() {
    fn beside<T>(value: impl Fn(u64) -> T) -> f64 {
        let mut queue = DelayQueue::new(&ManualTimer::new());
        let fill = || (0..10_000).for_each(|number| _ = queue.insert(value(number), HOUR));
        let bytes = allocation_counter::measure(fill).bytes_current;
        bytes as f64 / 10_000.0 - size_of::<Option<T>>() as f64
    }
    for beside in [beside(|number| number), beside(|_| "a word")] {
        assert!((25.0..26.5).contains(&beside), "{beside}");
    }
}
