//! Tests how a gateway makes and follows its stream, with a NATS server that the test plays.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use std::time::Duration;

use async_nats::ServerAddr;
use external_events_example::nats::Nats;
use external_events_example::orders::{News, Orders, Seen, Since};
use purgatory::Purgatory;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// The times at which two streams of one name were made.
const FIRST: &str = "2024-05-01T12:00:00Z";
const SECOND: &str = "2024-05-01T12:00:01Z";

/// Plays a NATS server on one connection: answers each question to JetStream by `answer`, and sends
/// its subject to `asked`.
async fn play_server(
    connection: TcpStream,
    mut answer: impl FnMut(&str) -> Option<Value>,
    asked: mpsc::UnboundedSender<String>,
) {
    let mut connection = BufReader::new(connection);
    let info = json!({"server_id": "played", "version": "2.9.10", "max_payload": 1 << 20,
        "headers": true, "proto": 1, "host": "127.0.0.1", "port": 4222, "go": "", "client_id": 1});
    let hello = format!("INFO {info}\r\n");
    connection.write_all(hello.as_bytes()).await.unwrap();

    let mut subscription = String::new();
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => connection.write_all(b"PONG\r\n").await.unwrap(),
            // The first subscription is for answers, the next is the consumer's.
            ["SUB", _, id] if subscription.is_empty() => subscription = id.to_owned(),
            ["PUB", subject, reply, length] => {
                let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
                connection.read_exact(&mut body).await.unwrap();
                let _ = asked.send(subject.to_owned());
                if let Some(answer) = answer(subject) {
                    let answer = answer.to_string();
                    let length = answer.len();
                    let message = format!("MSG {reply} {subscription} {length}\r\n{answer}\r\n");
                    connection.write_all(message.as_bytes()).await.unwrap();
                }
            }
            _ => {}
        }
    }
}

fn error(code: u64, number: u64, description: &str) -> Value {
    json!({"type": "io.nats.jetstream.api.v1.stream_info_response",
        "error": {"code": code, "err_code": number, "description": description}})
}

fn stream(created: &str) -> Value {
    json!({"type": "io.nats.jetstream.api.v1.stream_info_response",
        "config": {"name": "ORDERS", "subjects": ["orders.*"], "retention": "limits",
            "max_consumers": -1, "max_msgs": 100, "max_bytes": -1, "max_age": 0,
            "max_msgs_per_subject": 1, "max_msg_size": -1, "discard": "old", "storage": "file",
            "num_replicas": 1},
        "created": created,
        "state": {"messages": 0, "bytes": 0, "first_seq": 0, "first_ts": "0001-01-01T00:00:00Z",
            "last_seq": 0, "last_ts": "0001-01-01T00:00:00Z", "consumer_count": 0}})
}

