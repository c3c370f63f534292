//! Fetches: long polls over logs in memory and in a store, a forgotten event, a log on one thread,
//! a purgatory for each core.

use std::{
    io,
    rc::Rc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use purgatory::{
    OperationId, Outcome::Completed, Outcome::Expired, ParkResult, RefusedReason, WaitFuture, when,
};

use super::{
    guide::{
        cores::{Core, Message},
        forgotten::telling,
        long_poll::Logs,
        one_thread::Log,
        stored_poll::{Logs as StoredLogs, Store},
    },
    *,
};

fn logs(ends: [u64; 2]) -> (ManualTimer, Arc<Logs>) {
    let (timer, fetches) = by_hand();
    let ends = Arc::new(ends.map(AtomicU64::new).into());
    (timer, Arc::new(Logs { ends, fetches }))
}

/// A fetch that is answered with too little has run out of time.
#[test]
fn a_fetch_waits_for_enough_bytes() {
    every_order_and_early(|| {
        let (timer, logs) = logs([100, 40]);
        logs.append(1, 63);
        let (waits, appends) = (logs.fetches.clone(), logs.clone());
        let begin = move || {
            let fetch = logs.fetch(&[100, 40], 64, 500 * MS);
            async {
                match fetch.await.map_err(|error| error.to_string())? {
                    63 => Err(EXPIRED.to_owned()),
                    bytes => Ok(bytes),
                }
            }
        };
        Wait::new(timer, &waits, 500 * MS, begin, move || _ = appends.append(0, 1))
    });
}

#[test]
fn appends_add_up_over_partitions() {
    let (timer, logs) = logs([100, 40]);
    assert_eq!(got(&mut Box::pin(logs.fetch(&[70, 6], 64, SECOND))), 64);
    assert_eq!(got(&mut Box::pin(logs.fetch(&[99, 40], 64, Duration::ZERO))), 1);
    let mut fetch = Box::pin(logs.fetch(&[101, 40], 64, SECOND));
    // Both watermarks are met, and each further rise is looked at until there is enough.
    assert_eq!((logs.append(1, 1), logs.append(0, 60), logs.append(0, 3)), (0, 0, 0));
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
        during.into_iter().for_each(|act| act());
        if self.broken.load(SeqCst) { Err(io::ErrorKind::NotFound.into()) } else { Ok(bytes) }
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
    check(store, timer.clone(), StoredLogs { store, timer, appends, look_every: SECOND });
    waits.nothing_is_left();
}

#[test]
fn a_write_of_this_process_is_read_at_its_event() {
    stored(|store, _timer, logs| {
        let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
        assert!(poll(&mut fetch).is_pending());
        store.write(b"read");
        assert_eq!(logs.appends.check_and_complete(&1), 1);
        assert!(poll(&mut fetch).is_pending()); // not enough
        store.write(b"y");
        assert_eq!(logs.appends.check_and_complete(&2), 0); // another partition's
        assert!(poll(&mut fetch).is_pending());
        assert_eq!(logs.appends.check_and_complete(&1), 1);
        assert_eq!(got(&mut fetch), b"ready");
        assert_eq!(got(&mut Box::pin(logs.fetch(1, 5, SECOND))), b"ready"); // at once
        assert_eq!(store.reads.load(SeqCst), 4);
    });
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

/// Another process may have written.
#[test]
fn a_write_elsewhere_is_found_at_the_next_look() {
    stored(|store, timer, logs| {
        let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
        assert!(poll(&mut fetch).is_pending());
        store.write(b"ready"); // and no event
        timer.advance(SECOND - MS);
        assert!(poll(&mut fetch).is_pending());
        timer.advance(MS);
        assert_eq!(got(&mut fetch), b"ready");
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
        assert_eq!((got(&mut fetch), store.reads.load(SeqCst)), (b"rea".to_vec(), 3));
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

/// Fetches that wait for a flag, in a purgatory that tells of forgotten events.
fn fetches(
    tell: &mpsc::Sender<Vec<&'static str>>,
) -> (ManualTimer, Purgatory<&'static str>, Arc<AtomicBool>, impl Fn() -> WaitFuture<()> + use<>) {
    let (timer, aborted) = (ManualTimer::new(), Arc::<AtomicBool>::default());
    let waits = telling(&timer, tell.clone()).unwrap();
    let (of, seen) = (waits.clone(), aborted.clone());
    let fetch = move || {
        let seen = seen.clone();
        of.wait(&["orders-0"], 500 * MS, move || seen.load(SeqCst))
    };
    (timer, waits, aborted, fetch)
}

#[test]
fn a_forgotten_event_is_told_when_time_is_up() {
    let (tell, forgotten) = mpsc::channel();
    every_order_and_early(|| {
        let (timer, waits, aborted, fetch) = fetches(&tell);
        let raises = waits.clone();
        let complete = move || {
            aborted.store(true, SeqCst);
            raises.check_and_complete(&"orders-0");
        };
        Wait::new(timer, &waits, 500 * MS, fetch, complete)
    });
    told::<_, Vec<&str>>(&forgotten, &[]);
    let (timer, waits, aborted, fetch) = fetches(&tell);
    let [mut waiting, gone] = [(); 2].map(|()| fetch());
    aborted.store(true, SeqCst);
    drop(gone);
    assert_eq!(waits.check_and_complete(&"orders-1"), 0);
    timer.advance(499 * MS);
    assert!(poll(&mut waiting).is_pending());
    timer.advance(MS);
    got(&mut waiting);
    assert_eq!(waits.check_and_complete(&"orders-0"), 0); // late
    told(&forgotten, &[["orders-0"]]);
    waits.nothing_is_left();
}

/// A log on one thread, and a client that is told how its fetches ended: not `Send`.
struct Server {
    log: Log,
    client: mpsc::Sender<String>,
    answers: mpsc::Receiver<String>,
}

impl Server {
    fn new() -> Rc<Server> {
        let (client, answers) = mpsc::channel();
        Rc::new(Server { log: Log::new(ManualTimer::new()).unwrap(), client, answers })
    }

    fn fetch(&self, offset: u64, timeout: Duration) -> Result<Option<OperationId>, RefusedReason> {
        let client = self.client.clone();
        let answer = move |outcome| client.send(format!("{offset} {outcome}")).unwrap();
        Ok(match self.log.fetch(offset, timeout, answer)? {
            ParkResult::Parked(id) => Some(id),
            _ => None,
        })
    }
}

/// And an answer may fetch again and append, as the next request of its connection does.
#[test]
fn an_append_answers_what_it_reaches_and_once() {
    let server = Server::new();
    for offset in [2, 1, 3] {
        assert!(server.fetch(offset, SECOND).unwrap().is_some());
    }
    assert_eq!([(); 2].map(|()| server.log.append()), [1, 1]);
    assert_eq!(server.fetch(1, SECOND), Ok(None)); // it is there
    told(&server.answers, &["1 completed", "2 completed", "1 completed"]);
    let again = server.clone();
    let answer = move |_| {
        again.fetch(4, SECOND).unwrap();
        assert_eq!(again.log.append(), 0); // when the outer append is over
    };
    server.log.fetch(3, SECOND, answer).unwrap();
    assert_eq!(server.log.append(), 2);
    told(&server.answers, &["3 completed", "4 completed"]);
    server.log.fetches.nothing_is_left();
}

/// A late turn expires all that fell due, in the order of deadlines.
#[test]
fn fetches_never_reached_expire_in_their_turn() {
    let server = Server::new();
    server.log.turn(5 * SECOND);
    for (offset, after) in [(7, 3), (8, 1), (9, 2)] {
        server.fetch(offset, after * SECOND).unwrap();
    }
    server.log.turn(6 * SECOND - MS);
    server.log.turn(6 * SECOND - 2 * MS); // the loop's clock is not asked to be steady
    told::<_, &str>(&server.answers, &[]);
    server.log.turn(MINUTE);
    told(&server.answers, &["8 expired", "9 expired", "7 expired"]);
    (0..9).for_each(|_| _ = server.log.append());
    told::<_, &str>(&server.answers, &[]);
    let id = server.fetch(10, SECOND).unwrap().unwrap();
    server.log.fetches.cancel(id, "client gone");
    server.fetch(11, SECOND).unwrap();
    server.log.fetches.shutdown(Duration::ZERO);
    assert_eq!(server.fetch(11, SECOND), Err(RefusedReason::Closed));
    told(&server.answers, &["10 cancelled: client gone", "11 cancelled: shut down"]);
    server.log.fetches.nothing_is_left();
}

/// A core's outbox, which a test sends requests to: an event completes one once its key is ready.
struct Clients {
    outbox: mpsc::Sender<(u64, Message)>,
    ready: Arc<Mutex<Vec<u64>>>,
    told: mpsc::Sender<(u64, Outcome)>,
}

impl Clients {
    fn ask(&self, key: u64) {
        let (ready, told) = (self.ready.clone(), self.told.clone());
        let check = move || ready.lock().unwrap().contains(&key);
        let request = when(check, move |outcome| told.send((key, outcome)).unwrap());
        self.outbox.send((key, Message::Request(SECOND, request))).unwrap();
    }

    fn event(&self, key: u64) {
        self.outbox.send((key, Message::Event)).unwrap();
    }
}

/// Nothing runs on a sender's thread.
#[test]
fn messages_are_handled_in_order_by_the_turn() {
    let (((outbox, core), ready), (told, answers)) =
        ((Core::new().unwrap(), Arc::default()), mpsc::channel());
    let clients = Clients { outbox, ready, told };
    clients.event(1); // early: nobody waits
    off_runtime(|| [1, 2, 3].into_iter().for_each(|key| clients.ask(key)));
    clients.ready.lock().unwrap().extend([2]);
    clients.event(2);
    assert!(core.turn(MS).unwrap() <= Some(SECOND)); // or until a bucket is handed down
    self::told(&answers, &[(2, Completed)]);
    clients.ready.lock().unwrap().push(1);
    assert_eq!(core.turn(SECOND - MS), Ok(Some(MS)));
    self::told::<_, (u64, Outcome)>(&answers, &[]); // ready, and no event yet
    [1, 1].into_iter().for_each(|key| clients.event(key)); // twice
    core.turn(Duration::ZERO).unwrap();
    self::told(&answers, &[(1, Completed)]);
    assert_eq!(core.turn(MS), Ok(None));
    self::told(&answers, &[(3, Expired)]);
    core.waits.nothing_is_left();
    clients.ask(4);
    core.turn(MS).unwrap();
    drop(core);
    self::told(&answers, &[(4, Outcome::Cancelled(CancelReason::Dropped))]);
    assert!(clients.outbox.send((1, Message::Event)).is_err());
}
