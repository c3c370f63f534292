//! A manual timer asks only wheels that were locked. The tests count looks; they measure no times.

use std::future::poll_fn;

use crate::{
    owner::{Asked, Owner},
    support::*,
};

const SHARDS: usize = 128;

fn owner(timer: &ManualTimer) -> Arc<Owner> {
    Owner::on(&timer.driver(), SHARDS, &[])
}

/// Sleeps this often, for a millisecond each, while the timer settles.
fn settle_over_sleeps(timer: &ManualTimer, sleeps: u32) {
    let asleep = async {
        for _ in 0..sleeps {
            timer.sleep(MS).await.unwrap();
        }
        timer.now()
    };
    let settled = timer.settle(MS * sleeps);
    let both = futures_util::future::join(asleep, settled);
    assert_eq!(pollster::block_on(both).0, timer.now());
}

#[test]
fn settling_asks_no_wheel_that_nobody_locked() {
    let timer = ManualTimer::new();
    let idle = [(); 8].map(|()| owner(&timer));
    for owner in &idle {
        owner.insert(7, 3_600_000);
    }
    settle_over_sleeps(&timer, 1);
    let before = idle.each_ref().map(|owner| owner.asked());
    let few = |asked: &Asked| asked.looks <= 2 * SHARDS;
    assert!(before.iter().all(few), "{before:?}");
    settle_over_sleeps(&timer, 1000);
    timer.advance(SECOND);
    let after = idle.each_ref().map(|owner| owner.asked());
    assert_eq!(before, after);
    // The timer has not forgotten them.
    timer.advance(HOUR);
    assert!(idle.iter().all(|owner| owner.asked().rounds > 0));
    assert_eq!(timer.stats().pending, 0);
}

/// Each tick has an insertion and an advance; one look follows each.
#[test]
fn one_shard_in_use_is_asked_after_each_use() {
    let timer = ManualTimer::new();
    let owner = owner(&timer);
    timer.advance(MS);
    let before = owner.asked();
    for tick in 2..1002 {
        owner.insert(99, tick);
        assert_eq!(timer.next_due_in(), Some(MS));
        assert_eq!(timer.next_due_in(), Some(MS));
        timer.advance(MS);
        assert_eq!(timer.next_due_in(), None);
    }
    let after = owner.asked();
    let looks = after.looks - before.looks;
    assert_eq!((looks, after.advances - before.advances), (2000, 1000));
}

#[test]
fn tasks_that_schedule_nothing_let_a_settle_end() {
    let timer = ManualTimer::new();
    let handle = timer.schedule(HOUR, || ()).unwrap();
    // The settle is polled until it ends; the task looks at the timer each time.
    let mut settled = std::pin::pin!(timer.settle(SECOND));
    pollster::block_on(poll_fn(|context| {
        assert!(timer.is_pending(handle) && timer.len() == 1 && timer.sleepers() == 0);
        settled.as_mut().poll(context)
    }));
    assert_eq!(timer.now().as_nanos(), 1_000_000_000);
}

/// Any scheduling counts: these tasks are not due before the existing ones.
#[test]
fn a_settle_goes_on_while_tasks_schedule() {
    let timer = ManualTimer::new();
    let mut settled = pin!(timer.settle(Duration::ZERO));
    for _ in 0..5 {
        for _ in 0..60 {
            assert!(poll(&mut settled).is_pending());
        }
        timer.schedule(HOUR, || ()).unwrap();
    }
    while poll(&mut settled).is_pending() {}
}

/// The owner's shard is locked before it is attached; its values go with it.
#[test]
fn owners_come_and_go_between_two_questions() {
    let timer = ManualTimer::new();
    let owner = Owner::new(&timer.driver(), SHARDS, &[]);
    drop(owner.shards.lock(70));
    assert_eq!(timer.next_due_in(), None);
    assert!(timer.driver().attach(&owner, &owner.shards));
    owner.insert(70, 9);
    owner.insert(1, 5);
    assert_eq!(timer.next_due_in(), Some(MS * 5));
    let tasks = timer.with_handler(|(): ()| ());
    tasks.schedule(MS * 3, ()).unwrap();
    assert_eq!(timer.next_due_in(), Some(MS * 3));
    drop(tasks);
    assert_eq!(timer.next_due_in(), Some(MS * 5));
    drop(owner);
    assert_eq!(timer.next_due_in(), None);
    assert!(!timer.advance_to_next());
}

