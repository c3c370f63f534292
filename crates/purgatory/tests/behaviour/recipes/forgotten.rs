//! A trigger that was forgotten, in every order. (The last check is tested in
//! `behaviour/missed_events`.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
};

use purgatory::{BoxedOperation, Purgatory, WaitError, WaitFuture};
use timer_core::ManualTimer;

use super::{MS, SECOND, SHUTDOWN, guide::forgotten::telling, poll};

struct Fetches {
    timer: ManualTimer,
    of: Purgatory<&'static str, BoxedOperation>,
    aborted: Arc<AtomicBool>,
    forgotten: mpsc::Receiver<Vec<&'static str>>,
}

impl Fetches {
    fn new() -> Fetches {
        let (timer, (told, forgotten)) = (ManualTimer::new(), mpsc::channel());
        let of = telling(&timer, told).unwrap();
        Fetches { timer, of, aborted: Arc::default(), forgotten }
    }

    fn fetch(&self) -> WaitFuture<&'static str> {
        let seen = self.aborted.clone();
        let condition = move || seen.load(SeqCst).then_some("aborted");
        self.of.wait(&["orders-0"], 500 * MS, condition)
    }

    /// The keys that were told, and that nothing is left.
    #[track_caller]
    fn told(&self, expected: &[&[&'static str]]) {
        assert_eq!(self.forgotten.try_iter().collect::<Vec<_>>(), expected);
        assert_eq!(self.of.stats().missed_events, expected.len() as u64);
        super::nothing_is_left(&self.of);
    }
}

#[test]
fn without_an_event_or_with_that_of_another_key_it_is_told_when_time_is_up() {
    let fetches = Fetches::new();
    let mut fetch = fetches.fetch();
    fetches.aborted.store(true, SeqCst);
    assert_eq!(fetches.of.check_and_complete(&"orders-1"), 0);
    fetches.timer.advance(499 * MS);
    assert!(poll(&mut fetch).is_pending() && fetches.forgotten.try_recv().is_err());
    fetches.timer.advance(MS);
    assert_eq!(poll(&mut fetch), Ok("aborted").into());
    assert_eq!(fetches.of.check_and_complete(&"orders-0"), 0); // late
    fetches.told(&[&["orders-0"]]);
}

#[test]
fn with_its_event_before_the_wait_during_it_or_twice_nothing_is_told() {
    for before in [false, true] {
        let fetches = Fetches::new();
        let mut fetch = (!before).then(|| fetches.fetch());
        fetches.aborted.store(true, SeqCst);
        assert_eq!(fetches.of.check_and_complete(&"orders-0"), usize::from(!before));
        assert_eq!(fetches.of.check_and_complete(&"orders-0"), 0);
        let mut fetch = fetch.take().unwrap_or_else(|| fetches.fetch());
        assert_eq!(poll(&mut fetch), Ok("aborted").into());
        fetches.timer.advance(500 * MS);
        fetches.told(&[]);
    }
}

#[test]
fn what_never_came_true_expires_and_is_not_told() {
    let fetches = Fetches::new();
    let mut fetch = fetches.fetch();
    assert_eq!(fetches.of.check_and_complete(&"orders-0"), 0);
    fetches.timer.advance(500 * MS);
    assert_eq!(poll(&mut fetch), Err(WaitError::Expired).into());
    fetches.told(&[]);
}

#[test]
fn a_client_that_has_gone_and_a_shutdown_miss_nothing_and_nobody_needs_to_listen() {
    let fetches = Fetches::new();
    let gone = fetches.fetch();
    fetches.aborted.store(true, SeqCst);
    drop(gone);
    fetches.timer.advance(500 * MS);
    fetches.told(&[]);

    fetches.aborted.store(false, SeqCst);
    let mut ends = fetches.fetch();
    fetches.aborted.store(true, SeqCst);
    fetches.of.shutdown(SECOND);
    assert_eq!(poll(&mut ends), Err(SHUTDOWN).into());
    fetches.told(&[]);

    let Fetches { timer, of, aborted, forgotten } = Fetches::new();
    drop(forgotten);
    let seen = aborted.clone();
    let mut fetch = of.wait(&["orders-0"], MS, move || seen.load(SeqCst).then_some(()));
    aborted.store(true, SeqCst);
    timer.advance(MS);
    assert_eq!(poll(&mut fetch), Ok(()).into());
    super::nothing_is_left(&of);
}

/// An event that races with the end of the time: all have their answer, by the one or the other,
/// and what is told is what was counted.
#[test]
fn of_many_each_completes_once_by_its_event_or_its_last_check() {
    for _ in 0..200 {
        let fetches = Fetches::new();
        let mut waiting: Vec<_> = (0..10).map(|_| fetches.fetch()).collect();
        let Fetches { timer, of, aborted, forgotten } = &fetches;
        let by_event = thread::scope(|scope| {
            let expires = scope.spawn(|| timer.advance(500 * MS));
            aborted.store(true, SeqCst);
            let by_event = of.check_and_complete(&"orders-0");
            expires.join().unwrap();
            by_event
        });
        let told = waiting.iter_mut().map(|wait| match poll(wait) {
            std::task::Poll::Ready(told) => told.is_ok(),
            std::task::Poll::Pending => panic!("not over"),
        });
        let completed = told.filter(|&ok| ok).count();
        let stats = of.stats();
        assert_eq!((stats.completed, stats.completed + stats.expired), (completed as u64, 10));
        assert!(by_event <= completed);
        assert_eq!(forgotten.try_iter().count() as u64, stats.missed_events);
        super::nothing_is_left(of);
    }
}
