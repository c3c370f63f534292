//! One task a key, as Kafka's coordinator timer has them, under a hand-turned clock.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use timer_core::{KeyedTimer, ManualTimer, ScheduleErrorReason, SystemTimer, Timer};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn keyed() -> (ManualTimer, KeyedTimer<&'static str, u32>, mpsc::Receiver<(&'static str, u32)>) {
    let timer = ManualTimer::new();
    let (send, ran) = mpsc::channel();
    let keyed = KeyedTimer::new(&timer, move |key, task| send.send((key, task)).unwrap()).unwrap();
    (timer, keyed, ran)
}

#[test]
fn a_keyed_task_runs_once_and_its_key_is_free_again() {
    let (timer, keyed, ran) = keyed();
    keyed.schedule("a", 10 * MS, 1).unwrap();
    assert!(keyed.contains(&"a"));
    timer.advance(10 * MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [("a", 1)]);
    assert!(!keyed.contains(&"a") && keyed.cancel(&"a").is_none() && keyed.is_empty());
}

#[test]
fn a_handler_that_panics_is_counted_and_the_other_keys_run() {
    let (timer, (send, ran)) = (ManualTimer::new(), mpsc::channel());
    let handler = move |key, task| match key {
        "bad" => panic!("in a handler"),
        _ => send.send((key, task)).unwrap(),
    };
    let keyed = KeyedTimer::new(&timer, handler).unwrap();
    keyed.schedule("bad", MS, 1).unwrap();
    keyed.schedule("good", MS, 2).unwrap();
    assert_eq!(keyed.panicked(), 0);
    timer.advance(MS);
    assert_eq!((keyed.panicked(), ran.try_iter().collect::<Vec<_>>()), (1, vec![("good", 2)]));
}

#[test]
fn scheduling_a_key_again_replaces_its_task() {
    let (timer, keyed, ran) = keyed();
    keyed.schedule("a", 10 * MS, 1).unwrap();
    keyed.schedule("a", 20 * MS, 2).unwrap();
    assert_eq!(keyed.len(), 1);
    timer.advance(15 * MS);
    assert!(ran.try_recv().is_err());
    timer.advance(5 * MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [("a", 2)]);
}

#[test]
fn schedule_if_absent_leaves_what_is_there() {
    let (timer, keyed, ran) = keyed();
    assert!(keyed.schedule_if_absent("a", 10 * MS, 1).unwrap());
    assert!(!keyed.schedule_if_absent("a", MS, 2).unwrap());
    timer.advance(10 * MS);
    assert!(keyed.schedule_if_absent("a", 10 * MS, 3).unwrap());
    timer.advance(10 * MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [("a", 1), ("a", 3)]);
}

#[test]
fn cancelling_before_the_time_and_all_at_once() {
    let (timer, keyed, ran) = keyed();
    for (number, key) in ["a", "b", "c"].into_iter().enumerate() {
        keyed.schedule(key, 10 * MS, number as u32).unwrap();
    }
    assert_eq!(keyed.cancel("b"), Some(1));
    assert_eq!((keyed.cancel_all(), keyed.len()), (2, 0));
    timer.advance(SECOND);
    assert!(ran.try_recv().is_err());
}

/// By `&str` where keys are `String`; the task need not be `Sync`.
#[test]
fn a_keys_task_is_reached_delayed_and_taken_back_by_what_the_key_is_borrowed_as() {
    let (timer, (send, ran)) = (ManualTimer::new(), mpsc::channel());
    let handler = move |key: String, task: Cell<u32>| send.send((key, task.get())).unwrap();
    let keyed = KeyedTimer::new(&timer, handler).unwrap();
    for key in ["a", "b"] {
        assert!(keyed.schedule(key.to_owned(), 10 * MS, Cell::new(1)).unwrap().is_none());
    }
    timer.advance(9 * MS);
    assert!(keyed.reschedule("a", 10 * MS) && !keyed.reschedule("c", 10 * MS));
    keyed.with("a", |task| task.set(task.get() + 1)).unwrap();
    assert!(keyed.with("c", |_| ()).is_none());
    assert_eq!(keyed.cancel("b").map(Cell::into_inner), Some(1));
    assert!(keyed.contains("a") && !keyed.contains("b"));
    timer.advance(9 * MS);
    assert!(ran.try_recv().is_err());
    assert!(keyed.reschedule("a", 20 * MS) && keyed.reschedule("a", MS)); // earlier again
    timer.advance(MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [("a".to_owned(), 2)]);
    assert!(!keyed.reschedule("a", MS) && keyed.is_empty());
    keyed.schedule("a".to_owned(), MS, Cell::new(1)).unwrap();
    timer.shutdown();
    assert!(!keyed.reschedule("a", MS) && keyed.cancel("a").is_some());
}

