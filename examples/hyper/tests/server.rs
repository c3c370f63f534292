//! Tests a hyper server on loopback whose timeouts the timer fires.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{convert::Infallible, pin::Pin, task::Context, time::Duration};

use hyper::{
    Request, Response, body::Incoming, rt::Timer as _, server::conn::http1, service::service_fn,
};
use hyper_example::HyperTimer;
use hyper_util::rt::TokioIo;
use timer_core::{ManualTimer, SystemTimer, Timer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(30);

async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("hello".to_owned()))
}

/// Connects a client. The server waits for the head of each request for `limit`.
async fn connect(
    timer: &Timer,
    limit: Duration,
) -> (TcpStream, JoinHandle<Result<(), hyper::Error>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (served, _) = listener.accept().await.unwrap();
    let mut server = http1::Builder::new();
    server
        .timer(HyperTimer::new(timer.clone()))
        .header_read_timeout(limit);
    let connection = server.serve_connection(TokioIo::new(served), service_fn(answer));
    (client, tokio::spawn(connection))
}

/// Lets other tasks run until `sleeping` sleeps are registered.
async fn sleeping(timer: &Timer, sleeping: usize) {
    while timer.sleepers() != sleeping {
        tokio::task::yield_now().await;
    }
}

/// Sends a request and reads its answer; the connection stays open.
async fn request(client: &mut TcpStream) {
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while !answer.ends_with(b"hello") {
        let read = client.read(&mut piece).await.unwrap();
        assert!(read > 0, "the server hung up");
        answer.extend_from_slice(&piece[..read]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn half_a_request_times_out_by_the_manual_clock() {
    let timer = ManualTimer::new();
    timer.advance(7 * MS); // its clock and hyper's instants start apart
    let (mut client, connection) = connect(&timer, LIMIT).await;
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    sleeping(&timer, 1).await;
    // The head of the request is complete just before its timeout.
    timer.advance(LIMIT - MS);
    assert_eq!(timer.sleepers(), 1);
    client.write_all(b"host: here\r\n\r\n").await.unwrap(); // just in time
    let mut piece = [0; 1024];
    assert!(client.read(&mut piece).await.unwrap() > 0);
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap(); // and half another
    sleeping(&timer, 1).await;
    // The head of the next request is never complete.
    timer.advance(LIMIT);
    let ended = connection.await.unwrap().unwrap_err();
    assert!(ended.is_timeout(), "{ended}");
    assert_eq!(timer.sleepers(), 0);
}

#[tokio::test]
async fn a_silent_client_times_out_in_real_time() {
    let timer = SystemTimer::new().unwrap();
    let (mut quick, served) = connect(&timer, LIMIT).await;
    for _ in 0..3 {
        request(&mut quick).await;
    }
    let (mut slow, given_up) = connect(&timer, 20 * MS).await;
    slow.write_all(b"GET / HT").await.unwrap();
    let ended = given_up.await.unwrap().unwrap_err();
    assert!(ended.is_timeout(), "{ended}");
    request(&mut quick).await; // the other connection goes on
    drop(quick);
    let _ = served.await.unwrap();
    assert_eq!(timer.sleepers(), 0);
}

#[test]
fn a_sleep_is_reset_in_place_or_stays_if_refused() {
    let timer = ManualTimer::new();
    timer.advance(3 * MS);
    let hypers = HyperTimer::new(timer.clone());
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut is_over =
        |sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>| sleep.as_mut().poll(&mut context).is_ready();
    let origin = hypers.now();
    let mut first = hypers.sleep(5 * MS);
    let mut second = hypers.sleep_until(origin + 5 * MS);
    assert!(!is_over(&mut first) && !is_over(&mut second));
    // A reset sleep keeps its registration.
    hypers.reset(&mut first, origin + 7 * MS);
    assert_eq!(timer.sleepers(), 2);
    timer.advance(5 * MS);
    assert_eq!(hypers.now(), origin + 5 * MS);
    assert!(!is_over(&mut first) && is_over(&mut second));
    timer.advance(2 * MS);
    assert!(is_over(&mut first));
    // A timer that is shut down refuses a sleep, which is over when it is polled after its time.
    let mut last = hypers.sleep(MS);
    timer.shutdown(Duration::MAX);
    assert!(!is_over(&mut last));
    timer.pass(MS);
    assert!(is_over(&mut last));
}

#[test]
fn sleeps_at_the_ends_of_time_do_not_overflow() {
    let timer = ManualTimer::new();
    timer.advance(MS);
    let hypers = HyperTimer::new(timer.clone());
    let mut context = Context::from_waker(std::task::Waker::noop());
    for duration in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut sleep = hypers.sleep(duration);
        let _ = sleep.as_mut().poll(&mut context);
        timer.advance(MS);
        let over = sleep.as_mut().poll(&mut context).is_ready();
        assert_eq!(over, duration != Duration::MAX, "{duration:?}");
    }
    let before = hypers.now();
    timer.advance(Duration::MAX); // the clock's end
    assert!(hypers.now() > before);
}
