//! Clients released at a rate, in every order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    thread,
};

use purgatory::{Purgatory, Timeout, WaitError, WaitFuture, when};
use timer_core::{ManualTimer, Timer};

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, guide::throttle::Throttle, off_runtime, on_runtimes,
    poll,
};

fn throttle() -> (ManualTimer, Throttle) {
    let (timer, waits) = by_hand();
    (timer, Throttle { permits: Arc::default(), waits })
}

fn turns<const N: usize>(throttle: &Throttle) -> [WaitFuture<()>; N] {
    [(); N].map(|()| throttle.turn(30 * SECOND))
}

fn ready(turn: &mut WaitFuture<()>) -> bool {
    match poll(turn) {
        Poll::Ready(told) => told.is_ok(),
        Poll::Pending => false,
    }
}

#[test]
fn they_go_in_order_no_more_than_so_many_at_once() {
    let (_timer, throttle) = throttle();
    let mut turns = turns::<5>(&throttle);
    assert_eq!(turns.each_mut().map(ready), [false; 5]);
    throttle.release(2);
    assert_eq!((throttle.waits.len(), turns[..2].iter_mut().all(ready)), (3, true));
    throttle.release(2);
    assert_eq!((throttle.waits.len(), turns[2..4].iter_mut().all(ready)), (1, true));
    throttle.release(2);
    assert!(ready(&mut turns[4]));
    super::nothing_is_left(&throttle.waits);
}

/// An idle hour does not let a crowd pass.
#[test]
fn what_nobody_took_is_there_for_the_next_but_not_saved_up() {
    let (timer, throttle) = throttle();
    let releases = throttle.clone();
    let _releasing =
        timer.schedule_at_fixed_rate(100 * MS, 100 * MS, move || releases.release(2)).unwrap();
    timer.advance(3600 * SECOND);
    let mut turns = turns::<5>(&throttle);
    assert_eq!(turns.each_mut().map(ready), [true, true, false, false, false]);
    timer.advance(99 * MS);
    assert_eq!(throttle.waits.len(), 3);
    timer.advance(MS);
    assert_eq!(throttle.waits.len(), 1);
    timer.advance(100 * MS);
    super::nothing_is_left(&throttle.waits);
}

#[test]
fn a_turn_that_never_comes_expires_at_its_time() {
    on_runtimes(|runtime| {
        let (timer, throttle) = throttle();
        let turn = runtime.spawn(throttle.turn(30 * SECOND));
        timer.advance(30 * SECOND - MS);
        assert_eq!(throttle.waits.len(), 1);
        off_runtime(|| timer.advance(MS));
        throttle.release(1); // too late
        assert_eq!(runtime.block_on(turn).unwrap(), Err(WaitError::Expired));
        assert_eq!(runtime.block_on(throttle.turn(30 * SECOND)), Ok(()));
    });
}

#[test]
fn clients_that_have_gone_take_no_turn_from_those_that_wait() {
    let (timer, throttle) = throttle();
    let gone = turns::<100>(&throttle);
    let expires = throttle.turn(SECOND);
    let mut waits = throttle.turn(30 * SECOND);
    drop(gone);
    timer.advance(SECOND);
    assert_eq!(throttle.waits.len(), 1);
    throttle.release(1);
    assert!(ready(&mut waits));
    assert_eq!(expires.wait_blocking(), Err(WaitError::Expired));
    super::nothing_is_left(&throttle.waits);
    let mut again = throttle.turn(30 * SECOND); // the same client, once more
    throttle.release(1);
    assert!(ready(&mut again));
}

/// Inside a callback an event waits for the outermost call; none is lost.
#[test]
fn a_release_inside_a_callback_lets_as_many_go() {
    let (_timer, throttle) = throttle();
    let mut turns = turns::<5>(&throttle);
    let callbacks = Purgatory::<u32>::new("callbacks").unwrap();
    let releases = throttle.clone();
    let callback = move |_| releases.release(3);
    callbacks.try_complete_else_watch(when(|| true, callback), &[0], Timeout::Never).unwrap();
    assert_eq!(turns.each_mut().map(ready), [true, true, true, false, false]);
}

#[test]
fn a_shutdown_ends_who_waits() {
    let (_timer, throttle) = throttle();
    let [mut turn] = turns::<1>(&throttle);
    throttle.waits.shutdown(SECOND);
    assert_eq!(poll(&mut turn), Err(SHUTDOWN).into());
    assert_eq!(poll(&mut throttle.turn(SECOND)), Err(CLOSED).into());
    throttle.release(2);
    super::nothing_is_left(&throttle.waits);
}

/// Clients come and go while others are released: never more than were let go, and all in the end.
#[test]
fn of_many_each_has_one_turn_and_never_more_than_were_released() {
    const CLIENTS: usize = 400;
    on_runtimes(|runtime| {
        let (_timer, throttle) = throttle();
        let (released, passed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let (throttle, released) = (throttle.clone(), released.clone());
                let passed = passed.clone();
                runtime.spawn(async move {
                    tokio::select! {
                        biased;
                        turn = throttle.turn(30 * SECOND) => {
                            turn.unwrap();
                            let passed = passed.fetch_add(1, SeqCst) + 1;
                            assert!(passed <= released.load(SeqCst));
                            true
                        }
                        () = tokio::task::yield_now(), if at % 3 == 0 => false,
                    }
                })
            })
            .collect();
        let (releases, lets_go) = (throttle.clone(), released.clone());
        let releasing = thread::spawn(move || {
            while Arc::strong_count(&lets_go) > 2 {
                lets_go.fetch_add(3, SeqCst);
                releases.release(3);
            }
        });
        let went = clients.into_iter().map(|client| runtime.block_on(client).unwrap());
        let went = went.filter(|&went| went).count() as u64;
        releasing.join().unwrap();
        assert!(went >= (CLIENTS - CLIENTS.div_ceil(3)) as u64);
        assert_eq!(passed.load(SeqCst), went);
        super::nothing_is_left(&throttle.waits);
    });
}
