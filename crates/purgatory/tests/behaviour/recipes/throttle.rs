//! Clients released at a rate: how many, and in which order.

use std::sync::Arc;

use purgatory::{Purgatory, Timeout, WaitFuture, when};
use timer_core::{ManualTimer, Timer};

use super::{MS, SECOND, Wait, by_hand, every_order, guide::throttle::Throttle, poll};

fn throttle() -> (ManualTimer, Throttle) {
    let (timer, waits) = by_hand();
    (timer, Throttle { permits: Arc::default(), waits })
}

/// Five clients, and a look at which of them have had their turn.
fn five(throttle: &Throttle) -> [WaitFuture<()>; 5] {
    [(); 5].map(|()| throttle.turn(30 * SECOND))
}

#[track_caller]
fn turns(clients: &mut [WaitFuture<()>], ready: usize) {
    assert!(clients[..ready].iter_mut().all(|turn| poll(turn).is_ready()));
    assert!(clients[ready..].iter_mut().all(|turn| poll(turn).is_pending()));
}

#[test]
fn a_client_waits_for_its_turn() {
    every_order(|| {
        let (timer, throttle) = throttle();
        let (waits, releases) = (throttle.waits.clone(), throttle.clone());
        let wait = Wait { timer, waits, limit: 30 * SECOND, remembers: true };
        (wait, move || throttle.turn(30 * SECOND), move || releases.release(1))
    });
}

#[test]
fn clients_go_in_order_and_gone_ones_take_no_turn() {
    let (_timer, throttle) = throttle();
    let gone = five(&throttle);
    let mut clients = five(&throttle);
    drop(gone);
    throttle.release(2);
    turns(&mut clients, 2);
    throttle.release(2);
    turns(&mut clients[2..], 2);
    throttle.release(2);
    turns(&mut clients[4..], 1);
    super::nothing_is_left(&throttle.waits);
}

/// A quiet minute does not let a crowd pass.
#[test]
fn permits_are_not_saved_up() {
    let (timer, throttle) = throttle();
    let releases = throttle.clone();
    let _releasing =
        timer.schedule_at_fixed_rate(100 * MS, 100 * MS, move || releases.release(2)).unwrap();
    timer.advance(60 * SECOND);
    let mut clients = five(&throttle);
    turns(&mut clients, 2);
    timer.advance(99 * MS);
    turns(&mut clients[2..], 0);
    timer.advance(MS);
    turns(&mut clients[2..], 2);
}

/// Inside a callback an event waits for the outermost call; none is lost.
#[test]
fn a_release_inside_a_callback_lets_as_many_go() {
    let (_timer, throttle) = throttle();
    let mut clients = five(&throttle);
    let callbacks = Purgatory::<u32>::new("callbacks").unwrap();
    let releases = throttle.clone();
    let callback = move |_| releases.release(3);
    callbacks.try_complete_else_watch(when(|| true, callback), &[0], Timeout::Never).unwrap();
    turns(&mut clients, 3);
}
