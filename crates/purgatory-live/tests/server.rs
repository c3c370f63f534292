//! The routes, as a client sees them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fmt,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::get};
use purgatory::{BoxedOperation, Purgatory, when};
use purgatory_live::{Live, Server};
use serde_json::Value;

/// A bound on events that must come soon: a test that waits for this long has failed.
const LONG: Duration = Duration::from_secs(30);

fn serve(routes: Router) -> Server {
    Server::start("127.0.0.1:0".parse().unwrap(), routes).unwrap()
}

/// Sends a request; returns the answer's head and a reader for the rest.
fn ask(address: SocketAddr, path: &str) -> (String, BufReader<TcpStream>) {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    write!(
        client,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    // The head ends with an empty line.
    let mut answer = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(
            answer.read_line(&mut head).unwrap() > 0,
            "no end of the head: {head}"
        );
    }
    (head.to_lowercase(), answer)
}

/// Reads the data of the next event; returns `None` when the stream has ended.
fn next_event(stream: &mut impl BufRead) -> Option<Value> {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
}

#[test]
fn page_is_served_with_its_policy() {
    let server = serve(Live::new().router());
    let (head, mut body) = ask(server.address(), "/");

    // The head allows nothing to other origins.
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    assert!(
        head.contains("content-type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    let policy = Live::CONTENT_SECURITY_POLICY.to_lowercase();
    assert!(
        head.contains(&format!("content-security-policy: {policy}\r\n")),
        "{head}"
    );
    assert!(
        !head.contains("access-control"),
        "no other origin may read: {head}"
    );

    // The body is the page.
    let mut page = String::new();
    body.read_to_string(&mut page).unwrap();
    assert_eq!(page, Live::page());
}

#[test]
fn events_follow_each_other_until_the_server_ends() {
    let purgatory: Purgatory<u32, BoxedOperation> = Purgatory::new("orders").unwrap();
    let routes = Router::new().nest("/debug/live", Live::new().purgatory(&purgatory).router());
    let server = serve(routes.route("/health", get(async || "well")));
    let (head, mut stream) = ask(server.address(), "/debug/live/events");
    assert!(
        head.contains("content-type: text/event-stream\r\n"),
        "{head}"
    );
    let (_, mut other) = ask(server.address(), "/debug/live/events");

    // Each event is later than the one before, and soon shows the parked operations.
    let mut at_s = -1.0;
    for parked in 0..3 {
        let event = loop {
            let event = next_event(&mut stream).unwrap();
            if event["purgatories"][0]["stats"]["parked"] == parked {
                break event;
            }
        };
        assert!(event["at_s"].as_f64().unwrap() > at_s);
        at_s = event["at_s"].as_f64().unwrap();
        let operation = BoxedOperation::new(when(|| false, drop));
        let parked = purgatory.try_complete_else_watch(operation, &[7], Duration::from_secs(3600));
        parked.unwrap();
    }

    // Other clients are served meanwhile.
    assert!(next_event(&mut other).is_some());
    let (head, _) = ask(server.address(), "/health");
    assert!(head.starts_with("http/1.1 200 "), "{head}");

    // The server ends although two streams are open.
    let address = server.address();
    drop(server);
    while next_event(&mut stream).is_some() {}
    assert!(TcpListener::bind(address).is_ok(), "the port is free again");
}

/// A key that cannot be shown.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("this key cannot be shown")
    }
}

#[test]
fn key_that_panics_ends_only_its_stream() {
    let purgatory = Purgatory::new("orders").unwrap();
    let server = serve(Live::new().purgatory(&purgatory).router());
    let (_, mut stream) = ask(server.address(), "/events");
    assert!(next_event(&mut stream).is_some());

    // The stream ends as soon as the key has to be shown.
    let operation = when(|| false, drop);
    let parked = purgatory.try_complete_else_watch(operation, &[Panics], Duration::from_secs(3600));
    parked.unwrap();
    while next_event(&mut stream).is_some() {}

    // Without the key, events come again.
    purgatory.shutdown(Duration::from_secs(5));
    let (_, mut stream) = ask(server.address(), "/events");
    assert!(next_event(&mut stream).is_some());
}

#[test]
fn taken_port_is_an_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = Server::start(taken.local_addr().unwrap(), Router::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn handler_may_drop_its_server() {
    let slot: Arc<Mutex<Option<Server>>> = Arc::default();
    let own = slot.clone();
    let stop = async move || {
        drop(own.lock().unwrap().take());
        "stopped"
    };
    let server = serve(Router::new().route("/stop", get(stop)));
    let address = server.address();
    *slot.lock().unwrap() = Some(server);
    let (head, mut answer) = ask(address, "/stop");
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    let mut body = String::new();
    answer.read_to_string(&mut body).unwrap();
    assert_eq!(body, "stopped");
}

/// In a process of its own, whose threads would need a larger stack than any machine has.
#[test]
fn server_without_a_thread_is_an_error_in_a_task() {
    const STACK: &str = "RUST_MIN_STACK";
    let huge = (1_u64 << 60).to_string();
    if env::var(STACK).is_ok_and(|stack| stack == huge) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let start = || Server::start("127.0.0.1:0".parse().unwrap(), Router::new());
        assert!(runtime.block_on(async { start() }).is_err());
        return;
    }
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["--exact", "server_without_a_thread_is_an_error_in_a_task"]);
    let ended = again.env(STACK, &huge).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("1 passed"), "{said}");
}
