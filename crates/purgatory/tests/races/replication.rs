//! Acknowledgements on real threads: a value that was taken back acknowledges nothing. (Sets that
//! change meanwhile: `loom/replica_sets`.) The test makes 3000 rounds times `TEST_EFFORT`.

use crate::effort::effort;
use crate::support::*;

/// The number of rounds; `TEST_EFFORT` multiplies it.
const ROUNDS: u64 = 3_000;
const LOG: u32 = 0;
const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;

type Sets = ReplicaSets<u32, u32>;

fn sets() -> (ManualTimer, Sets) {
    let timer = ManualTimer::new();
    let sets = ReplicaSets::on(&timer, "test").unwrap();
    (timer, sets)
}

/// A has a value and loses it, again and again. B's report after that, and a wait parked meanwhile,
/// see the value at one member of two. In each eighth round A keeps it, which acknowledges it.
#[test]
fn taken_back_values_acknowledge_nothing() {
    let (_timer, sets) = sets();
    let false_acks = AtomicUsize::new(0);
    let acks = AtomicUsize::new(0);
    let is_back = AtomicBool::new(false);
    let meet = Barrier::new(2);
    race(2, |thread| {
        for round in 1..=effort(ROUNDS) {
            let led = sets.in_epoch(&LOG, round);
            if thread == 0 {
                is_back.store(false, SeqCst);
                sets.set(&LOG, round, [(A, 0), (B, 0)], 0, Rule::at_least(2))
                    .unwrap();
                meet.wait();
                for _ in 0..round % 8 {
                    _ = led.report(&A, 1);
                    _ = led.report(&A, 0);
                }
                match round % 8 {
                    0 => _ = led.report(&A, 1),
                    _ => is_back.store(true, SeqCst),
                }
                meet.wait();
                sets.remove(&LOG);
            } else {
                meet.wait();
                let mut wait = led.wait_for(1, NEVER);
                let b_comes_late = is_back.load(SeqCst);
                led.report(&B, 1).unwrap();
                meet.wait();
                if matches!(poll(&mut wait), Poll::Ready(Ok(_))) {
                    acks.fetch_add(1, SeqCst);
                    false_acks.fetch_add(usize::from(b_comes_late), SeqCst);
                }
            }
        }
    });
    let acks = acks.into_inner();
    println!("{acks} of {} acknowledged", effort(ROUNDS));
    assert!(acks as u64 >= effort(ROUNDS) / 8, "a kept value counts");
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
                    let log = (round % 8) as u32;
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