/// The task has fallen due but has not run: cancel, replace and reschedule still win.
#[test]
fn cancelling_after_the_time_but_before_the_run_wins() {
    let timer = ManualTimer::new();
    let (send, ran) = mpsc::channel();
    let own: Arc<Mutex<Option<KeyedTimer<&str, u32>>>> = Arc::default();
    let inside = own.clone();
    let keyed = KeyedTimer::new(&timer, move |key, task| {
        send.send((key, task)).unwrap();
        if key == "first" {
            let keyed = inside.lock().unwrap().clone().unwrap();
            assert_eq!(keyed.cancel("second"), Some(1));
            assert_eq!(keyed.schedule("third", 5 * MS, 33).unwrap(), Some(2));
            assert!(keyed.reschedule("fourth", 6 * MS));
            assert_eq!(keyed.with("fourth", |task| std::mem::replace(task, 44)), Some(3));
        }
    })
    .unwrap();
    *own.lock().unwrap() = Some(keyed.clone());
    for (number, key) in ["first", "second", "third", "fourth"].into_iter().enumerate() {
        keyed.schedule(key, 10 * MS, number as u32).unwrap(); // all due in one tick, one batch
    }
    timer.advance(SECOND);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [("first", 0), ("third", 33), ("fourth", 44)]);
    own.lock().unwrap().take();
}

#[test]
fn a_refused_keyed_task_comes_back_and_leaves_what_was_there() {
    let (timer, keyed, _ran) = keyed();
    timer.shutdown();
    let refused = keyed.schedule("a", MS, 7).unwrap_err();
    assert_eq!(refused.into_parts(), (7, ScheduleErrorReason::Closed));
    assert!(keyed.is_empty());
}

#[test]
fn at_the_bound_the_heartbeat_of_a_present_key_is_accepted_and_no_other() {
    let timer = SystemTimer::builder().pending_max(2).build().unwrap();
    let keyed = KeyedTimer::new(&timer, |_: &str, _: u32| ()).unwrap();
    let hour = 3600 * SECOND;
    keyed.schedule("a", hour, 1).unwrap();
    keyed.schedule("b", hour, 2).unwrap();
    for task in 3..10 {
        keyed.schedule("a", hour, task).unwrap();
        let refused = keyed.schedule("c", hour, task).unwrap_err();
        assert_eq!(refused.into_parts(), (task, ScheduleErrorReason::Full { limit: 2 }));
    }
    assert_eq!(keyed.cancel("b"), Some(2));
    keyed.schedule("c", hour, 0).unwrap();
    assert!(keyed.schedule("b", hour, 0).is_err() && keyed.schedule("a", hour, 0).is_ok());
    timer.shutdown();
    assert!(keyed.schedule("a", hour, 0).is_err() && keyed.contains(&"a"));
}

#[test]
fn a_peak_of_keys_is_given_back() {
    let timer = ManualTimer::new();
    let keyed_timer = KeyedTimer::new(&timer, |_: u64, (): ()| ()).unwrap();
    for fire in [false, true] {
        let kept = allocation_counter::measure(|| {
            (0..200_000).for_each(|key| _ = keyed_timer.schedule(key, SECOND, ()).unwrap());
            if fire {
                timer.advance(SECOND);
            } else {
                (0..200_000).for_each(|key| assert_eq!(keyed_timer.cancel(&key), Some(())));
            }
        });
        assert!(keyed_timer.is_empty());
        assert!(kept.bytes_current < 300_000, "{} bytes stay", kept.bytes_current);
    }
}

struct DropBomb;

impl Drop for DropBomb {
    fn drop(&mut self) {
        panic!("in a drop");
    }
}

#[test]
fn two_tasks_whose_drops_panic_go_with_their_timer() {
    let timer = ManualTimer::new();
    let tasks = timer.with_handler(drop::<DropBomb>).unwrap();
    (0..3).for_each(|_| _ = tasks.schedule(SECOND, DropBomb).unwrap());
    let cancelled = timer.stats().cancelled;
    drop(tasks);
    assert_eq!(timer.stats().cancelled, cancelled);

    let keyed = KeyedTimer::new(&timer, |_: u32, _: DropBomb| ()).unwrap();
    (0..100).for_each(|key| _ = keyed.schedule(key, SECOND, DropBomb).unwrap());
    drop(keyed);
}

/// A key of a map that panics as it is dropped there.
#[derive(Clone, PartialEq, Eq, Hash)]
struct DropsBadly(u32, bool);

impl Drop for DropsBadly {
    fn drop(&mut self) {
        assert!(!self.1, "in a key's drop");
    }
}

#[test]
fn a_key_that_panics_as_it_is_dropped_keeps_no_task_from_its_handler() {
    let timer = ManualTimer::new();
    let (send, ran) = mpsc::channel();
    let handler = move |mut key: DropsBadly, task: u32| {
        key.1 = false;
        send.send((key.0, task)).unwrap();
    };
    let keyed = KeyedTimer::new(&timer, handler).unwrap();
    keyed.schedule(DropsBadly(1, true), MS, 7).unwrap();
    timer.advance(MS);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [(1, 7)]);
    assert!(keyed.is_empty());
}
