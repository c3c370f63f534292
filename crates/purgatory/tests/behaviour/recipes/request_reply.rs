//! Request and reply in every order. (What it is made of is tested in `behaviour/replies`.)

use std::{
    io,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst, mpsc},
    thread,
};

use purgatory::{Expected, Purgatory, Replies};
use timer_core::ManualTimer;
use tokio::task::JoinHandle;

use super::{
    MS, On, SECOND, by_hand, guide::request_reply::Connection, off_runtime, on_runtimes, poll,
};

type Waits = Purgatory<u64, Expected<String>>;
type Answer = Result<String, String>;

fn connection() -> (ManualTimer, Waits, Arc<Connection>) {
    let (timer, waits) = by_hand();
    let replies = Replies::from(waits.clone());
    (timer, waits, Arc::new(Connection { replies, numbers: 0.into() }))
}

/// How it ended, as text.
async fn ask(connection: &Connection, send: impl FnOnce(u64) -> io::Result<()>) -> Answer {
    connection.ask(send).await.map_err(|error| error.to_string())
}

/// A task that asks; returns when it has sent.
fn asking(runtime: &On, connection: &Arc<Connection>) -> JoinHandle<Answer> {
    let (sent, was_sent) = tokio::sync::oneshot::channel();
    let connection = connection.clone();
    let send = move |_| sent.send(()).map_err(|()| io::Error::other("nobody listens"));
    let task = runtime.spawn(async move { ask(&connection, send).await });
    runtime.block_on(was_sent).unwrap();
    task
}

#[test]
fn a_reply_that_comes_before_the_request_was_sent_is_there() {
    on_runtimes(|runtime| {
        let (_timer, waits, connection) = connection();
        let early = |number| connection.replied(number, "early".into()).map_err(io::Error::other);
        assert_eq!(runtime.block_on(ask(&connection, early)), Ok("early".into()));
        super::nothing_is_left(&waits);
    });
}

#[test]
fn replies_in_any_order_twice_and_late_reach_whoever_asked() {
    on_runtimes(|runtime| {
        let (timer, waits, connection) = connection();
        let [first, second, third] = [(); 3].map(|()| asking(runtime, &connection));
        let reply = |number, text: &str| connection.replied(number, text.into());
        assert_eq!(off_runtime(|| reply(1, "b")), Ok(()));
        assert_eq!((reply(0, "a"), reply(1, "again")), (Ok(()), Err("again".into())));
        timer.advance(30 * SECOND - MS);
        assert_eq!(waits.len(), 1);
        off_runtime(|| timer.advance(MS));
        assert_eq!((reply(2, "late"), reply(3, "?")), (Err("late".into()), Err("?".into())));
        let told = [first, second, third].map(|task| runtime.block_on(task).unwrap());
        assert_eq!(told, [Ok("a".into()), Ok("b".into()), Err("the time ran out".into())]);
        super::nothing_is_left(&waits);
    });
}

#[test]
fn a_request_that_cannot_be_sent_fails_at_once() {
    let (_timer, waits, connection) = connection();
    let mut fails = Box::pin(ask(&connection, |_| Err(io::Error::other("broken pipe"))));
    assert_eq!(poll(&mut fails), Err("broken pipe".into()).into());
    super::nothing_is_left(&waits);
}

#[test]
fn a_client_that_goes_leaves_nothing_and_its_reply_is_handed_back() {
    on_runtimes(|runtime| {
        let (_timer, waits, connection) = connection();
        drop(ask(&connection, |_| unreachable!("it was not polled")));
        let gone = asking(runtime, &connection);
        gone.abort();
        assert!(runtime.block_on(gone).unwrap_err().is_cancelled());
        super::nothing_is_left(&waits);
        assert_eq!(connection.replied(0, "for nobody".into()), Err("for nobody".into()));
    });
}

