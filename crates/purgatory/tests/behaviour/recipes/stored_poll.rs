//! A long poll over an asynchronous store, in every order of writes, reads and events.

use std::{io, sync::Mutex, task::Poll};

use timer_core::ManualTimer;

use super::{
    MS, SECOND, by_hand,
    guide::stored_poll::{Logs, Store},
    nothing_is_left, poll,
};

type During = Box<dyn FnOnce() + Send>;

/// A store that shows what there was as its read began.
#[derive(Default)]
struct Memory {
    bytes: Mutex<Vec<u8>>,
    reads: Mutex<usize>,
    /// Happens while the next read is under way.
    during: Mutex<Option<During>>,
    broken: bool,
}

impl Store for &Memory {
    async fn read(&self, _partition: u32) -> io::Result<Vec<u8>> {
        *self.reads.lock().unwrap() += 1;
        let bytes = self.bytes.lock().unwrap().clone();
        let during = self.during.lock().unwrap().take();
        during.into_iter().for_each(|act| act());
        if self.broken { Err(io::ErrorKind::NotFound.into()) } else { Ok(bytes) }
    }
}

impl Memory {
    fn write(&self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend(bytes);
    }

    fn reads(&self) -> usize {
        *self.reads.lock().unwrap()
    }
}

fn logs(store: &Memory) -> (ManualTimer, Logs<&Memory, ManualTimer>) {
    let (timer, appends) = by_hand();
    (timer.clone(), Logs { store, timer, appends, look_every: SECOND })
}

#[test]
fn enough_bytes_are_answered_at_once() {
    let store = Memory::default();
    let (_timer, logs) = logs(&store);
    store.write(b"ready");
    let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
    assert!(matches!(poll(&mut fetch), Poll::Ready(Ok(bytes)) if bytes == b"ready"));
    assert_eq!(store.reads(), 1);
    nothing_is_left(&logs.appends);
}

#[test]
fn a_write_of_this_process_is_read_at_its_event() {
    let store = Memory::default();
    let (_timer, logs) = logs(&store);
    let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
    assert!(poll(&mut fetch).is_pending());
    store.write(b"rea");
    assert_eq!(logs.appends.check_and_complete(&1), 1);
    assert!(poll(&mut fetch).is_pending()); // not enough
    store.write(b"dy");
    assert_eq!(logs.appends.check_and_complete(&2), 0); // another partition's
    assert!(poll(&mut fetch).is_pending());
    assert_eq!(logs.appends.check_and_complete(&1), 1);
    assert!(matches!(poll(&mut fetch), Poll::Ready(Ok(bytes)) if bytes == b"ready"));
    assert_eq!(store.reads(), 3);
}

#[test]
fn an_event_during_a_read_is_not_lost() {
    let store: &Memory = Box::leak(Box::default());
    let (_timer, logs) = logs(store);
    let raise = logs.appends.clone();
    *store.during.lock().unwrap() = Some(Box::new(move || {
        store.write(b"ready");
        raise.check_and_complete(&1);
    }));
    let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
    assert!(matches!(poll(&mut fetch), Poll::Ready(Ok(bytes)) if bytes == b"ready"));
    assert_eq!(store.reads(), 2);
}

#[test]
fn a_write_elsewhere_is_found_at_the_next_look() {
    let store = Memory::default();
    let (timer, logs) = logs(&store);
    let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
    assert!(poll(&mut fetch).is_pending());
    store.write(b"ready"); // and no event
    timer.advance(SECOND - MS);
    assert!(poll(&mut fetch).is_pending());
    timer.advance(MS);
    assert!(matches!(poll(&mut fetch), Poll::Ready(Ok(bytes)) if bytes == b"ready"));
}

#[test]
fn the_end_of_the_time_yields_what_there_is() {
    let store = Memory::default();
    let (timer, logs) = logs(&store);
    store.write(b"rea");
    let mut fetch = Box::pin(logs.fetch(1, 5, 1500 * MS));
    for (passes, reads) in [(0, 1), (1000, 2), (499, 2)] {
        timer.advance(passes * MS);
        assert!(poll(&mut fetch).is_pending());
        assert_eq!(store.reads(), reads);
    }
    timer.advance(MS);
    assert!(matches!(poll(&mut fetch), Poll::Ready(Ok(bytes)) if bytes == b"rea"));
    assert_eq!(store.reads(), 3);
    nothing_is_left(&logs.appends);
}

#[test]
fn shutdown_and_a_broken_store_end_the_loop() {
    let store = Memory::default();
    let (_timer, logs) = logs(&store);
    let mut fetch = Box::pin(logs.fetch(1, 5, 30 * SECOND));
    assert!(poll(&mut fetch).is_pending());
    logs.appends.shutdown(SECOND);
    assert!(matches!(poll(&mut fetch), Poll::Ready(Err(_))));
    assert!(matches!(poll(&mut Box::pin(logs.fetch(1, 5, SECOND))), Poll::Ready(Err(_))));
    let broken = Memory { broken: true, ..Memory::default() };
    let (_timer, logs) = self::logs(&broken);
    assert!(matches!(poll(&mut Box::pin(logs.fetch(1, 5, SECOND))), Poll::Ready(Err(_))));
    nothing_is_left(&logs.appends);
}
