//! Permits on real threads: each hand-over goes to the request that came first, and no fencing
//! number repeats. `TEST_EFFORT` multiplies the number of hand-overs: CI makes 300 000, `just
//! nightly` 3 million.

use purgatory::Permit;

use crate::effort::effort;
use crate::support::*;

const THREADS: usize = 8;
/// The number of hand-overs; `TEST_EFFORT` multiplies it.
const HAND_OVERS: u64 = 30_000;

/// The moments since which each thread's request has waited, by one counter; 0 if it does not wait.
#[derive(Default)]
struct Line {
    clock: AtomicU64,
    waits_since: [AtomicU64; THREADS],
    overtakings: AtomicUsize,
    served: AtomicU64,
}

impl Line {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst) + 1
    }

    /// Counts the requests that were overtaken: this thread has the only permit by a call that
    /// began at `began`, and they were in line by then and still are.
    fn serve(&self, thread: usize, began: u64) {
        self.served.fetch_add(1, SeqCst);
        self.waits_since[thread].store(0, SeqCst); // before the next request has the permit
        for since in &self.waits_since {
            if (1..began).contains(&since.load(SeqCst)) {
                self.overtakings.fetch_add(1, SeqCst);
            }
        }
    }

    /// Takes the permit in turn, and counts overtaken requests.
    fn acquire(&self, permits: &Permits, thread: usize) -> Permit {
        let began = self.now();
        let wait = permits.acquire(1, MINUTE);
        self.waits_since[thread].store(self.now(), SeqCst);
        let permit = wait.wait_blocking().unwrap();
        self.serve(thread, began);
        permit
    }
}

/// Threads hand one permit over; each fourth time, a thread tries to take it out of turn.
#[test]
fn nobody_is_overtaken() {
    let hand_overs = effort(HAND_OVERS);
    let permits = Permits::new("permits", 1).unwrap();
    let line = Line::default();
    race(THREADS as u64, |thread| {
        let mut round = 0;
        while line.served.load(SeqCst) < hand_overs {
            round += 1;
            if round % 4 == 0 {
                let began = line.now();
                let permit = permits.try_acquire(1);
                if permit.is_some() {
                    line.serve(thread as usize, began);
                }
            }
            drop(line.acquire(&permits, thread as usize));
        }
    });
    assert_eq!(line.overtakings.load(SeqCst), 0);
    assert_eq!(permits.free(), 1);
    assert_all_ended(&permits.waits());
    println!("{hand_overs} hand-overs");
}

/// Some requests are dropped or expire: the limit holds, and no permit is lost.
#[test]
fn permits_of_all_sizes_come_back() {
    const LIMIT: u64 = 4;
    let rounds = effort(HAND_OVERS) / 48;
    let permits = Permits::new("permits", LIMIT).unwrap();
    let out = AtomicU64::new(0);
    race(THREADS as u64, |thread| {
        let mut random = fastrand::Rng::with_seed(thread);
        for _ in 0..rounds {
            let weight = random.u64(1..=LIMIT);
            let timeout = [MINUTE, random.u32(..50) * MINUTE / 60_000_000];
            let wait = permits.acquire(weight, timeout[random.usize(..2)]);
            if random.u8(..4) == 0 {
                continue; // dropped, waiting or served
            }
            let Ok(permit) = wait.wait_blocking() else {
                continue;
            };
            assert!(out.fetch_add(weight, SeqCst) + weight <= LIMIT);
            out.fetch_sub(weight, SeqCst);
            drop(permit);
        }
    });
    assert_eq!(permits.free(), LIMIT);
    assert_all_ended(&permits.waits());
}

/// Leases expire while they are returned, renewed and asked for.
#[test]
fn fencing_numbers_never_repeat() {
    const KEYS: usize = 2;
    let expiries = effort(HAND_OVERS) / 3;
    let timer = ManualTimer::new();
    // The timer visits every shard each time it advances.
    let builder = Permits::keyed_builder("keys").timer(&timer).shards(8);
    let keys: Permits<usize> = builder.build().unwrap();
    let lost = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let numbers = [(); KEYS].map(|()| Mutex::new(Vec::new()));
    let working = AtomicUsize::new(4);
    race(5, |thread| {
        // One thread lets time pass.
        if thread == 4 {
            while working.load(SeqCst) > 0 {
                timer.advance(MS);
                thread::yield_now();
            }
            return;
        }
        // The other threads lease; half of the holders stall.
        let mut random = fastrand::Rng::with_seed(thread);
        while !is_over.load(SeqCst) {
            let key = random.usize(..KEYS);
            let Ok(lease) = keys.lease_for(&key, 1, MS, MINUTE).wait_blocking() else {
                continue;
            };
            numbers[key].lock().unwrap().push(lease.fencing());
            if random.bool() {
                while random.u8(..8) > 0 && lease.renew(MS) {}
                while !lease.is_lost() {
                    thread::yield_now();
                }
            }
            let total = lost.fetch_add(u64::from(lease.is_lost()), SeqCst);
            is_over.fetch_or(total >= expiries, SeqCst);
        }
        working.fetch_sub(1, SeqCst);
    });
    for (key, numbers) in numbers.into_iter().enumerate() {
        let mut numbers = numbers.into_inner().unwrap();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a number came twice");
        assert_eq!(keys.taken_for(&key), 0);
    }
    assert_all_ended(&keys.waits());
    println!("{} leases were lost", lost.into_inner());
}
