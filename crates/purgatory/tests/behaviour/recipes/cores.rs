//! A purgatory for each core: messages in any order, and time that its own turns let pass.

use std::sync::{Arc, Mutex, mpsc::Sender};

use purgatory::{Outcome, when};

use super::{
    MS, SECOND,
    guide::cores::{Core, Message},
    nothing_is_left, off_runtime,
};

type Answers = Arc<Mutex<Vec<(u64, Outcome)>>>;

/// A request that an event for its key completes once `key` is in `ready`.
fn ask(outbox: &Sender<(u64, Message)>, key: u64, ready: &Arc<Mutex<Vec<u64>>>, told: &Answers) {
    let (ready, told) = (ready.clone(), told.clone());
    let check = move || ready.lock().unwrap().contains(&key);
    let request = when(check, move |outcome| told.lock().unwrap().push((key, outcome)));
    outbox.send((key, Message::Request(SECOND, request))).unwrap();
}

#[test]
fn messages_are_handled_in_order_by_the_turn() {
    let ((outbox, core), ready, told) = (Core::new().unwrap(), Arc::default(), Answers::default());
    off_runtime(|| {
        ask(&outbox, 1, &ready, &told);
        ask(&outbox, 2, &ready, &told);
        ready.lock().unwrap().extend([1, 2]);
        outbox.send((2, Message::Event)).unwrap();
    });
    assert!(told.lock().unwrap().is_empty()); // nothing ran on the sender's thread
    core.turn(MS).unwrap();
    assert_eq!(*told.lock().unwrap(), [(1, Outcome::Completed), (2, Outcome::Completed)]);
    nothing_is_left(&core.waits);
}

#[test]
fn an_event_completes_and_a_turn_expires() {
    let ((outbox, core), ready, told) = (Core::new().unwrap(), Arc::default(), Answers::default());
    outbox.send((1, Message::Event)).unwrap(); // early: nobody waits
    ask(&outbox, 1, &ready, &told);
    ask(&outbox, 2, &ready, &told);
    assert!(core.turn(MS).unwrap() <= Some(SECOND)); // or until a bucket is handed down
    ready.lock().unwrap().push(1);
    assert_eq!(core.turn(SECOND - MS), Ok(Some(MS)));
    assert!(told.lock().unwrap().is_empty()); // ready, and no event yet
    outbox.send((1, Message::Event)).unwrap();
    outbox.send((1, Message::Event)).unwrap(); // twice
    core.turn(std::time::Duration::ZERO).unwrap();
    assert_eq!(*told.lock().unwrap(), [(1, Outcome::Completed)]);
    assert_eq!(core.turn(MS), Ok(None));
    assert_eq!(told.lock().unwrap()[1..], [(2, Outcome::Expired)]);
    nothing_is_left(&core.waits);
}

#[test]
fn a_core_that_has_gone_refuses_messages() {
    let ((outbox, core), ready, told) = (Core::new().unwrap(), Arc::default(), Answers::default());
    ask(&outbox, 1, &ready, &told);
    core.turn(MS).unwrap();
    drop(core);
    assert_eq!(told.lock().unwrap().len(), 1); // cancelled
    assert!(outbox.send((1, Message::Event)).is_err());
}