/// Whoever asks as the connection goes does not wait for a reply that cannot come.
#[test]
fn a_connection_that_closes_fails_what_was_asked_and_what_is_asked_after() {
    on_runtimes(|runtime| {
        let (_timer, waits, connection) = connection();
        let asked = [(); 2].map(|()| asking(runtime, &connection));
        assert_eq!(off_runtime(|| connection.closed()), 2);
        let late = runtime.block_on(ask(&connection, |_| Ok(())));
        assert_eq!(late, Err("not parked: the purgatory was shut down".into()));
        assert_eq!(connection.replied(0, "old".into()), Err("old".into()));
        assert_eq!(connection.closed(), 0);
        let closed = Err("cancelled: connection closed".into());
        assert_eq!(asked.map(|task| runtime.block_on(task).unwrap()), [closed.clone(), closed]);
        super::nothing_is_left(&waits);
    });
}

#[test]
fn a_shutdown_ends_what_is_asked() {
    on_runtimes(|runtime| {
        let (_timer, waits, connection) = connection();
        let asked = asking(runtime, &connection);
        connection.replies.purgatory().shutdown(SECOND);
        assert_eq!(runtime.block_on(asked).unwrap(), Err("cancelled: shut down".into()));
        let refused = runtime.block_on(ask(&connection, |_| Ok(())));
        assert_eq!(refused, Err("not parked: the purgatory was shut down".into()));
        super::nothing_is_left(&waits);
    });
}

/// A network that answers each request twice, and some not at all; clients that go; a connection
/// that closes. Each reply is taken or handed back, and each request ends once.
#[test]
fn of_many_requests_each_ends_once() {
    const REQUESTS: u64 = 2000;
    on_runtimes(|runtime| {
        let (timer, waits, connection) = connection();
        let (network, requests) = mpsc::channel::<u64>();
        let delivered = Arc::new(Mutex::new(0));
        let (answers, counted) = (connection.clone(), delivered.clone());
        let network_thread = thread::spawn(move || {
            for number in requests {
                let replies = if number % 5 == 0 { 0 } else { 2 };
                for _ in 0..replies {
                    let taken = answers.replied(number, number.to_string()).is_ok();
                    *counted.lock().unwrap() += u64::from(taken);
                }
                if number == REQUESTS / 2 {
                    answers.closed();
                }
            }
        });
        let tasks: Vec<_> = (0..REQUESTS)
            .map(|at| {
                let (connection, network) = (connection.clone(), network.clone());
                runtime.spawn(async move {
                    let mut number = None;
                    let sent = &mut number;
                    let send = move |number| {
                        *sent = Some(number);
                        network.send(number).map_err(io::Error::other)
                    };
                    tokio::select! {
                        biased;
                        told = ask(&connection, send) => Some(told.map(|text| (text, number))),
                        () = tokio::task::yield_now(), if at % 7 == 0 => None,
                    }
                })
            })
            .collect();
        drop(network);
        // Once all have been sent, or have gone, the rest expires.
        let passes = async {
            while connection.numbers.load(SeqCst) < REQUESTS {
                tokio::task::yield_now().await;
            }
        };
        runtime.block_on(passes);
        network_thread.join().unwrap();
        timer.advance(30 * SECOND);
        let (mut taken, mut failed, mut gone) = (0, 0, 0);
        for task in tasks {
            match runtime.block_on(task).unwrap() {
                Some(Ok((text, number))) => {
                    assert_eq!(Some(text), number.map(|number| number.to_string()));
                    taken += 1;
                }
                Some(Err(_)) => failed += 1,
                None => gone += 1,
            }
        }
        assert_eq!(taken + failed + gone, REQUESTS);
        let stats = waits.stats();
        let ended = stats.completed + stats.expired + stats.cancelled;
        assert_eq!(ended + stats.refused_closed, REQUESTS);
        // What was delivered was taken, but for clients that went before they looked.
        let delivered = *delivered.lock().unwrap();
        assert!(taken <= delivered && delivered <= taken + gone);
        super::nothing_is_left(&waits);
    });
}
