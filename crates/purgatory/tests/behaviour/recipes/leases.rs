//! Leases in every order.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

use purgatory::{BoxedOperation, Purgatory, WaitError, WaitFuture};

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, by_hand_and_late,
    guide::leases::{Lease, Leases},
    off_runtime, on_runtimes, poll,
};

fn leases(waits: Purgatory<u32, BoxedOperation>) -> Leases {
    Leases { free: Arc::new(Mutex::new([7].into())), waits }
}

#[track_caller]
fn granted(wait: &mut WaitFuture<Lease>) -> Lease {
    match poll(wait) {
        Poll::Ready(Ok(lease)) => lease,
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("not granted"),
    }
}

#[track_caller]
fn failed(wait: &mut WaitFuture<Lease>, why: &WaitError) {
    assert!(matches!(poll(wait), Poll::Ready(Err(error)) if error == *why));
}

/// All is given back, and nobody waits.
#[track_caller]
fn is_free(leases: &Leases) {
    assert_eq!(*leases.free.lock().unwrap(), HashSet::from([7]));
    super::nothing_is_left(&leases.waits);
}

#[test]
fn one_that_is_free_is_had_at_once_and_then_in_the_order_of_asking() {
    let (_timer, waits) = by_hand();
    let leases = leases(waits);
    let mut holds = granted(&mut leases.acquire(7));
    let mut waiting = [(); 3].map(|()| leases.acquire(7));
    for at in 0..3 {
        assert!(waiting[at..].iter_mut().all(|wait| poll(wait).is_pending()));
        drop(holds);
        assert_eq!(leases.waits.len(), 2 - at);
        holds = granted(&mut waiting[at]);
    }
    drop(holds);
    is_free(&leases);
}

/// Nor does the event of another shard.
#[test]
fn an_event_without_a_lease_gives_nobody_one() {
    let (_timer, waits) = by_hand();
    let leases = leases(waits);
    let holds = granted(&mut leases.acquire(7));
    let mut waiting = leases.acquire(7);
    assert!(!leases.waits.check_and_complete_one(&7));
    assert_eq!(leases.waits.check_and_complete(&7) + leases.waits.check_and_complete(&8), 0);
    assert!(poll(&mut waiting).is_pending());
    drop(holds);
    assert!(!leases.waits.check_and_complete_one(&7)); // once more: nobody else waits
    drop(granted(&mut waiting));
    is_free(&leases);
}

#[test]
fn one_that_is_never_given_back_is_waited_for_until_time_is_up() {
    on_runtimes(|runtime| {
        let (timer, waits) = by_hand();
        let leases = leases(waits);
        let holds = granted(&mut leases.acquire(7));
        let waiting = runtime.spawn(leases.acquire(7));
        let mut unknown = leases.acquire(8);
        timer.advance(5 * SECOND - MS);
        assert_eq!(leases.waits.len(), 2);
        off_runtime(|| timer.advance(MS));
        assert_eq!(runtime.block_on(waiting).unwrap().err(), Some(WaitError::Expired));
        failed(&mut unknown, &WaitError::Expired);
        drop(holds);
        is_free(&leases);
        drop(granted(&mut leases.acquire(7)));
    });
}

#[test]
fn a_client_that_goes_while_it_waits_or_when_it_was_its_turn_costs_nobody_the_lease() {
    let (_timer, waits) = by_hand();
    let leases = leases(waits);
    let first = leases.acquire(7); // has it, and has not looked
    let [second, third, mut fourth] = [(); 3].map(|()| leases.acquire(7));
    drop(second);
    assert_eq!(leases.waits.len(), 2);
    drop(first);
    assert_eq!(leases.waits.len(), 1); // the third has it, and has not looked
    assert!(poll(&mut fourth).is_pending());
    drop(third);
    drop(granted(&mut fourth));
    is_free(&leases);
    let mut again = leases.acquire(7);
    drop(granted(&mut again));
    is_free(&leases);
}

#[test]
fn a_task_that_is_aborted_with_the_lease_gives_it_back() {
    on_runtimes(|runtime| {
        let (_timer, waits) = by_hand();
        let leases = leases(waits);
        let (first, holds) = (leases.acquire(7), Arc::new(AtomicBool::new(false)));
        let held = holds.clone();
        let task = runtime.spawn(async move {
            let _lease = first.await.unwrap_or_else(|error| panic!("{error}"));
            held.store(true, SeqCst);
            std::future::pending::<()>().await;
        });
        let next = leases.acquire(7);
        while !holds.load(SeqCst) {
            runtime.block_on(tokio::task::yield_now());
        }
        task.abort();
        assert_eq!(runtime.block_on(next).map(|lease| lease.shard).ok(), Some(7));
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        is_free(&leases);
    });
}

/// The lease is on its way to a client, with a job of the executor, as the client goes.
#[test]
fn a_client_that_goes_before_it_is_told_costs_nobody_the_lease() {
    let (_timer, waits, later) = by_hand_and_late();
    let leases = leases(waits);
    let mut first = leases.acquire(7);
    later.run();
    let holds = granted(&mut first);
    let [second, mut third] = [(); 2].map(|()| leases.acquire(7));
    drop(holds);
    drop(second);
    later.run(); // it finds the second gone, and gives the lease back ...
    later.run(); // ... which tells the third
    drop(granted(&mut third));
    is_free(&leases);
}

#[test]
fn a_shutdown_ends_who_waits_and_leases_are_given_back_after_it() {
    let (_timer, waits) = by_hand();
    let leases = leases(waits);
    let holds = granted(&mut leases.acquire(7));
    let mut waiting = leases.acquire(7);
    leases.waits.shutdown(SECOND);
    failed(&mut waiting, &SHUTDOWN);
    failed(&mut leases.acquire(7), &CLOSED);
    drop(holds);
    is_free(&leases);
    drop(granted(&mut leases.acquire(7))); // it need not wait
}

/// Tasks that take the lease, give it back, or go while they wait for it: one has it at a time.
#[test]
fn of_many_one_holds_it_at_a_time_and_it_is_never_lost() {
    const TASKS: usize = 8;
    const EACH: usize = 200;
    on_runtimes(|runtime| {
        let (_timer, waits) = by_hand();
        let leases = leases(waits);
        let (held, had) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let tasks: [_; TASKS] = std::array::from_fn(|number| {
            let (leases, held, had) = (leases.clone(), held.clone(), had.clone());
            runtime.spawn(async move {
                let (mut got, mut gave_up) = (0, 0);
                for at in 0..EACH {
                    let gives_up = async {
                        if (at + number) % 3 > 0 {
                            std::future::pending::<()>().await;
                        }
                        tokio::task::yield_now().await;
                    };
                    tokio::select! {
                        biased;
                        lease = leases.acquire(7) => {
                            let lease = lease.unwrap_or_else(|error| panic!("{error}"));
                            assert!(!held.swap(true, SeqCst));
                            tokio::task::yield_now().await;
                            held.store(false, SeqCst);
                            had.fetch_add(1, SeqCst);
                            got += 1;
                            drop(lease);
                        }
                        () = gives_up => gave_up += 1,
                    }
                }
                (got, gave_up)
            })
        });
        let ends = tasks.map(|task| runtime.block_on(task).unwrap());
        assert_eq!(ends.iter().map(|(got, gave_up)| got + gave_up).sum::<usize>(), TASKS * EACH);
        assert_eq!(ends.iter().map(|(got, _)| got).sum::<usize>(), had.load(SeqCst));
        is_free(&leases);
    });
}
