//! One request: its version, header and body are decoded, and the function of its API is called. A
//! new API is a row in [`APIS`] and an arm in [`handle`].

use std::{net::SocketAddr, sync::mpsc::Receiver, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{api_versions_response::ApiVersion, *};
use kafka_protocol::protocol::{Decodable, decode_request_header_from_buffer};

pub(crate) use crate::reply::Answer;
use crate::{
    fetch::fetch, fetch::list_offsets, metadata::create_topics, metadata::metadata,
    produce::delete_records, produce::init_producer_id, produce::produce,
    replica_manager::ReplicaManager, reply::Reply, schemas, schemas::APIS, schemas::Api,
};

/// A value, or the error that the client is told instead.
pub(crate) type OrError<T> = std::result::Result<T, ResponseError>;

pub(crate) struct Client {
    /// Where the client reached the broker.
    pub(crate) address: SocketAddr,
    /// The number of its connection.
    pub(crate) connection: u64,
}

/// Takes one request; its answer comes when it is known. An error is the reason to close the
/// connection. `frame` has at least its [`PREFIX_BYTES`](crate::frame::PREFIX_BYTES).
pub(crate) fn handle(
    manager: &ReplicaManager,
    client: &Client,
    mut frame: Bytes,
) -> Result<Receiver<Answer>> {
    let mut prefix = &frame[..];
    let (key, version, correlation_id) = (prefix.get_i16(), prefix.get_i16(), prefix.get_i32());
    let api = APIS.iter().find(|api| api.key as i16 == key);
    let api = api.with_context(|| format!("API key {key} is not served"))?;
    let request = || format!("{:?} version {version}", api.key);
    if !(api.served_from..=api.advertised.1).contains(&version) {
        ensure!(
            api.key == ApiKey::ApiVersions,
            "{} is not served",
            request()
        );
        // KIP-511: answered in version 0, where the client finds the version to ask with.
        let (reply, answer) = Reply::new(client.connection, 0, correlation_id);
        reply.send(api_versions().with_error_code(ResponseError::UnsupportedVersion.code()));
        return Ok(answer);
    }
    schemas::check(&frame, api, version)
        .context("malformed")
        .with_context(request)?;
    let (reply, answer) = Reply::new(client.connection, version, correlation_id);
    let answered = || {
        decode_request_header_from_buffer(&mut frame).context("malformed")?;
        match api.key {
            ApiKey::Produce => produce(manager, body(frame, version)?, reply)?,
            ApiKey::Fetch => fetch(manager, body(frame, version)?, reply),
            ApiKey::DeleteRecords => delete_records(manager, body(frame, version)?, reply),
            ApiKey::ListOffsets => {
                reply.send(list_offsets(&manager.topics, body(frame, version)?));
            }
            ApiKey::CreateTopics => {
                reply.send(create_topics(&manager.topics, body(frame, version)?));
            }
            ApiKey::Metadata => metadata(manager, body(frame, version)?, client.address, reply),
            ApiKey::ApiVersions => reply.send(api_versions()),
            ApiKey::InitProducerId => {
                reply.send(init_producer_id(manager, &body(frame, version)?));
            }
            ApiKey::FindCoordinator => {
                // There are no groups; librdkafka asks for a coordinator all the same.
                let error = ResponseError::CoordinatorNotAvailable.code();
                reply.send(FindCoordinatorResponse::default().with_error_code(error));
            }
            _ => bail!("not served"),
        }
        Ok(())
    };
    answered().with_context(request)?;
    Ok(answer)
}

fn body<T: Decodable>(mut frame: Bytes, version: i16) -> Result<T> {
    T::decode(&mut frame, version).context("malformed")
}

/// A client's wait; a negative one is over at once, as in Kafka.
pub(crate) fn millis(milliseconds: i32) -> Duration {
    Duration::from_millis(milliseconds.try_into().unwrap_or(0))
}

fn api_versions() -> ApiVersionsResponse {
    let version = |api: &Api| {
        let (min, max) = api.advertised;
        let version = ApiVersion::default().with_api_key(api.key as i16);
        version.with_min_version(min).with_max_version(max)
    };
    ApiVersionsResponse::default().with_api_keys(APIS.iter().map(version).collect())
}
