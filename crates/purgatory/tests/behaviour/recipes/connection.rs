//! A connection's scope: its requests end with it, whatever they wait for.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use purgatory::{Outcome, Purgatory};

use super::{
    by_hand,
    guide::connection::{Connection, Key},
    nothing_is_left,
};
use crate::support::requested;

type Answers = Arc<Mutex<Vec<(u32, Outcome)>>>;

fn connection(number: u64, requests: &Purgatory<Key>) -> Connection {
    Connection { number, closed: Arc::default(), requests: requests.clone() }
}

fn ask(connection: &Connection, partition: u32, ready: &Arc<AtomicBool>, answers: &Answers) {
    let (ready, answers) = (ready.clone(), answers.clone());
    let answer = move |outcome| answers.lock().unwrap().push((partition, outcome));
    connection.request(partition, move || ready.load(SeqCst), answer).unwrap();
}

#[test]
fn a_close_ends_its_own_requests_and_no_others() {
    let (_timer, requests) = by_hand();
    let [ours, theirs] = [1, 2].map(|number| connection(number, &requests));
    let (ready, closed, answers) = (Arc::default(), Answers::default(), Answers::default());
    ask(&ours, 1, &ready, &closed);
    ask(&ours, 2, &ready, &closed);
    ask(&theirs, 1, &ready, &answers);
    assert_eq!(ours.close(), 2);
    let gone = requested("connection closed");
    assert_eq!(*closed.lock().unwrap(), [(1, gone.clone()), (2, gone)]);
    assert_eq!((requests.len(), requests.watched()), (1, 2));
    ready.store(true, SeqCst);
    assert_eq!(requests.check_and_complete(&Key::Partition(1)), 1);
    assert_eq!(*answers.lock().unwrap(), [(1, Outcome::Completed)]);
    assert_eq!(ours.close() + theirs.close(), 0);
    nothing_is_left(&requests);
}

#[test]
fn a_request_after_the_close_does_not_wait() {
    let (_timer, requests) = by_hand();
    let (ours, answers) = (connection(1, &requests), Answers::default());
    assert_eq!(ours.close(), 0);
    ask(&ours, 1, &Arc::default(), &answers);
    assert_eq!(*answers.lock().unwrap(), [(1, Outcome::Completed)]); // to a client that has gone
    nothing_is_left(&requests);
}

/// The close falls between the request's first check and its registration.
#[test]
fn a_close_while_a_request_parks_is_noticed() {
    let (_timer, requests) = by_hand();
    let (ours, answers) = (Arc::new(connection(1, &requests)), Answers::default());
    let (closes, told) = (ours.clone(), answers.clone());
    let closed = AtomicBool::new(false);
    let check = move || {
        if !closed.swap(true, SeqCst) {
            closes.close();
        }
        false
    };
    let answer = move |outcome| told.lock().unwrap().push((1, outcome));
    ours.request(1, check, answer).unwrap();
    assert_eq!(*answers.lock().unwrap(), [(1, Outcome::Completed)]);
    nothing_is_left(&requests);
}