/// If a running task schedules one in the same tick, that is due too, even on a wheel already
/// passed.
#[test]
fn a_tick_is_done_with_all_that_its_tasks_schedule() {
    let timer = ManualTimer::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let later = timer.with_handler(|task: Box<dyn FnOnce() + Send>| task());
    let again = timer.clone();
    let count = ran.clone();
    let task = move || {
        let now = again.now();
        let scheduled = again.schedule_at(now, move || _ = count.fetch_add(1, SeqCst));
        scheduled.unwrap();
    };
    later.schedule(MS * 5, Box::new(task)).unwrap();
    timer.advance(MS * 5);
    assert_eq!(ran.load(SeqCst), 1);
    assert_eq!(timer.now().as_nanos(), 5_000_000);
}

/// The time advances only as far as it is told to, however often the settle looks meanwhile.
#[test]
fn a_settle_waits_for_an_advance_on_another_thread() {
    let (timer, stop) = (ManualTimer::new(), Stop::armed());
    let held = stop.clone();
    timer.schedule(MS, move || held.here()).unwrap();
    timer.schedule(5 * MS, || ()).unwrap();
    let advancing = timer.clone();
    let advance = thread::spawn(move || advancing.advance(MS));
    let mut settle = pin!(timer.settle(10 * MS));
    stop.meanwhile(|| {
        for _ in 0..1000 {
            assert!(poll(&mut settle).is_pending());
        }
    });
    advance.join().unwrap();
    while poll(&mut settle).is_pending() {}
    assert_eq!((timer.now().as_nanos(), timer.len()), (11_000_000, 0));
}

/// The next task is cancelled between two questions of a settle, as by another thread. The settle
/// goes only as far as it was told to.
#[test]
fn a_settle_goes_no_further_for_a_cancel() {
    let timer = ManualTimer::new();
    let near = timer.schedule(MS, || ()).unwrap();
    timer.schedule(HOUR, || ()).unwrap();
    // The owner is asked each time, after the timer's tasks: 65 times while the settle lets tasks
    // run.
    let owner = Owner::on(&timer.driver(), 1, &[]);
    let (asked, cancels) = (Arc::downgrade(&owner), timer.clone());
    let at_look = move || {
        let owner = asked.upgrade().unwrap();
        drop(owner.shards.lock(0));
        if owner.asked().looks == 66 {
            cancels.cancel(near);
        }
    };
    assert!(owner.at_look.set(Box::new(at_look)).is_ok());
    drop(owner.shards.lock(0));
    let mut settle = pin!(timer.settle(MS));
    while poll(&mut settle).is_pending() {}
    assert_eq!((timer.now().as_nanos(), timer.len()), (1_000_000, 1));
}

/// Like an `advance` in a task: the clock moves once the task is over.
#[test]
fn a_settle_inside_a_task_moves_the_goal() {
    let timer = ManualTimer::new();
    let inside = timer.clone();
    let settle = move || pollster::block_on(inside.settle(5 * MS));
    timer.schedule(MS, settle).unwrap();
    timer.schedule(3 * MS, || ()).unwrap();
    timer.advance(MS);
    assert_eq!((timer.now().as_nanos(), timer.len()), (6_000_000, 0));
}

/// Handing the values down takes 300 polls, and nothing else about the timer shows that.
#[test]
fn a_settle_waits_for_a_queue_that_hands_values_down() {
    let timer = ManualTimer::new();
    let mut queue = DelayQueue::new(&timer);
    for value in 0..300 * 64 {
        queue.insert(value, 70 * SECOND).unwrap();
    }
    let owner = async {
        while let Some(expired) = queue.next().await {
            expired.unwrap();
        }
        timer.now().as_nanos()
    };
    let both = futures_util::future::join(owner, timer.settle(100 * SECOND));
    assert_eq!(pollster::block_on(both).0, 70_000_000_000);
}
