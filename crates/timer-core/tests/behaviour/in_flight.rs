//! The table of a client's requests in flight, as an RPC client keeps it (tarpc's, for one): by id,
//! each with a deadline and the sender of its answer. One task owns it and polls it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::mpsc::{Receiver, Sender, channel},
    task::ready,
};

use crate::support::*;

// begin: the table
struct InFlight<R> {
    keys: HashMap<u64, TaskId>,
    requests: DelayQueue<Request<R>>,
}

struct Request<R> {
    id: u64,
    answer: Sender<R>,
}

#[derive(Debug, PartialEq)]
enum Refused {
    IdInUse,
    Timer(TimerError),
}

impl<R> InFlight<R> {
    fn insert(&mut self, id: u64, timeout: Duration, answer: Sender<R>) -> Result<(), Refused> {
        let Entry::Vacant(vacant) = self.keys.entry(id) else {
            return Err(Refused::IdInUse);
        };
        let key = self.requests.insert(Request { id, answer }, timeout);
        vacant.insert(key.map_err(|refused| Refused::Timer(refused.reason))?);
        Ok(())
    }

    /// Takes a request out, to be answered or forgotten.
    fn take(&mut self, id: u64) -> Option<Request<R>> {
        self.requests.remove(&self.keys.remove(&id)?)
    }

    /// Takes all requests out, when the connection is gone.
    fn take_all(&mut self) -> Vec<Request<R>> {
        self.keys.clear();
        self.requests.drain()
    }

    /// Takes out a request whose deadline has passed.
    fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<Request<R>>> {
        let expired = ready!(self.requests.poll_expired(context)).and_then(Result::ok);
        let request = expired.map(|expired| expired.value);
        if let Some(request) = &request {
            self.keys.remove(&request.id);
        }
        Poll::Ready(request)
    }
}
// end: the table

fn setup() -> (ManualTimer, InFlight<&'static str>) {
    let timer = ManualTimer::new();
    let requests = DelayQueue::new(&timer);
    let keys = HashMap::new();
    (timer, InFlight { keys, requests })
}

/// Starts a request; returns the end at which its caller waits.
fn start(table: &mut InFlight<&'static str>, id: u64, timeout: Duration) -> Receiver<&'static str> {
    let (answer, caller) = channel();
    assert_eq!(table.insert(id, timeout, answer), Ok(()));
    caller
}

fn expired(table: &mut InFlight<&'static str>) -> Option<u64> {
    match table.poll_expired(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(request) => Some(request?.id),
        Poll::Pending => None,
    }
}

#[test]
fn requests_in_flight_are_answered_or_time_out_once() {
    let (timer, mut table) = setup();
    let [answered, late, cancelled, left] =
        [1, 2, 3, 4].map(|id| start(&mut table, id, MS * 10 * id as u32));
    let in_use = table.insert(1, MS, channel().0);
    assert_eq!(in_use, Err(Refused::IdInUse));

    // An answer, and a caller that is gone.
    let request = table.take(1).unwrap();
    request.answer.send("answer").unwrap();
    assert!(table.take(3).is_some() && table.take(3).is_none());
    assert_eq!(answered.recv(), Ok("answer"));
    assert!(cancelled.recv().is_err());

    // A deadline: the request leaves the table, and its id can be used again.
    assert_eq!(expired(&mut table), None);
    timer.advance(MS * 20);
    assert_eq!((expired(&mut table), expired(&mut table)), (Some(2), None));
    assert!(late.recv().is_err() && table.take(2).is_none());

    // The connection goes.
    for request in table.take_all() {
        request.answer.send("disconnected").unwrap();
    }
    assert_eq!(left.recv(), Ok("disconnected"));
    assert!(table.requests.is_empty() && table.keys.is_empty());
}

#[test]
fn request_on_a_closed_timer_is_refused() {
    let (timer, mut table) = setup();
    timer.shutdown(Duration::MAX);
    let refused = table.insert(1, MS, channel().0);
    assert_eq!(refused, Err(Refused::Timer(TimerError::Closed)));
    assert!(table.keys.is_empty());
}
