//! HTTP in front: a GET is a wait, a POST is an event. When a client disconnects, its handler's
//! future is dropped, and the wait with it, so the operation leaves the purgatory at once. (A
//! client that has already sent its next request is an exception: hyper does not read past it and
//! misses the disconnect, so the wait stays until its timeout, `--max-wait` at most.)

use std::{fmt, time::Duration};

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use humantime::format_duration;
use purgatory::WaitError;
use serde::{Deserialize, Serialize};

use crate::nats::Nats;
use crate::orders::{News, Order, OrderId, Orders, Seen, Since};

/// The wait of a request that names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
const ID_BYTES_MAX: usize = 64;
const STATE_BYTES_MAX: usize = 4096;
const RETRY_AFTER_S: &str = "1";

/// State that the handlers share.
#[derive(Clone)]
pub struct Gateway {
    /// The orders that requests wait for.
    pub orders: Orders,
    /// The server through which changes reach all gateways; `None` if this gateway runs alone.
    pub nats: Option<Nats>,
    /// The longest a request may wait.
    pub wait_max: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Poll {
    wait: Option<String>,
    seen: Option<u64>,
    epoch: Option<u64>,
}

/// The answer to a client that has seen a version of an epoch that is over.
#[derive(Serialize)]
struct Gone {
    id: OrderId,
    /// The current epoch.
    epoch: u64,
}

/// An answer without an order: a status with a line of text.
struct Failure(StatusCode, String);

/// Makes the gateway's routes.
pub fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/orders/{id}", get(poll).post(change))
        .layer(DefaultBodyLimit::max(STATE_BYTES_MAX))
        .with_state(gateway)
}

/// Answers a GET: waits for the order to change.
async fn poll(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    Query(poll): Query<Poll>,
) -> Result<Response, Failure> {
    let id = order_id(&id)?;
    let since = since(&poll)?;
    let wait = match &poll.wait {
        Some(wait) => duration(wait, gateway.wait_max)?,
        None => DEFAULT_WAIT.min(gateway.wait_max),
    };
    // If the client hangs up, this future is dropped here, and the wait with it.
    let ended = gateway.orders.wait(&id, since, wait).await;
    match ended {
        Ok(News::Changed(order)) => Ok(Json(order).into_response()),
        Ok(News::Anew { epoch }) => {
            let gone = Gone { id, epoch };
            Ok((StatusCode::GONE, Json(gone)).into_response())
        }
        Err(error) if error.is_expired() => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(error) => Err(wait_failed(error)),
    }
}

/// Reads from the query what the client has seen.
fn since(poll: &Poll) -> Result<Since, Failure> {
    match (poll.seen, poll.epoch) {
        (Some(version), Some(epoch)) => Ok(Since::Version(Seen { epoch, version })),
        // No epoch has a version 0, so this client has seen nothing.
        (Some(0), None) => Ok(Since::Nothing),
        (Some(_), None) => Err(bad("seen= needs epoch=, too: both come with the order")),
        (None, Some(_)) => Err(bad("epoch= needs seen=, too")),
        (None, None) => Ok(Since::Now),
    }
}

/// Makes the answer to a wait that ended without news before its timeout.
fn wait_failed(error: WaitError) -> Failure {
    if error.is_shutdown() {
        unavailable("this gateway is shutting down: ask another one")
    } else if error.is_busy() {
        unavailable(error)
    } else {
        Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

/// Answers a POST: changes the order.
async fn change(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    state: String,
) -> Result<Json<Order>, Failure> {
    let id = order_id(&id)?;
    if state.is_empty() {
        return Err(bad("the body is empty: it is the order's new state"));
    }
    // A gateway that runs alone stores the change here. Otherwise the stream stores it, and sends
    // it to every gateway.
    let changed = match &gateway.nats {
        None => gateway
            .orders
            .change_here(id.clone(), state.as_str().into()),
        Some(nats) => {
            let published = nats.publish(&id, state.clone()).await;
            published.map_err(|error| unavailable(format!("may not be published: {error:#}")))?
        }
    };
    // The client gets what a later GET would show.
    Ok(Json(Order {
        id,
        epoch: changed.epoch,
        version: changed.version,
        state: state.into(),
    }))
}

fn order_id(id: &str) -> Result<OrderId, Failure> {
    // An id is a part of a NATS subject: no dots, no blanks.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(allowed) {
        Ok(id.into())
    } else {
        Err(bad(format!(
            "id {id:?}: expected 1 to {ID_BYTES_MAX} of a-z A-Z 0-9 - _"
        )))
    }
}

/// Parses the wait of a request; a wait longer than `max` is refused, not shortened.
fn duration(wait: &str, max: Duration) -> Result<Duration, Failure> {
    let expected = || format!("wait={wait:?}: may be {} at most", format_duration(max));
    match humantime::parse_duration(wait) {
        Ok(duration) if duration <= max => Ok(duration),
        Ok(_) => Err(bad(expected())),
        Err(error) => Err(bad(format!("{}, like 30s: {error}", expected()))),
    }
}

fn bad(what: impl fmt::Display) -> Failure {
    Failure(StatusCode::BAD_REQUEST, what.to_string())
}

fn unavailable(why: impl fmt::Display) -> Failure {
    Failure(StatusCode::SERVICE_UNAVAILABLE, why.to_string())
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Failure(status, text) = self;
        // Only a client that should retry is told when.
        let body = text + "\n";
        if status == StatusCode::SERVICE_UNAVAILABLE {
            (status, [(RETRY_AFTER, RETRY_AFTER_S)], body).into_response()
        } else {
            (status, body).into_response()
        }
    }
}
