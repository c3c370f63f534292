//! The gateway alone, its purgatory on a timer that is turned by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{future, net::SocketAddr, pin::Pin, time::Duration};

use axum::http::{Request, StatusCode, header::RETRY_AFTER};
use axum::{Router, body::Body, body::to_bytes, response::Response};
use external_events_example::orders::Orders;
use external_events_example::routes::{Gateway, connection, routes, serve};
use futures_util::{FutureExt, poll};
use purgatory::{Purgatory, timer_core::ManualTimer};
use tokio::io::{AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

const MAX_PARKED: usize = 2;
const HEAD: Duration = Duration::from_secs(10);

struct Stage {
    timer: ManualTimer,
    orders: Orders,
    app: Router,
}

impl Stage {
    fn new() -> Stage {
        let timer = ManualTimer::new();
        let waits = Purgatory::builder("orders").timer(&timer).max_parked(MAX_PARKED);
        let orders = Orders::new(waits.build().unwrap(), 100);
        orders.begin(5);
        let wait_max = Duration::from_secs(60);
        let body_max = Duration::from_secs(10);
        let app = routes(Gateway { orders: orders.clone(), nats: None, wait_max, body_max });
        Stage { timer, orders, app }
    }

    fn ask(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response>>> {
        let response = self.app.clone().oneshot(request);
        Box::pin(async { response.await.unwrap() })
    }

    fn get(&self, path: &str) -> Pin<Box<dyn Future<Output = Response>>> {
        self.ask(Request::get(path).body(Body::empty()).unwrap())
    }

    /// A GET that waits.
    fn wait(&self, path: &str) -> Pin<Box<dyn Future<Output = Response>>> {
        let mut response = self.get(path);
        assert!(response.as_mut().now_or_never().is_none(), "{path} was answered");
        response
    }

    async fn post(&self, path: &str, state: &str) -> Response {
        self.ask(Request::post(path).body(Body::from(state.to_owned())).unwrap()).await
    }

    fn parked(&self) -> usize {
        self.orders.waits().len()
    }
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn a_post_completes_whoever_waits_for_its_order() {
    let stage = Stage::new();
    let seven = stage.wait("/orders/7?wait=30s");
    let mut eight = stage.wait("/orders/8?wait=30s&seen=0");
    let posted = text(stage.post("/orders/7", "shipped").await).await;
    let expected = r#"{"id":"7","epoch":5,"version":1,"state":"shipped"}"#;
    assert_eq!(posted, expected);
    assert_eq!((text(seven.await).await, stage.parked()), (posted, 1));
    assert!(poll!(&mut eight).is_pending());
}

#[tokio::test]
async fn what_the_client_has_not_seen_is_answered_at_once() {
    let stage = Stage::new();
    for state in ["ordered", "shipped"] {
        stage.post("/orders/7", state).await;
    }
    let order = text(stage.get("/orders/7?seen=1&epoch=5").await).await;
    let order: serde_json::Value = serde_json::from_str(&order).unwrap();
    assert_eq!((&order["version"], &order["state"]), (&2.into(), &"shipped".into()));
    drop(stage.wait("/orders/7?seen=2&epoch=5"));
    let next = stage.wait("/orders/7"); // without it: the next change
    stage.post("/orders/7", "delivered").await;
    let order = text(next.await).await;
    assert!(order.contains(r#""version":3,"state":"delivered""#), "{order}");
}

#[tokio::test]
async fn a_client_from_another_epoch_is_answered_at_once() {
    let stage = Stage::new();
    let posted = text(stage.post("/orders/8", "shipped").await).await;
    for epoch in [0, 4, 6, u64::MAX] {
        let gone = stage.get(&format!("/orders/7?seen=99&epoch={epoch}")).await;
        assert_eq!(gone.status(), StatusCode::GONE, "{epoch}");
        assert_eq!(text(gone).await, r#"{"id":"7","epoch":5}"#);
        let known = stage.get(&format!("/orders/8?seen=99&epoch={epoch}")).await;
        assert_eq!(text(known).await, posted, "{epoch}");
    }

    let waits = stage.wait("/orders/7?seen=1&epoch=5");
    stage.orders.begin(6);
    assert_eq!(waits.await.status(), StatusCode::GONE);
}

#[tokio::test]
async fn no_content_exactly_when_the_time_is_up() {
    let stage = Stage::new();
    let mut response = stage.wait("/orders/7?wait=30s");
    stage.timer.advance(Duration::from_secs(30) - Duration::from_nanos(1));
    assert!(poll!(&mut response).is_pending());
    stage.timer.advance(Duration::from_nanos(1));
    assert_eq!(response.await.status(), StatusCode::NO_CONTENT);
    assert_eq!(stage.get("/orders/7?wait=0s").await.status(), StatusCode::NO_CONTENT);
}

/// Lets the other tasks run until it is so.
async fn until(is_so: impl Fn() -> bool) {
    let waits = async {
        while !is_so() {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), waits).await.expect("waited in vain");
}

/// Serves one connection at a time.
async fn served(stage: &Stage) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(serve(listener, stage.app.clone(), 1, HEAD, future::pending())))
}

/// A client that asks for an order.
async fn asks(address: SocketAddr, order: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /orders/{order} HTTP/1.1\r\nHost: here\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

/// A connection whose client has sent this, under tokio's clock, which stands still while there is
/// work; true if the gateway has closed it at `time`.
async fn closed_at(stage: &Stage, sent: &[u8], time: Duration) -> bool {
    let (mut client, server) = duplex(1 << 16);
    client.write_all(sent).await.unwrap();
    let serving = tokio::spawn(connection(server, stage.app.clone(), HEAD));
    sleep(time).await;
    let closed = serving.is_finished();
    serving.abort();
    closed
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_send_the_head_of_a_request_is_closed_in_time() {
    let (stage, moment) = (Stage::new(), Duration::from_millis(100));
    let half = b"GET /orders/7 HTTP/1.1\r\nHost: he";
    for sent in [&b""[..], b"G", half] {
        assert!(!closed_at(&stage, sent, HEAD - moment).await);
        assert!(closed_at(&stage, sent, HEAD + moment).await);
    }
    let whole = b"GET /orders/7 HTTP/1.1\r\nHost: here\r\n\r\n";
    assert!(!closed_at(&stage, whole, 3 * HEAD).await, "that one waits for its order");
    let answered = b"GET /orders/7?wait=0s HTTP/1.1\r\nHost: here\r\n\r\n";
    assert!(closed_at(&stage, answered, HEAD + moment).await, "nothing came after the answer");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_told() {
    let stage = Stage::new();
    let silent = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let response = stage.ask(Request::post("/orders/7").body(Body::from_stream(silent)).unwrap());
    assert_eq!(response.await.status(), StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn so_many_connections_and_the_next_one_when_a_client_hangs_up_and_waits_no_more() {
    let stage = Stage::new();
    let (address, serving) = served(&stage).await;
    let first = asks(address, "7").await;
    until(|| stage.parked() == 1).await;
    let second = asks(address, "8").await;
    for _ in 0..1000 {
        yield_now().await;
    }
    assert_eq!(stage.parked(), 1, "the second is not accepted");
    drop(first);
    until(|| stage.orders.waits().waiters("8") == 1).await;
    assert_eq!((stage.parked(), stage.orders.waits().stats().cancelled), (1, 1));
    drop(second);
    until(|| stage.parked() == 0).await;
    assert_eq!((stage.orders.waits().keys(), stage.orders.waits().stats().cancelled), (0, 2));
    serving.abort();
}

#[tokio::test]
async fn one_too_many_is_told_to_come_again() {
    let stage = Stage::new();
    let _parked = [stage.wait("/orders/1"), stage.wait("/orders/2")];
    let refused = stage.get("/orders/3").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    assert_eq!(text(refused).await, "not parked: no more than 2 can be parked\n");
}

#[tokio::test]
async fn shutdown_answers_whoever_waits() {
    let stage = Stage::new();
    let parked = stage.wait("/orders/7");
    stage.orders.waits().shutdown();
    for response in [parked, stage.get("/orders/7")] {
        let response = response.await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert!(text(response).await.contains("shutting down"));
    }
}

#[tokio::test]
async fn a_bad_request_is_told_its_bound() {
    let stage = Stage::new();
    let long = format!("/orders/{}", "x".repeat(65));
    for (path, value, bound) in [
        ("/orders/7?wait=2m", "2m", "1m at most"),
        ("/orders/7?wait=soon", "soon", "one like 30s"),
        ("/orders/7?wait=5", "5", "one like 30s"),
        ("/orders/7?seen=-1", "-1", "whole number"),
        ("/orders/7?seen=1&epoch=x", "x", "whole number"),
        ("/orders/7?seen=1", "seen", "needs epoch"),
        ("/orders/7?epoch=1", "epoch", "needs seen"),
        ("/orders/7?sen=1", "sen", "expected"),
        ("/orders/a.b", "a.b", "1 to 64"),
        (&long, "xxx", "1 to 64"),
    ] {
        let response = stage.get(path).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
        let said = text(response).await;
        assert!(said.contains(value) && said.contains(bound), "{path}: {said}");
    }
    assert_eq!(stage.post("/orders/7", "").await.status(), StatusCode::BAD_REQUEST);
    let large = stage.post("/orders/7", &"x".repeat(5000)).await;
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
}
