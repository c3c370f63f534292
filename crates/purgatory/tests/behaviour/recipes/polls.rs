//! Fetches: long polls over logs in memory and in a store, a log on one thread, and a purgatory for
//! each core.

use std::io;

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
    assert_eq!(logs.append(0, 1), 1);
    assert_eq!(got(&mut byte), 1);
    assert_eq!(got(&mut Box::pin(logs.fetch(&[70, 6], 64, SECOND))), 64);
    assert_eq!(
        got(&mut Box::pin(logs.fetch(&[99, 40], 64, Duration::ZERO))),
        1
    );
    let mut fetch = Box::pin(logs.fetch(&[101, 40], 64, SECOND));
    // Both thresholds are reached; each later advance checks the fetch again until it has enough
    // bytes.
    for (partition, bytes) in [(1, 1), (0, 60), (0, 3)] {
        assert_eq!(logs.append(partition, bytes), 0);
    }
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(logs.append(0, 1), 1);
    assert_eq!(got(&mut fetch), 64);
    // The consumer is ahead of the log, which is a follower's whose leader has changed.
    let mut ahead = Box::pin(logs.fetch(&[184, 41], 10, SECOND));
    assert_eq!(logs.append(0, 20), 0);
    assert_eq!(logs.append(0, 9), 0);
    timer.advance(SECOND);
    assert_eq!(got(&mut ahead), 9);
}

type During = Box<dyn FnOnce() + Send>;

/// A store whose read returns the bytes of the moment when it began.
#[derive(Default)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    reads: AtomicU64,
    /// Runs while the next read is under way.
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

    fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }
}

/// Creates logs over this store, which a fetch looks at each second.
fn stored_logs(store: &Memory) -> (ManualTimer, StoredLogs<&Memory>) {
    let (timer, appends) = by_hand();
    let logs = StoredLogs {
        store,
        timer: timer.clone().into(),
        appends,
        look_every: SECOND,
    };
    (timer, logs)
}

#[test]
fn an_event_during_a_read_is_not_lost() {
    let store: &'static Memory = Box::leak(Box::default());
    let (_timer, logs) = stored_logs(store);
    let appends = logs.appends.clone();
    *store.during.lock().unwrap() = Some(Box::new(move || {
        store.write(b"ready");
        appends.check_and_complete(&1);
    }));
    assert_eq!(got(&mut Box::pin(logs.fetch(1, 5, 30 * SECOND))), b"ready");
    assert_eq!(store.reads(), 2);
    nothing_is_left(&logs.appends);
}

#[test]
fn the_end_of_the_time_yields_what_there_is() {
    let store = Memory::default();
    let (timer, logs) = stored_logs(&store);
    store.write(b"rea");
    let mut fetch = Box::pin(logs.fetch(1, 5, 1500 * MS));
    for (passes, reads) in [(0, 1), (1000, 2), (499, 2)] {
        timer.advance(passes * MS);
        assert!(poll(&mut fetch).is_pending());
        assert_eq!(store.reads(), reads);
    }
    timer.advance(MS);
    assert_eq!(got(&mut fetch), b"rea");
    assert_eq!(store.reads(), 3);
    // A fetch without a pause between its looks looks once a millisecond.
    let (timer, mut logs) = stored_logs(&store);
    logs.look_every = Duration::ZERO;
    let mut fetch = Box::pin(logs.fetch(1, 5, MINUTE));
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(store.reads(), 4);
    timer.advance(MS);
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(store.reads(), 5);
}

#[test]
fn shutdown_and_a_broken_store_end_the_loop() {
    let store = Memory::default();
    let (_timer, logs) = stored_logs(&store);
    let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
    assert!(poll(&mut fetch).is_pending());
    store.broken.store(true, SeqCst);
    assert!(over(&mut Box::pin(logs.fetch(1, 5, SECOND))).is_err());
    store.broken.store(false, SeqCst);
    logs.appends.shutdown(SECOND);
    assert!(over(&mut fetch).is_err());
    assert!(over(&mut Box::pin(logs.fetch(1, 5, SECOND))).is_err());
    nothing_is_left(&logs.appends);
}

/// A late advance expires all due fetches, in the order of their deadlines.
#[test]
fn fetches_never_reached_expire_by_deadline() {
    let log = Log::new(ManualTimer::new()).unwrap();
    let (client, answers) = mpsc::channel();
    log.advance_to(5 * SECOND);
    for (offset, seconds) in [(7, 3), (1, 1), (8, 1), (9, 2)] {
        let client = client.clone();
        let answer = move |outcome| client.send((offset, outcome)).unwrap();
        log.fetch(offset, seconds * SECOND, answer).unwrap();
    }
    assert_eq!(log.append(), 1);
    reported(&answers, &[(1, Completed)]);
    log.advance_to(6 * SECOND - MS);
    log.advance_to(6 * SECOND - 2 * MS); // a clock that goes back has no effect
    assert!(answers.try_recv().is_err());
    log.advance_to(MINUTE);
    reported(&answers, &[(8, Expired), (9, Expired), (7, Expired)]);
    nothing_is_left(&log.fetches);
}

