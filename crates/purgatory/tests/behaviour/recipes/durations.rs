//! Each recipe that takes a duration, with zero, the shortest and the longest that there is.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use purgatory::{Monitor, Outcome, WaitError, when};
use tokio::sync::oneshot;

use super::{
    guide::{
        cores::{Core, Message},
        deadline::Produces,
        one_thread::Log,
        stored_poll::Logs as StoredLogs,
    },
    polls::Memory,
    *,
};
use crate::support::HOUR;

const SHORTEST: Duration = Duration::from_nanos(1);
const CENTURY: Duration = HOUR.saturating_mul(24 * 365 * 100);

/// A wait of zero ends at once, one of a nanosecond at the next tick, and the longest one still
/// waits after a century, until `fulfil` ends it.
#[track_caller]
fn ends_in_time<R: Debug + PartialEq, F: Future<Output = R> + Unpin>(
    advance: impl Fn(Duration),
    start: impl Fn(Duration) -> F,
    expired: R,
    fulfil: impl FnOnce(),
    completed: R,
) {
    let mut none = start(Duration::ZERO);
    assert_eq!(over(&mut none), expired);

    let mut shortest = start(SHORTEST);
    assert!(poll(&mut shortest).is_pending());
    advance(MS);
    assert_eq!(over(&mut shortest), expired);

    let mut longest = start(Duration::MAX);
    for passes in [Duration::ZERO, MS, CENTURY] {
        advance(passes);
        assert!(poll(&mut longest).is_pending());
    }
    fulfil();
    assert_eq!(over(&mut longest), completed);
}

/// A timer whose clock does not start at 0, so that adding to it may overflow.
fn running_timer() -> ManualTimer {
    let timer = ManualTimer::new();
    timer.advance(SECOND);
    timer
}

fn on<K, O>(timer: &ManualTimer) -> Purgatory<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    Purgatory::builder("test").timer(timer).build().unwrap()
}

#[test]
fn the_deadline_recipe_takes_any_duration() {
    for free in [0, 10] {
        let timer = running_timer();
        let produces = Produces {
            timer: timer.clone().into(),
            places: Monitor::over(on(&timer), free),
            high_watermark: Monitor::over(on(&timer), 0),
        };
        let fulfil = || {
            produces.places.update(|free| *free += 1);
            produces
                .high_watermark
                .update(|high_watermark| *high_watermark = 7);
        };
        let start = |limit| Box::pin(produces.produce(7, limit));
        let advance = |by| timer.advance(by);
        ends_in_time(advance, start, Err(WaitError::Expired), fulfil, Ok(7));
    }
}

#[test]
fn the_stored_poll_recipe_takes_any_duration() {
    for look_every in [Duration::ZERO, SHORTEST, SECOND, Duration::MAX] {
        let timer = running_timer();
        let store = Memory::default();
        let logs = StoredLogs {
            store: &store,
            timer: timer.clone().into(),
            appends: on(&timer),
            look_every,
        };
        let start = |limit| {
            let fetch = logs.fetch(1, 5, limit);
            Box::pin(async { fetch.await.map_err(|error| error.to_string()) })
        };
        let fulfil = || {
            store.write(b"ready");
            logs.appends.check_and_complete(&1);
        };
        let advance = |by| timer.advance(by);
        ends_in_time(advance, start, Ok(Vec::new()), fulfil, Ok(b"ready".into()));
        assert!(store.reads() < 20, "{} reads", store.reads());
    }
}

#[test]
fn the_one_thread_recipe_takes_any_duration() {
    let log = Log::new(running_timer()).unwrap();
    let advance = |by| log.timer.advance(by);
    let start = |limit| {
        let (client, answer) = oneshot::channel();
        log.fetch(1, limit, |outcome| client.send(outcome).unwrap())
            .unwrap();
        answer
    };
    let fulfil = || assert_eq!(log.append(), 1);
    let completed = Ok(Outcome::Completed);
    ends_in_time(advance, start, Ok(Outcome::Expired), fulfil, completed);
    log.advance_to(Duration::MAX);
    log.advance_to(SHORTEST);
}

#[test]
fn the_cores_recipe_takes_any_duration() {
    let (outbox, core) = Core::new().unwrap();
    core.run_once(SECOND);
    let ready = Arc::<AtomicBool>::default();
    let advance = |by| _ = core.run_once(by);
    let start = |limit| {
        let (client, answer) = oneshot::channel();
        let seen = ready.clone();
        let respond = |outcome| client.send(outcome).unwrap();
        let request = when(move || seen.load(SeqCst), respond);
        outbox.send((7, Message::Request(limit, request))).unwrap();
        core.run_once(Duration::ZERO);
        answer
    };
    let fulfil = || {
        ready.store(true, SeqCst);
        outbox.send((7, Message::Event)).unwrap();
        core.run_once(Duration::ZERO);
    };
    let completed = Ok(Outcome::Completed);
    ends_in_time(advance, start, Ok(Outcome::Expired), fulfil, completed);
    core.run_once(Duration::MAX);
    core.run_once(SHORTEST);
}
