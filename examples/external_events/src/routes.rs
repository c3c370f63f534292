//! HTTP in front: a GET is a wait, a POST is an event. When a client goes away its handler's future
//! is dropped, with it the wait, and so the operation leaves the purgatory at once.

use std::{fmt, time::Duration};

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::get};
use humantime::format_duration;
use purgatory::{CancelReason, RefusedReason, WaitError};
use serde::{Deserialize, Serialize};

use crate::nats::Nats;
use crate::orders::{News, Order, OrderId, Orders, Seen};

/// How long a request waits that does not say.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
const ID_BYTES_MAX: usize = 64;
const STATE_BYTES_MAX: usize = 4096;
const RETRY_AFTER_S: &str = "1";

/// What the handlers share.
#[derive(Clone)]
pub struct Gateway {
    /// The orders, to wait for.
    pub orders: Orders,
    /// Where to publish changes for all gateways; without it this one is alone.
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

/// What a client has seen is of an epoch that is over.
#[derive(Serialize)]
struct Gone {
    id: OrderId,
    /// The one that there is now.
    epoch: u64,
}

/// Whatever is not an order: a status with a line of text.
struct Failure(StatusCode, String);

/// The gateway's routes.
pub fn routes(gateway: Gateway) -> Router {
    Router::new()
        .route("/orders/{id}", get(poll).post(change))
        .layer(DefaultBodyLimit::max(STATE_BYTES_MAX))
        .with_state(gateway)
}

async fn poll(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    Query(Poll { wait, seen, epoch }): Query<Poll>,
) -> Result<Response, Failure> {
    let id = order_id(&id)?;
    let seen = match (seen, epoch) {
        (Some(version), Some(epoch)) => Some(Seen { epoch, version }),
        (Some(0), None) => Some(Seen {
            epoch: gateway.orders.epoch(),
            version: 0,
        }),
        (Some(_), None) => return Err(bad("seen= needs epoch=, too: as the order has told it")),
        (None, Some(_)) => return Err(bad("epoch= needs seen=, too")),
        (None, None) => None,
    };
    let wait = match wait {
        Some(wait) => duration(&wait, gateway.wait_max)?,
        None => DEFAULT_WAIT.min(gateway.wait_max),
    };
    match gateway.orders.wait(&id, seen, wait).await {
        Ok(News::Changed(order)) => Ok(Json(order).into_response()),
        Ok(News::Anew { epoch }) => {
            let gone = Gone { id, epoch };
            Ok((StatusCode::GONE, Json(gone)).into_response())
        }
        Err(WaitError::Expired) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(WaitError::Refused(RefusedReason::Closed))
        | Err(WaitError::Cancelled(CancelReason::Shutdown | CancelReason::Dropped)) => Err(
            unavailable("this gateway is shutting down: ask another one"),
        ),
        Err(error @ WaitError::Refused(_)) => Err(unavailable(error)),
        Err(error) => Err(Failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
        )),
    }
}

async fn change(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    state: String,
) -> Result<Json<Order>, Failure> {
    let id = order_id(&id)?;
    if state.is_empty() {
        return Err(bad("the body is empty: it is the order's new state"));
    }
    let Seen { epoch, version } = match &gateway.nats {
        None => gateway
            .orders
            .change_here(id.clone(), state.as_str().into()),
        Some(nats) => nats
            .publish(&id, state.clone())
            .await
            .map_err(|error| unavailable(format!("may not be published: {error:#}")))?,
    };
    Ok(Json(Order {
        id,
        epoch,
        version,
        state: state.into(),
    }))
}

fn order_id(id: &str) -> Result<OrderId, Failure> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(fits) {
        true => Ok(id.into()),
        false => Err(bad(format!(
            "id {id:?}: expected 1 to {ID_BYTES_MAX} of a-z A-Z 0-9 - _"
        ))),
    }
}

fn duration(wait: &str, max: Duration) -> Result<Duration, Failure> {
    let parsed = humantime::parse_duration(wait);
    let wait_time =
        parsed.map_err(|error| bad(format!("wait={wait:?}: {error}; expected one like 30s")))?;
    match wait_time <= max {
        true => Ok(wait_time),
        false => Err(bad(format!(
            "wait={wait:?}: may be {} at most",
            format_duration(max)
        ))),
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
        let later =
            (status == StatusCode::SERVICE_UNAVAILABLE).then_some((RETRY_AFTER, RETRY_AFTER_S));
        (status, later.map(|header| [header]), text + "\n").into_response()
    }
}
