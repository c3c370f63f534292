//! Fetches: long polls over logs in memory and in a store, a log on one thread,
//! a purgatory for each core.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use purgatory::{
    Outcome::{Completed, Expired},
    when,
};

use super::{
    guide::{
        cores::{Core, Message},
        long_poll::Logs,
        one_thread::Log,
        stored_poll::{Logs as StoredLogs, Store},
    },
    *,
};

#[test]
fn appends_add_up_over_partitions() {
    let (timer, fetches) = by_hand();
    let logs = Logs {
        ends: Arc::new([99, 40].map(AtomicU64::new).into()),
        fetches,
    };
    let mut byte = Box::pin(logs.fetch(&[99, 40], 1, SECOND));
    assert_eq!((logs.append(0, 1), got(&mut byte)), (1, 1));
    assert_eq!(got(&mut Box::pin(logs.fetch(&[70, 6], 64, SECOND))), 64);
    assert_eq!(
        got(&mut Box::pin(logs.fetch(&[99, 40], 64, Duration::ZERO))),
        1
    );
    let mut fetch = Box::pin(logs.fetch(&[101, 40], 64, SECOND));
    // Both watermarks are met, and each further rise is looked at until there is enough.
    assert_eq!(
        (logs.append(1, 1), logs.append(0, 60), logs.append(0, 3)),
        (0, 0, 0)
    );
    assert!(poll(&mut fetch).is_pending());
    assert_eq!((logs.append(0, 1), got(&mut fetch)), (1, 64));
    // The consumer is ahead of a follower's log whose leader has changed.
    let mut ahead = Box::pin(logs.fetch(&[184, 41], 10, SECOND));
    assert_eq!((logs.append(0, 20), logs.append(0, 9)), (0, 0));
    timer.advance(SECOND);
    assert_eq!(got(&mut ahead), 9);
}

type During = Box<dyn FnOnce() + Send>;

/// A store that shows what there was as its read began.
#[derive(Default)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    reads: AtomicU64,
    /// Happens while the next read is under way.
    during: Mutex<Option<During>>,
    broken: AtomicBool,
}

impl Store for &Memory {
    async fn read(&self, _partition: u32) -> io::Result<Vec<u8>> {
        self.reads.fetch_add(1, SeqCst);
        let bytes = self.bytes.lock().unwrap().clone();
        let during = self.during.lock().unwrap().take();
        if let Some(act) = during {
            act();
        }
        if self.broken.load(SeqCst) {
            Err(io::ErrorKind::NotFound.into())
        } else {
            Ok(bytes)
        }
    }
}

impl Memory {
    fn write(&self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend(bytes);
    }
}

/// Logs of one store, which `check` is given with it.
fn stored(check: impl FnOnce(&'static Memory, ManualTimer, StoredLogs<&Memory, ManualTimer>)) {
    let (store, (timer, appends)) = (&*Box::leak(Box::default()), by_hand());
    let waits = appends.clone();
    check(
        store,
        timer.clone(),
        StoredLogs {
            store,
            timer,
            appends,
            look_every: SECOND,
        },
    );
    nothing_is_left(&waits);
}

#[test]
fn an_event_during_a_read_is_not_lost() {
    stored(|store, _timer, logs| {
        let raise = logs.appends.clone();
        *store.during.lock().unwrap() = Some(Box::new(move || {
            store.write(b"ready");
            raise.check_and_complete(&1);
        }));
        assert_eq!(got(&mut Box::pin(logs.fetch(1, 5, 30 * SECOND))), b"ready");
        assert_eq!(store.reads.load(SeqCst), 2);
    });
}

#[test]
fn the_end_of_the_time_yields_what_there_is() {
    stored(|store, timer, logs| {
        store.write(b"rea");
        let mut fetch = Box::pin(logs.fetch(1, 5, 1500 * MS));
        for (passes, reads) in [(0, 1), (1000, 2), (499, 2)] {
            timer.advance(passes * MS);
            assert!(poll(&mut fetch).is_pending());
            assert_eq!(store.reads.load(SeqCst), reads);
        }
        timer.advance(MS);
        assert_eq!(
            (got(&mut fetch), store.reads.load(SeqCst)),
            (b"rea".to_vec(), 3)
        );
    });
}

#[test]
fn shutdown_and_a_broken_store_end_the_loop() {
    stored(|store, _timer, logs| {
        let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
        assert!(poll(&mut fetch).is_pending());
        store.broken.store(true, SeqCst);
        assert!(over(&mut Box::pin(logs.fetch(1, 5, SECOND))).is_err());
        store.broken.store(false, SeqCst);
        logs.appends.shutdown(SECOND);
        assert!(over(&mut fetch).is_err());
        assert!(over(&mut Box::pin(logs.fetch(1, 5, SECOND))).is_err());
    });
}

/// A late turn expires all that fell due, in the order of deadlines.
#[test]
fn fetches_never_reached_expire_in_their_turn() {
    let (log, (client, answers)) = (Log::new(ManualTimer::new()).unwrap(), mpsc::channel());
    log.turn(5 * SECOND);
    for (offset, seconds) in [(7, 3), (1, 1), (8, 1), (9, 2)] {
        let client = client.clone();
        let answer = move |outcome| client.send((offset, outcome)).unwrap();
        log.fetch(offset, seconds * SECOND, answer).unwrap();
    }
    assert_eq!(log.append(), 1);
    told(&answers, &[(1, Completed)]);
    log.turn(6 * SECOND - MS);
    log.turn(6 * SECOND - 2 * MS); // the loop's clock is not asked to be steady
    assert!(answers.try_recv().is_err());
    log.turn(MINUTE);
    told(&answers, &[(8, Expired), (9, Expired), (7, Expired)]);
    nothing_is_left(&log.fetches);
}

/// Nothing runs on a sender's thread.
#[test]
fn messages_are_handled_in_order_by_the_turn() {
    let ((outbox, core), (tell, answers)) = (Core::new().unwrap(), mpsc::channel());
    let ready = Arc::<AtomicBool>::default();
    let send = |key, message| outbox.send((key, message)).unwrap();
    let ask = |key| {
        let (ready, tell) = (ready.clone(), tell.clone());
        let answer = move |outcome| tell.send((key, outcome)).unwrap();
        send(
            key,
            Message::Request(SECOND, when(move || ready.load(SeqCst), answer)),
        );
    };
    send(1, Message::Event); // early: nobody waits
    elsewhere(|| {
        for number in [1, 2] {
            ask(number);
        }
    });
    assert!(core.turn(MS).unwrap() <= Some(SECOND)); // or until a bucket is handed down
    ready.store(true, SeqCst);
    assert_eq!(core.turn(SECOND - MS), Ok(Some(MS)));
    assert!(answers.try_recv().is_err()); // ready, and no event yet
    for _ in 0..2 {
        send(1, Message::Event);
    } // twice
    core.turn(Duration::ZERO).unwrap();
    told(&answers, &[(1, Completed)]);
    assert_eq!(core.turn(MS), Ok(None));
    told(&answers, &[(2, Expired)]);
    nothing_is_left(&core.waits);
}
