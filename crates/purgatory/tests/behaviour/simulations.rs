//! On a manual timer, the ends that one call causes come in the same order in each run, over many
//! keys, too.

use crate::support::*;

const KEYS: u32 = 200;

/// The keys in the order in which their waits ended.
type Order = Arc<Mutex<Vec<u32>>>;

/// Checks that two runs of `story`, each on its own timer, end their waits in the same order.
#[track_caller]
fn ends_alike(story: impl Fn(&ManualTimer, &Order)) {
    let [one, other] = [(); 2].map(|()| {
        let order = Order::default();
        story(&ManualTimer::new(), &order);
        let ended = order.lock().unwrap().clone();
        assert_eq!(ended.len(), KEYS as usize);
        ended
    });
    assert_eq!(one, other);
}

/// Polls a wait as a task that notes the key when it is woken.
fn woken<T>(wait: &mut WaitFuture<T>, order: &Order, key: u32) {
    let order = order.clone();
    let noted = waker(move || order.lock().unwrap().push(key));
    assert!(poll_by(wait, &noted).is_pending());
}

fn parked(timer: &ManualTimer, order: &Order) -> Purgatory<u32> {
    let purgatory = Purgatory::on(timer, "test").unwrap();
    for key in 0..KEYS {
        let order = order.clone();
        let operation = when(|| false, move |_| order.lock().unwrap().push(key));
        purgatory.park(operation, &[key], MINUTE);
    }
    purgatory
}

#[test]
fn cancel_and_shutdown_end_waits_in_the_same_order() {
    ends_alike(|timer, order| {
        assert_eq!(parked(timer, order).cancel_all("over"), KEYS as usize);
    });
    ends_alike(|timer, order| {
        parked(timer, order).shutdown(Duration::ZERO);
    });
}

#[test]
fn monitor_update_ends_waits_in_the_same_order() {
    ends_alike(|timer, order| {
        let monitor: Monitor<u32, bool> = Monitor::on(timer, "test", false).unwrap();
        let mut waits = Vec::new();
        for key in 0..KEYS {
            let mut wait = monitor.wait(&[key], MINUTE, |is_open| is_open.then_some(()));
            woken(&mut wait, order, key);
            waits.push(wait);
        }
        monitor.update(|is_open| *is_open = true);
    });
}

#[test]
fn permits_of_all_keys_go_out_in_the_same_order() {
    ends_alike(|timer, order| {
        let builder = Permits::keyed_builder("test").timer(timer);
        let permits = builder.limit(1).build().unwrap();
        let held: Vec<_> = (0..KEYS)
            .map(|key| permits.try_acquire_for(&key, 1))
            .collect();
        let mut waits = Vec::new();
        for key in 0..KEYS {
            let mut wait = permits.acquire_for(&key, 1, MINUTE);
            woken(&mut wait, order, key);
            waits.push(wait);
        }
        permits.resize(2);
        drop(held);
    });
}
