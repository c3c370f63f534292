//! Threads that might wait for another one: for the reaper, the executor's queue, a shutdown. No
//! test relies on a sleep. (Waits for a check: `behaviour/promises`.)

use crate::support::*;

/// Creates a timer whose executor keeps its jobs.
fn late_executor() -> (SystemTimer, Later) {
    let kept = Later::default();
    (system_timer(|builder| builder.executor(kept.clone())), kept)
}

/// A key; counts the keys of its type that a reaper dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Watched(u32);

static DROPPED_BY_A_REAPER: AtomicUsize = AtomicUsize::new(0);

impl Drop for Watched {
    fn drop(&mut self) {
        let name = thread::current().name().unwrap_or_default().to_owned();
        let reaper = name.ends_with("-reaper");
        DROPPED_BY_A_REAPER.fetch_add(usize::from(reaper), SeqCst);
    }
}

/// The reaper does not walk the keys of expired operations, and drops none.
#[test]
fn expiring_under_many_keys_leaves_the_reaper_free() {
    let (timer, kept) = late_executor();
    let purgatory: Purgatory<Watched> = Purgatory::on(&timer, "many").unwrap();
    let keys: Vec<_> = (0..1000).map(Watched).collect();
    for keys in [&keys[..], &keys[..5], &keys[7..8]] {
        let id = purgatory.park(never(), keys, MINUTE);
        purgatory.reschedule(id, MS); // not under check when it expires
        while !purgatory.is_empty() || kept.len() == 0 {
            thread::yield_now();
        }
        let left = keys.len().saturating_sub(1 + 16);
        assert_eq!(purgatory.keys(), left);
        assert_eq!(DROPPED_BY_A_REAPER.load(SeqCst), 0);
        assert_eq!(purgatory.check_and_complete(&keys[keys.len() - 1]), 0);
        assert_eq!(purgatory.stats().callbacks_waiting, 1);
        kept.run();
        assert_eq!(purgatory.keys(), 0);
        assert_eq!(purgatory.stats().callbacks_waiting, 0);
    }
    timer.shutdown(Duration::MAX);
}

/// The reaper is woken for the next request of a shard that it has visited, and for a request that
/// has moved to another shard: neither waits for ever.
#[test]
fn scope_requests_expire_in_turn_and_after_moves() {
    let timer = SystemTimer::new().unwrap();
    let client = ReplyScope::<u32>::on(&timer, "client").unwrap();
    let (send, ended) = mpsc::channel();
    thread::spawn(move || {
        for moves in [false, false, true, true, true] {
            let (number, reply) = client.expect(20 * MS).unwrap();
            let other = client.another();
            if moves {
                _ = client.reassign(number, &other); // on a slow machine it may have expired
            }
            send.send(reply.wait_blocking()).unwrap();
        }
    });
    for _ in 0..5 {
        let end = ended.recv_timeout(MINUTE).expect("it never expires");
        assert_eq!(end, Err(WaitError::Expired));
    }
}

/// The reaper is woken for a lease even if no request waits.
#[test]
fn a_lease_alone_runs_out_on_a_thread() {
    let timer = SystemTimer::new().unwrap();
    let places = Permits::on(&timer, "places", 1).unwrap();
    let held = places.lease(1, 20 * MS, MINUTE).wait_blocking().unwrap();
    while !held.is_lost() {
        thread::yield_now(); // for ever, if no reaper came
    }
}

/// The reaper is woken for a sweep even if nothing else is due.
#[test]
fn a_sweep_alone_comes_on_a_thread() {
    let timer = SystemTimer::new().unwrap();
    let builder = Purgatory::builder("swept").timer(&timer);
    let waits: Purgatory<u32> = builder.recheck_every(5 * MS).build().unwrap();
    let mut is_parked = false;
    let comes_true = move || mem::replace(&mut is_parked, true);
    assert_eq!(waits.wait(&[1], NEVER, comes_true).wait_blocking(), Ok(()));
}

/// A timer's shutdown returns only when the purgatories on it are closed, even if no callback has
/// run yet.
#[test]
fn a_timers_shutdown_closes_its_purgatories_at_once() {
    let (timer, kept) = late_executor();
    let purgatory: Purgatory<u32> = Purgatory::on(&timer, "shared").unwrap();
    let probe = Probe::parked(&purgatory, &[1], MINUTE);
    timer.shutdown(Duration::ZERO);
    let refused = purgatory.try_complete_else_watch(probe.operation().into(), &[1], MINUTE);
    assert_eq!(refused.unwrap_err().reason, WaitError::Closed);
    assert!(!probe.ended());
    assert_eq!(purgatory.shutdown(Duration::ZERO), 1, "it is left, again");
    kept.run();
    assert_eq!(probe.endings().len(), 1);
    assert_eq!(purgatory.shutdown(Duration::ZERO), 0);
}

/// A shutdown inside a callback calls the ended operations back later; until then they count as
/// remaining.
#[test]
fn a_shutdown_inside_a_callback_tells_all_it_left() {
    let (_timer, purgatory) = by_hand::<u32, BoxedOperation>();
    let (send, left) = mpsc::channel();
    let inside = purgatory.clone();
    let shuts_down = move |_| send.send(inside.shutdown(MINUTE)).unwrap();
    purgatory.park(when(|| false, shuts_down), &[1], MINUTE);
    for _ in 0..3 {
        _ = purgatory.park(never(), &[2], MINUTE);
    }
    assert_eq!(purgatory.complete_for_key(&1), 1);
    let left = left.try_recv().unwrap();
    assert_eq!((left, purgatory.len()), (3, 0));
    assert_eq!(purgatory.shutdown(MINUTE), 0);
}
