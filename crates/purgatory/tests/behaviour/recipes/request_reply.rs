//! Request and reply over a connection. (What it is made of is tested in `behaviour/replies`.)

use std::{io, sync::Arc};

use purgatory::{Expected, Purgatory, Replies};
use timer_core::ManualTimer;

use super::{
    SECOND, Wait, by_hand, every_order, got, guide::request_reply::Connection, over, poll,
};

type Waits = Purgatory<u64, Expected<String>>;

fn connection() -> (ManualTimer, Waits, Arc<Connection>) {
    let (timer, waits) = by_hand();
    let replies = Replies::from(waits.clone());
    (timer, waits, Arc::new(Connection { replies, numbers: 0.into() }))
}

/// Each request has the next number, so all that were asked are answered.
#[test]
fn a_request_waits_for_its_reply() {
    every_order(|| {
        let (timer, waits, connection) = connection();
        let asks = connection.clone();
        let begin = move || {
            let asks = asks.clone();
            async move { asks.ask(|_| Ok(())).await }
        };
        let complete = move || {
            (0..2).for_each(|number| _ = connection.replied(number, number.to_string()));
        };
        (Wait { timer, waits, limit: 30 * SECOND, remembers: false }, begin, complete)
    });
}

#[test]
fn a_reply_may_come_before_its_request_was_sent() {
    let (_timer, waits, connection) = connection();
    let early = |number| connection.replied(number, "early".into()).map_err(io::Error::other);
    assert_eq!(got(&mut Box::pin(connection.ask(early))), "early");
    let mut fails = Box::pin(connection.ask(|_| Err(io::Error::other("broken pipe"))));
    assert_eq!(over(&mut fails).as_deref(), Some("broken pipe"));
    super::nothing_is_left(&waits);
}

#[test]
fn replies_twice_or_unasked_are_handed_back() {
    let (_timer, waits, connection) = connection();
    let mut asked = [(); 2].map(|()| Box::pin(connection.ask(|_| Ok(()))));
    assert!(asked.iter_mut().all(|ask| poll(ask).is_pending()));
    let reply = |number, text: &str| connection.replied(number, text.into());
    assert_eq!((reply(1, "b"), reply(0, "a")), (Ok(()), Ok(())));
    assert_eq!((reply(1, "again"), reply(3, "?")), (Err("again".into()), Err("?".into())));
    assert_eq!(asked.each_mut().map(got), ["a", "b"]);
    super::nothing_is_left(&waits);
}

/// A client that asks as the connection goes does not wait for a reply that cannot come.
#[test]
fn a_closed_connection_fails_all_requests() {
    let (_timer, waits, connection) = connection();
    let mut asked = [(); 2].map(|()| Box::pin(connection.ask(|_| Ok(()))));
    assert!(asked.iter_mut().all(|ask| poll(ask).is_pending()));
    assert_eq!((connection.closed(), connection.closed()), (2, 0));
    let closed = Some("cancelled: connection closed".to_owned());
    assert_eq!(asked.each_mut().map(over), [closed.clone(), closed]);
    let late = over(&mut Box::pin(connection.ask(|_| Ok(()))));
    assert_eq!(late.as_deref(), Some("not parked: the purgatory was shut down"));
    assert_eq!(connection.replied(0, "old".into()), Err("old".into()));
    super::nothing_is_left(&waits);
}
