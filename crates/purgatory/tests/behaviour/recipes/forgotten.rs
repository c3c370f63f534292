//! A trigger that was forgotten. (The last check is tested in `behaviour/missed_events`.)

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
    mpsc,
};

use purgatory::{BoxedOperation, Purgatory, WaitFuture};
use timer_core::ManualTimer;

use super::{MS, Wait, every_order, got, guide::forgotten::telling, poll};

type Keys = Vec<&'static str>;

#[derive(Clone)]
struct Fetches {
    of: Purgatory<&'static str, BoxedOperation>,
    aborted: Arc<AtomicBool>,
}

fn fetches(forgotten: &mpsc::Sender<Keys>) -> (ManualTimer, Fetches) {
    let timer = ManualTimer::new();
    let of = telling(&timer, forgotten.clone()).unwrap();
    (timer, Fetches { of, aborted: Arc::default() })
}

impl Fetches {
    fn fetch(&self) -> WaitFuture<&'static str> {
        let seen = self.aborted.clone();
        let condition = move || seen.load(SeqCst).then_some("aborted");
        self.of.wait(&["orders-0"], 500 * MS, condition)
    }
}

#[test]
fn a_fetch_that_has_its_event_is_not_told() {
    let (tell, told) = mpsc::channel();
    every_order(|| {
        let (timer, fetches) = fetches(&tell);
        let (waits, aborts) = (fetches.of.clone(), fetches.clone());
        let wait = Wait { timer, waits, limit: 500 * MS, remembers: true };
        let complete = move || {
            aborts.aborted.store(true, SeqCst);
            aborts.of.check_and_complete(&"orders-0");
        };
        (wait, move || fetches.fetch(), complete)
    });
    assert_eq!(told.try_iter().next(), None);
}

#[test]
fn a_forgotten_event_is_told_when_time_is_up() {
    let (tell, told) = mpsc::channel();
    let (timer, fetches) = fetches(&tell);
    let [mut fetch, gone] = [fetches.fetch(), fetches.fetch()];
    fetches.aborted.store(true, SeqCst);
    drop(gone);
    assert_eq!(fetches.of.check_and_complete(&"orders-1"), 0);
    timer.advance(499 * MS);
    assert!(poll(&mut fetch).is_pending());
    timer.advance(MS);
    assert_eq!(got(&mut fetch), "aborted");
    assert_eq!(fetches.of.check_and_complete(&"orders-0"), 0); // late
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [["orders-0"]]);
    drop(told); // nothing needs to listen
    let mut again = fetches.of.wait(&["orders-0"], MS, || None::<()>);
    timer.advance(MS);
    assert!(poll(&mut again).is_ready());
    super::nothing_is_left(&fetches.of);
}
