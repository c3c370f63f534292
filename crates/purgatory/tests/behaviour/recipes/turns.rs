//! Waits whose end is one client's: leases, queues, throttles, loads of a value.

use std::{
    collections::{HashSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
};

use purgatory::{Monitor, WaitFuture, when};
use timer_core::Timer;
use tokio::sync::oneshot;

use super::{
    guide::{
        leases::Leases, load_once::Cache, queue::Queue, single_flight::Flights, throttle::Throttle,
    },
    *,
};

fn leases(waits: Purgatory<u32>) -> Leases {
    Leases { free: Arc::new(Mutex::new([7].into())), waits }
}

/// All is given back, and nothing waits.
#[track_caller]
fn is_free(leases: &Leases) {
    assert_eq!(*leases.free.lock().unwrap(), HashSet::from([7]));
    leases.waits.nothing_is_left();
}

#[test]
fn a_wait_ends_when_the_lease_is_given_back() {
    every_order_and_early(|| {
        let (timer, waits) = by_hand();
        let leases = leases(waits.clone());
        let holds = Mutex::new(Some(got(&mut leases.acquire(7))));
        let complete = move || drop(holds.lock().unwrap().take());
        Wait::new(timer, &waits, 5 * SECOND, move || leases.acquire(7), complete)
    });
}

/// It waits, it has the lease and has not looked, or the lease is on its way to it with a job of
/// the executor.
#[test]
fn a_client_that_goes_passes_the_lease_on() {
    let leases = self::leases(by_hand().1);
    let first = leases.acquire(7);
    let [second, third, mut fourth] = [(); 3].map(|()| leases.acquire(7));
    drop(second);
    drop(first);
    assert_eq!(leases.waits.len(), 1); // the third has it
    assert!(poll(&mut fourth).is_pending());
    drop(third);
    drop(got(&mut fourth));
    is_free(&leases);

    let (_timer, waits, later) = by_hand_and_late();
    let leases = self::leases(waits);
    let mut first = leases.acquire(7);
    later.run();
    let holds = got(&mut first);
    let [second, mut third] = [(); 2].map(|()| leases.acquire(7));
    drop(holds);
    drop(second);
    later.run(); // it finds the second gone, and gives the lease back ...
    later.run(); // ... which tells the third
    drop(got(&mut third));
    is_free(&leases);
}

fn queue() -> (ManualTimer, Queue) {
    let (timer, waits) = by_hand();
    (timer, Queue { jobs: Monitor::with(waits, VecDeque::new()) })
}

/// Nothing waits, and these jobs are left.
#[track_caller]
fn left(queue: &Queue, jobs: &[&str]) {
    assert_eq!(queue.jobs.read(VecDeque::clone), jobs);
    queue.jobs.purgatory().nothing_is_left();
}

#[test]
fn a_worker_waits_for_a_job() {
    every_order_and_early(|| {
        let (timer, queue) = queue();
        let (take, waits) = (queue.clone(), queue.jobs.purgatory().clone());
        let complete = move || queue.push("a".to_owned());
        Wait::new(timer, &waits, SECOND, move || take.take(SECOND), complete)
    });
}

#[test]
fn a_push_checks_one_worker_and_jobs_keep_their_order() {
    let (_timer, queue) = queue();
    let mut workers = [(); 100].map(|()| queue.take(SECOND));
    let checks = || queue.jobs.purgatory().stats().checks;
    let before = checks();
    queue.push("a".to_owned());
    assert_eq!((checks() - before, queue.jobs.purgatory().len()), (1, 99));
    assert_eq!(got(&mut workers[0]).done(), "a");
    assert!(workers[1..].iter_mut().all(|worker| poll(worker).is_pending()));
    drop(workers);
    ["b", "c"].into_iter().for_each(|job| queue.push(job.to_owned()));
    drop(got(&mut queue.take(SECOND))); // back to the front
    left(&queue, &["b", "c"]);
}

/// A client goes before its turn, when the job is its own already, and while it works on it.
#[test]
fn a_worker_that_goes_costs_no_job() {
    let (_timer, queue) = queue();
    let [first, second, mut third, mut fourth] = [(); 4].map(|()| queue.take(SECOND));
    drop(first);
    ["a", "b"].into_iter().for_each(|job| queue.push(job.to_owned()));
    drop(second); // it had the first job, which is taken before the fourth
    let working = got(&mut third);
    let other = got(&mut fourth);
    drop(working);
    assert_eq!(other.done(), "a");
    left(&queue, &["b"]);
}

fn throttle() -> (ManualTimer, Throttle) {
    let (timer, waits) = by_hand();
    (timer, Throttle { permits: Arc::default(), waits })
}

fn five(throttle: &Throttle) -> [WaitFuture<()>; 5] {
    [(); 5].map(|()| throttle.turn(30 * SECOND))
}

/// The first of these clients have had their turn, and no other.
#[track_caller]
fn turns(clients: &mut [WaitFuture<()>], ready: usize) {
    assert!(clients[..ready].iter_mut().all(|turn| poll(turn).is_ready()));
    assert!(clients[ready..].iter_mut().all(|turn| poll(turn).is_pending()));
}

#[test]
fn a_client_waits_for_its_turn() {
    every_order_and_early(|| {
        let (timer, throttle) = throttle();
        let (waits, releases) = (throttle.waits.clone(), throttle.clone());
        let begin = move || throttle.turn(30 * SECOND);
        Wait::new(timer, &waits, 30 * SECOND, begin, move || releases.release(1))
    });
}

/// Inside a callback an event waits for the outermost call.
#[test]
fn clients_go_in_order_and_gone_ones_take_no_turn() {
    let (_timer, throttle) = throttle();
    let gone = five(&throttle);
    let mut clients = five(&throttle);
    drop(gone);
    throttle.release(2);
    turns(&mut clients, 2);
    let (callbacks, releases) = (by_hand::<u32, _>().1, throttle.clone());
    let callback = when(|| true, move |_| releases.release(2));
    callbacks.try_complete_else_watch(callback, &[0], SECOND).unwrap();
    turns(&mut clients[2..], 2);
    throttle.release(2);
    turns(&mut clients[4..], 1);
    throttle.waits.nothing_is_left();
}

/// A quiet minute does not let a crowd pass.
#[test]
fn permits_are_not_saved_up() {
    let (timer, throttle) = throttle();
    let releases = throttle.clone();
    let _releasing =
        timer.schedule_at_fixed_rate(100 * MS, 100 * MS, move || releases.release(2)).unwrap();
    timer.advance(MINUTE);
    let mut clients = five(&throttle);
    turns(&mut clients, 2);
    timer.advance(99 * MS);
    turns(&mut clients[2..], 0);
    timer.advance(MS);
    turns(&mut clients[2..], 2);
}

fn cache() -> (ManualTimer, Arc<Cache>) {
    let (timer, waits) = by_hand();
    (timer, Arc::new(Cache { entries: Arc::default(), waits }))
}

/// A load that must not begin.
async fn again() -> Option<u64> {
    unreachable!("it is loaded already, or being loaded")
}

/// A load that ends when the test says so; dropped, it fails.
fn load() -> (oneshot::Sender<u64>, impl Future<Output = Option<u64>> + Send + use<>) {
    let (tell, load) = oneshot::channel();
    (tell, async { load.await.ok() })
}

#[test]
fn a_client_waits_for_the_load_of_another() {
    every_order_and_early(|| {
        let ((timer, cache), (tell, load)) = (cache(), load());
        let (waits, loads) = (cache.waits.clone(), cache.clone());
        let mut first = Box::pin(async move { loads.get(1, load).await });
        assert!(poll(&mut first).is_pending());
        let first = Mutex::new(Some((tell, first)));
        let complete = move || {
            if let Some((tell, mut first)) = first.lock().unwrap().take() {
                tell.send(100).unwrap();
                assert_eq!(got(&mut first), Some(100));
            }
        };
        let begin = move || {
            let cache = cache.clone();
            async move { cache.get(1, again()).await }
        };
        Wait::new(timer, &waits, 5 * SECOND, begin, complete)
    });
}

/// It fails, its client goes, or it panics. And a load that outlives a shutdown counts.
#[test]
fn a_load_that_fails_is_told_and_left_to_the_next() {
    for how in 0..3 {
        let ((_timer, cache), (tell, load)) = (cache(), load());
        let load = async move {
            let value = load.await;
            assert!(how < 2, "the load of {value:?}");
            value
        };
        let mut first = Box::pin(cache.get(1, load));
        let mut second = Box::pin(cache.get(1, again()));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        assert_eq!(cache.waits.check_and_complete(&1), 0); // an event without a load
        match how {
            0 => {
                drop(tell);
                assert_eq!(got(&mut first), None);
            }
            1 => drop(first),
            _ => {
                drop(tell);
                let panics = catch_unwind(AssertUnwindSafe(|| poll(&mut first)));
                assert!(panics.is_err());
            }
        }
        assert_eq!(got(&mut second), None);
        let mut anew = Box::pin(cache.get(1, async { Some(100) }));
        cache.waits.shutdown(SECOND);
        assert_eq!([got(&mut anew), got(&mut Box::pin(cache.get(1, again())))], [Some(100); 2]);
    }
}

fn flights() -> (ManualTimer, Flights) {
    let (timer, waits) = by_hand();
    (timer, Flights { values: Arc::default(), waits })
}

#[test]
fn all_that_wait_get_the_value_and_later_ones_too() {
    let (timer, flights) = flights();
    let load = over(&mut flights.get(1)).unwrap().unwrap_err();
    let expires = flights.get(1);
    timer.advance(5 * SECOND - MS);
    let mut waits = [(); 3].map(|()| flights.get(1));
    assert_eq!(flights.waits.len(), 4);
    timer.advance(MS);
    assert!(over(&mut { expires }).is_err_and(|error| error.is_expired()));
    assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
    load.loaded(100);
    assert!(waits.iter_mut().all(|wait| got(wait).ok() == Some(100)));
    assert_eq!(got(&mut flights.get(1)).ok(), Some(100));
    assert!(got(&mut flights.get(2)).is_err()); // dropped, with nobody in line
    assert!(!flights.values.lock().unwrap().contains_key(&2));
    flights.waits.nothing_is_left();
}

/// One that goes before it learns that the load is its own now passes it on.
#[test]
fn a_failed_load_is_taken_over_by_one() {
    for goes in [false, true] {
        let (_timer, flights) = flights();
        let load = got(&mut flights.get(1)).unwrap_err();
        let [mut second, mut third, mut fourth] = [(); 3].map(|()| flights.get(1));
        drop(load);
        assert!(poll(&mut third).is_pending());
        let load = if goes {
            drop(second);
            got(&mut third).unwrap_err()
        } else {
            got(&mut second).unwrap_err()
        };
        assert!(poll(&mut fourth).is_pending());
        load.loaded(100);
        assert_eq!(got(&mut fourth).ok(), Some(100));
        flights.waits.nothing_is_left();
    }
}
