//! Tests of a gateway that runs alone, with its purgatory on a manual timer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{pin::Pin, time::Duration};

use axum::http::{Request, StatusCode, header::RETRY_AFTER};
use axum::{Router, body::Body, body::to_bytes, response::Response};
use external_events_example::orders::Orders;
use external_events_example::routes::{Gateway, routes};
use futures_util::{FutureExt, poll};
use purgatory::{Purgatory, timer_core::ManualTimer};
use tower::ServiceExt;

const MAX_PARKED: usize = 2;

struct Stage {
    timer: ManualTimer,
    orders: Orders,
    app: Router,
}

impl Stage {
    fn new() -> Stage {
        let timer = ManualTimer::new();
        let waits = Purgatory::builder("orders")
            .timer(&timer)
            .max_parked(MAX_PARKED);
        let orders = Orders::new(waits.build().unwrap(), 100);
        orders.begin(5);
        let wait_max = Duration::from_secs(60);
        let app = routes(Gateway {
            orders: orders.clone(),
            nats: None,
            wait_max,
        });
        Stage { timer, orders, app }
    }

    fn ask(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response>>> {
        let response = self.app.clone().oneshot(request);
        Box::pin(async { response.await.unwrap() })
    }

    fn get(&self, path: &str) -> Pin<Box<dyn Future<Output = Response>>> {
        self.ask(Request::get(path).body(Body::empty()).unwrap())
    }

    /// Sends a GET that waits.
    fn wait(&self, path: &str) -> Pin<Box<dyn Future<Output = Response>>> {
        let mut response = self.get(path);
        assert!(
            response.as_mut().now_or_never().is_none(),
            "{path} was answered"
        );
        response
    }

    async fn post(&self, path: &str, state: &str) -> Response {
        let request = Request::post(path).body(Body::from(state.to_owned()));
        self.ask(request.unwrap()).await
    }

    fn parked(&self) -> usize {
        self.orders.waits().len()
    }
}

async fn text(response: Response) -> String {
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn post_completes_the_waits_for_its_order() {
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
async fn unseen_change_is_answered_at_once() {
    let stage = Stage::new();
    for state in ["ordered", "shipped"] {
        stage.post("/orders/7", state).await;
    }
    // A client with an earlier version is answered with the last one.
    let order = text(stage.get("/orders/7?seen=1&epoch=5").await).await;
    let order: serde_json::Value = serde_json::from_str(&order).unwrap();
    assert_eq!(
        (&order["version"], &order["state"]),
        (&2.into(), &"shipped".into())
    );
    // A client with the last version waits.
    drop(stage.wait("/orders/7?seen=2&epoch=5"));
    let next = stage.wait("/orders/7"); // without a version: the next change
    stage.post("/orders/7", "delivered").await;
    let order = text(next.await).await;
    assert!(
        order.contains(r#""version":3,"state":"delivered""#),
        "{order}"
    );
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
    let knows_nothing = stage.wait("/orders/7?seen=0");
    stage.orders.begin(6);
    assert_eq!(waits.await.status(), StatusCode::GONE);
    let posted = text(stage.post("/orders/7", "shipped").await).await;
    assert_eq!(text(knows_nothing.await).await, posted);
}

#[tokio::test]
async fn no_content_exactly_at_the_timeout() {
    let stage = Stage::new();
    let mut response = stage.wait("/orders/7?wait=30s");
    stage
        .timer
        .advance(Duration::from_secs(30) - Duration::from_nanos(1));
    assert!(poll!(&mut response).is_pending());
    stage.timer.advance(Duration::from_nanos(1));
    assert_eq!(response.await.status(), StatusCode::NO_CONTENT);
    assert_eq!(
        stage.get("/orders/7?wait=0s").await.status(),
        StatusCode::NO_CONTENT
    );
}

/// The server drops the handler's future when its client hangs up.
#[tokio::test]
async fn client_that_hangs_up_waits_no_more() {
    let stage = Stage::new();
    let parked = stage.wait("/orders/7");
    assert_eq!(stage.parked(), 1);
    drop(parked);
    assert_eq!((stage.parked(), stage.orders.waits().keys()), (0, 0));
    assert_eq!(stage.orders.waits().stats().cancelled, 1);
}

#[tokio::test]
async fn request_too_many_is_asked_to_retry() {
    let stage = Stage::new();
    let _parked = [stage.wait("/orders/1"), stage.wait("/orders/2")];
    let refused = stage.get("/orders/3").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[RETRY_AFTER], "1");
    assert_eq!(
        text(refused).await,
        "the limit of 2 parked operations is reached\n"
    );
}

#[tokio::test]
async fn shutdown_answers_waiting_requests() {
    let stage = Stage::new();
    let parked = stage.wait("/orders/7");
    stage.orders.waits().shutdown(Duration::ZERO);
    for response in [parked, stage.get("/orders/7")] {
        let response = response.await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert!(text(response).await.contains("shutting down"));
    }
}

#[tokio::test]
async fn bad_request_is_answered_with_its_bound() {
    let stage = Stage::new();
    // Each answer names the value and its bound.
    let long = format!("/orders/{}", "x".repeat(65));
    for (path, value, bound) in [
        ("/orders/7?wait=2m", "2m", "1m at most"),
        ("/orders/7?wait=soon", "soon", "1m at most, like 30s"),
        (
            "/orders/7?wait=60000000001ns",
            "60000000001ns",
            "1m at most",
        ),
        (
            "/orders/7?wait=18446744073709551615s",
            "18446744073709551615s",
            "1m at most",
        ),
        (
            "/orders/7?wait=18446744073709551616s",
            "18446744073709551616s",
            "1m at most",
        ),
        ("/orders/7?seen=-1", "seen", "invalid digit"),
        ("/orders/7?seen=1&epoch=x", "epoch", "invalid digit"),
        ("/orders/7?seen=1", "seen", "needs epoch"),
        ("/orders/7?epoch=1", "epoch", "needs seen"),
        ("/orders/7?sen=1", "sen", "expected"),
        ("/orders/a.b", "a.b", "1 to 64"),
        (&long, "xxx", "1 to 64"),
    ] {
        let response = stage.get(path).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
        let said = text(response).await;
        assert!(
            said.contains(value) && said.contains(bound),
            "{path}: {said}"
        );
    }
    assert_eq!(
        stage.post("/orders/7", "").await.status(),
        StatusCode::BAD_REQUEST
    );
    let large = stage.post("/orders/7", &"x".repeat(5000)).await;
    assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
}
