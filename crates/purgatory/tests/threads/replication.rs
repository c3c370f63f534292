//! Acknowledgements on real threads, while the set moves: none may come from a value that was taken
//! back, from the next epoch, or without a member that had joined. `TEST_EFFORT` sets the number of
//! rounds of each race: 3000 without it.

use crate::effort::effort;
use crate::support::*;

/// Without `TEST_EFFORT`.
const ROUNDS: u64 = 3_000;
const LOG: u8 = 0;
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;

type Sets = ReplicaSets<u8, u8>;

fn sets() -> (ManualTimer, Sets) {
    let timer = ManualTimer::new();
    let sets = ReplicaSets::on(&timer, "test").unwrap();
    (timer, sets)
}

fn is_acknowledged(wait: &mut WaitFuture<u64>) -> bool {
    match poll(wait) {
        Poll::Ready(ended) => ended.is_ok(),
        Poll::Pending => false,
    }
}

/// Runs rounds of two threads that meet before each: `first` on one, `second` on the other. Each
/// round is an epoch of its own, which `begin` begins; `end` judges it on one thread.
fn rounds<T: Send>(
    begin: impl Fn(u64) -> T + Sync,
    first: impl Fn(u64) + Sync,
    second: impl Fn(u64) + Sync,
    end: impl Fn(u64, T) + Sync,
) {
    let meet = Barrier::new(2);
    race(2, |thread| {
        for round in 1..=effort(ROUNDS) {
            let mut begun = None;
            if thread == 0 {
                begun = Some(begin(round));
            }
            meet.wait();
            if thread == 0 {
                first(round);
            } else {
                second(round);
            }
            meet.wait();
            if let Some(begun) = begun {
                end(round, begun);
            }
        }
    });
}

/// A has a value and loses it, time and again. B's report after that, and a wait that is parked
/// meanwhile, see one member of two.
#[test]
fn taken_back_values_acknowledge_nothing() {
    let (_timer, sets) = sets();
    let false_acks = AtomicUsize::new(0);
    let acks = AtomicUsize::new(0);
    let is_back = AtomicBool::new(false);
    let b_came_late = AtomicBool::new(false);
    let parked = Mutex::new(None);
    rounds(
        |round| {
            is_back.store(false, SeqCst);
            sets.set(&LOG, round, [(A, 0), (B, 0)], 0, Rule::at_least(2))
                .unwrap();
        },
        |round| {
            for _ in 0..round % 8 {
                _ = sets.in_epoch(&LOG, round).report(&A, 1);
                _ = sets.in_epoch(&LOG, round).report(&A, 0);
            }
            is_back.store(true, SeqCst);
        },
        |round| {
            *parked.lock().unwrap() = Some(sets.in_epoch(&LOG, round).wait_for(1, NEVER));
            b_came_late.store(is_back.load(SeqCst), SeqCst);
            sets.in_epoch(&LOG, round).report(&B, 1).unwrap();
        },
        |_, ()| {
            let wait = parked.lock().unwrap().take();
            if wait.is_some_and(|mut wait| is_acknowledged(&mut wait)) {
                acks.fetch_add(1, SeqCst);
                if b_came_late.load(SeqCst) {
                    false_acks.fetch_add(1, SeqCst);
                }
            }
            sets.remove(&LOG);
        },
    );
    let acks = acks.into_inner();
    println!("{acks} of {} acknowledged", effort(ROUNDS));
    assert!(acks > 0, "the threads did not meet");
    assert_eq!(false_acks.into_inner(), 0);
    assert!(sets.waits().is_empty());
}