/// No request is handled on a sender's thread.
#[test]
fn messages_are_handled_in_order_by_the_core() {
    let (outbox, core) = Core::new().unwrap();
    let (client, answers) = mpsc::channel();
    let ready = Arc::<AtomicBool>::default();
    let send = |key, message| outbox.send((key, message)).unwrap();
    let ask = |key| {
        let seen = ready.clone();
        let client = client.clone();
        let answer = move |outcome| client.send((key, outcome)).unwrap();
        let request = when(move || seen.load(SeqCst), answer);
        send(key, Message::Request(SECOND, request));
    };
    send(1, Message::Event); // an early event: no request waits
    on_another_thread(|| {
        ask(1);
        ask(2);
    });
    assert!(core.run_once(MS, None) <= Some(SECOND)); // or until a bucket is handed down
    ready.store(true, SeqCst);
    assert_eq!(core.run_once(SECOND - MS, None), Some(MS));
    assert!(answers.try_recv().is_err()); // its condition holds, but no event has come
    send(1, Message::Event);
    send(1, Message::Event); // twice
    core.run_once(Duration::ZERO, None);
    reported(&answers, &[(1, Completed)]);
    assert_eq!(core.run_once(MS, None), None);
    reported(&answers, &[(2, Expired)]);
    nothing_is_left(&core.waits);
}

/// Sends a request that completes at once and whose answer sends the next one.
fn ask_again(outbox: &mpsc::Sender<(u64, Message)>, left: u64) {
    if left > 0 {
        let next = outbox.clone();
        let request = when(|| true, move |_| ask_again(&next, left - 1));
        outbox.send((1, Message::Request(SECOND, request))).unwrap();
    }
}

/// A round ends even if the core's inbox is never empty.
#[test]
fn requests_expire_while_messages_keep_coming() {
    let (outbox, core) = Core::new().unwrap();
    let (client, answers) = mpsc::channel();
    let request = when(|| false, move |outcome| client.send(outcome).unwrap());
    outbox.send((1, Message::Request(SECOND, request))).unwrap();
    ask_again(&outbox, 5000);
    assert_eq!(core.run_once(MS, None), Some(Duration::ZERO)); // messages are left
    core.run_once(SECOND, None);
    reported(&answers, &[Expired]);
    while core.run_once(MS, None).is_some() {}
    nothing_is_left(&core.waits);
}

#[test]
fn requests_refused_by_a_core_are_answered() {
    let (outbox, core) = Core::new().unwrap();
    let (client, answers) = mpsc::channel();
    core.waits.shutdown(SECOND);
    for key in [1, 2] {
        let client = client.clone();
        let answer = move |outcome: Outcome| client.send((key, outcome.to_string())).unwrap();
        let request = Message::Request(SECOND, when(|| false, answer));
        outbox.send((key, request)).unwrap();
    }
    core.run_once(MS, None);
    let closed = || "cancelled: the purgatory was shut down".to_owned();
    reported(&answers, &[(1, closed()), (2, closed())]);
}

/// Each request is answered: in time, at its timeout, or when the senders are gone.
#[test]
fn core_sleeps_until_work_and_ends_with_its_senders() {
    let (outbox, core) = Core::new().unwrap();
    let core = thread::spawn(move || core.run());
    let (client, answers) = mpsc::channel();
    let ready = Arc::<AtomicBool>::default();
    for (key, timeout) in [(1, 3600 * SECOND), (2, MS), (3, 3600 * SECOND)] {
        let (seen, client) = (ready.clone(), client.clone());
        let answer = move |outcome| client.send((key, outcome)).unwrap();
        let request = when(move || key == 1 && seen.load(SeqCst), answer);
        outbox
            .send((key, Message::Request(timeout, request)))
            .unwrap();
    }
    assert_eq!(answers.recv(), Ok((2, Expired)));
    ready.store(true, SeqCst);
    outbox.send((1, Message::Event)).unwrap();
    assert_eq!(answers.recv(), Ok((1, Completed)));
    drop(outbox);
    core.join().unwrap();
    let cancelled = Outcome::Cancelled(CancelReason::Shutdown);
    reported(&answers, &[(3, cancelled)]);
}