/// Describes a consumer that has nothing to send.
fn consumer() -> Value {
    json!({"type": "io.nats.jetstream.api.v1.consumer_create_response",
        "stream_name": "ORDERS", "name": "played", "created": FIRST,
        "config": {"name": "played", "deliver_policy": "last_per_subject", "ack_policy": "none",
            "max_deliver": 1, "replay_policy": "instant", "filter_subject": "orders.*"},
        "delivered": {"consumer_seq": 0, "stream_seq": 0},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
        "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0, "num_pending": 0})
}

/// Plays a server that answers by `answer`; returns its address.
async fn serve(
    answer: impl FnMut(&str) -> Option<Value> + Send + 'static,
    asked: mpsc::UnboundedSender<String>,
) -> ServerAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap().to_string().parse();
    tokio::spawn(async move {
        let (connection, _) = listener.accept().await.unwrap();
        play_server(connection, answer, asked).await;
    });
    server.unwrap()
}

/// Starts a gateway's follower on a server that answers by `answer`. Returns the subjects of its
/// questions until it has the stream, or its error.
async fn start(
    answer: impl FnMut(&str) -> Option<Value> + Send + 'static,
) -> Result<Vec<String>, anyhow::Error> {
    let (asked, mut questions) = mpsc::unbounded_channel();
    let server = serve(answer, asked).await;
    let orders = Orders::new(Purgatory::new("orders").unwrap(), 100);
    let starting = Nats::start(&server, &orders, 100);
    let has_stream = async {
        let mut subjects = Vec::new();
        while let Some(subject) = questions.recv().await {
            if subject.starts_with("$JS.API.CONSUMER.CREATE") {
                break;
            }
            subjects.push(subject);
        }
        subjects
    };
    tokio::select! {
        subjects = has_stream => Ok(subjects),
        started = starting => Err(started.err().expect("no consumer was made")),
    }
}

#[tokio::test]
async fn stream_that_another_gateway_makes_is_found() {
    const OVERLAP: &str = "subjects overlap with an existing stream";
    let mut is_made = false;
    let asked = start(move |subject| match subject {
        "$JS.API.STREAM.INFO.ORDERS" if is_made => Some(stream(FIRST)),
        "$JS.API.STREAM.INFO.ORDERS" => Some(error(404, 10059, "stream not found")),
        "$JS.API.STREAM.CREATE.ORDERS" => {
            is_made = true; // by the other gateway
            Some(error(400, 10065, OVERLAP))
        }
        _ => None,
    });
    let asked = asked.await.unwrap();
    assert_eq!(asked[1], "$JS.API.STREAM.CREATE.ORDERS", "{asked:?}");
    assert_eq!(asked[2], "$JS.API.STREAM.INFO.ORDERS", "{asked:?}");
}

/// The connection stays open, so only a look at the stream shows that it is new.
#[tokio::test]
async fn stream_made_anew_by_a_server_that_lives_is_noticed() {
    let is_anew = Arc::new(AtomicBool::new(false));
    let anew = is_anew.clone();
    let answer = move |subject: &str| match subject {
        "$JS.API.STREAM.INFO.ORDERS" if anew.load(SeqCst) => Some(stream(SECOND)),
        "$JS.API.STREAM.INFO.ORDERS" => Some(stream(FIRST)),
        _ if subject.starts_with("$JS.API.CONSUMER.CREATE") => Some(consumer()),
        _ => None,
    };
    let server = serve(answer, mpsc::unbounded_channel().0).await;
    let orders = Orders::new(Purgatory::new("orders").unwrap(), 100);
    Nats::start(&server, &orders, 100).await.unwrap();

    let epoch = orders.epoch();
    let seen = Seen { epoch, version: 7 };
    let wait = orders.wait(&"7".into(), Since::Version(seen), Duration::from_secs(30));
    is_anew.store(true, SeqCst);
    let news = News::Anew {
        epoch: epoch + 1_000_000,
    };
    assert_eq!(wait.await, Ok(news));
}

#[tokio::test]
async fn subjects_of_another_stream_are_named() {
    let started = start(|subject| match subject {
        "$JS.API.STREAM.INFO.ORDERS" => Some(error(404, 10059, "stream not found")),
        "$JS.API.STREAM.CREATE.ORDERS" => Some(error(400, 10065, "subjects overlap")),
        _ => None,
    });
    let error = format!("{:#}", started.await.unwrap_err());
    assert!(error.contains("orders.*"), "{error}");
    assert!(error.contains("another program's stream"), "{error}");
}

#[tokio::test]
async fn server_that_makes_no_stream_is_an_error() {
    let started = start(|_| {
        Some(error(
            503,
            10008,
            "JetStream system temporarily unavailable",
        ))
    });
    let error = format!("{:#}", started.await.unwrap_err());
    assert!(
        error.contains("cannot get or make stream ORDERS"),
        "{error}"
    );
}

#[tokio::test]
async fn a_password_in_the_servers_url_is_not_printed() {
    let server = "nats://name:secret@127.0.0.1:1".parse().unwrap(); // no server listens there
    let orders = Orders::new(Purgatory::new("orders").unwrap(), 100);
    let refused = Nats::start(&server, &orders, 100).await.err().unwrap();
    let told = format!("{refused:#}");
    assert!(
        told.contains("127.0.0.1:1") && !told.contains("secret"),
        "{told}"
    );
}