/// A wait is parked while the next epoch begins and is reported in. It is of the first, whatever
/// comes first.
#[test]
fn next_epoch_acknowledges_nothing_of_the_last() {
    let (_timer, sets) = sets();
    let false_acks = AtomicUsize::new(0);
    let over = AtomicUsize::new(0);
    rounds(
        |round| {
            let epoch = 2 * round;
            sets.set(&LOG, epoch, [(A, 0), (B, 0)], 0, Rule::all())
                .unwrap();
        },
        |round| {
            let mut wait = sets.in_epoch(&LOG, 2 * round).wait_for(1, NEVER);
            _ = sets.in_epoch(&LOG, 2 * round).report(&A, 1); // and B never
            match poll(&mut wait) {
                Poll::Ready(Ok(_)) => _ = false_acks.fetch_add(1, SeqCst),
                Poll::Ready(Err(_)) => _ = over.fetch_add(1, SeqCst),
                Poll::Pending => {
                    let ended = wait.wait_blocking(); // the next epoch is on its way
                    if matches!(ended, Ok(_) | Err(WaitError::Expired)) {
                        false_acks.fetch_add(1, SeqCst);
                    }
                }
            }
        },
        |round| {
            let next = 2 * round + 1;
            sets.set(&LOG, next, [(A, 1), (B, 0)], 1, Rule::all())
                .unwrap();
            sets.in_epoch(&LOG, next).report(&B, 1).unwrap();
        },
        |_, ()| {
            sets.remove(&LOG);
        },
    );
    println!("{} of {} over at once", over.into_inner(), effort(ROUNDS));
    assert_eq!(false_acks.into_inner(), 0);
    assert!(sets.waits().is_empty());
}

/// C joins, or takes the place of B, while the others report. Once C is in, nothing is acknowledged
/// without it.
#[test]
fn growing_sets_acknowledge_nothing_without_a_member() {
    let (_timer, sets) = sets();
    let false_acks = AtomicUsize::new(0);
    let joins = AtomicUsize::new(0);
    let is_in = AtomicBool::new(false);
    rounds(
        |round| {
            is_in.store(false, SeqCst);
            sets.set(&LOG, round, [(A, 0), (B, 0)], 0, Rule::all())
                .unwrap();
            sets.in_epoch(&LOG, round).report(&A, 1).unwrap();
            sets.in_epoch(&LOG, round).wait_for(1, NEVER)
        },
        |round| {
            // The member that is replaced is none.
            _ = sets.in_epoch(&LOG, round).report(&B, 1);
        },
        |round| {
            let joined = if round % 2 == 0 {
                sets.in_epoch(&LOG, round).join(C, 0)
            } else {
                sets.in_epoch(&LOG, round).replace(&B, C, 0)
            };
            is_in.store(joined.is_ok(), SeqCst);
        },
        |_, mut wait| {
            let is_acked = is_acknowledged(&mut wait);
            if is_in.load(SeqCst) {
                joins.fetch_add(1, SeqCst);
            }
            if is_acked == is_in.load(SeqCst) {
                false_acks.fetch_add(1, SeqCst);
            }
            sets.remove(&LOG);
        },
    );
    println!("{} of {} joined", joins.into_inner(), effort(ROUNDS));
    assert_eq!(false_acks.into_inner(), 0);
    assert!(sets.waits().is_empty());
}

#[test]
fn memory_of_sets_is_back_where_it_started() {
    let memory = Memory::default();
    memory.count(|| {
        let (_timer, sets) = sets();
        race(4, |thread| {
            memory.count(|| {
                for round in 1..=effort(ROUNDS) {
                    let log = (round % 8) as u8;
                    let epoch = 4 * round + thread;
                    _ = sets.set(&log, epoch, [(A, 0), (B, 0)], 0, Rule::all());
                    let led = sets.in_epoch(&log, epoch);
                    let wait = led.wait_for(1, NEVER);
                    _ = led.report(&A, 1);
                    _ = led.join(C, 1);
                    _ = led.report(&B, 1);
                    _ = led.leave(&C);
                    drop(wait);
                    sets.remove(&log);
                }
            });
        });
        assert!(sets.waits().is_empty());
    });
    memory.assert_is_back(100_000, 10_000);
}
