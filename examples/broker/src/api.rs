//! One request: its version, its header, its body, and who answers it. A new API is a row in
//! [`APIS`] and an arm in [`handle`].

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{api_versions_response::ApiVersion, *};
use kafka_protocol::protocol::{Decodable, decode_request_header_from_buffer};

use crate::{
    fetch::fetch, fetch::list_offsets, group::find_coordinator, memory::Share,
    metadata::create_topics, metadata::metadata, pipeline::Pipeline, produce::delete_records,
    produce::produce, replica_manager::ReplicaManager, schemas, schemas::APIS, schemas::Api,
};

/// What an element of an array in a request takes, and the request itself, beside its frame:
/// decoded and parked, with its part of the response.
pub(crate) const ELEMENT_BYTES: usize = 512;

/// A value, or the error that the client is told instead.
pub(crate) type OrError<T> = std::result::Result<T, ResponseError>;

/// Who asks.
pub(crate) struct Client {
    /// Where the client reached the broker.
    pub(crate) address: SocketAddr,
    pub(crate) pipeline: Arc<Pipeline>,
}

/// Takes one request, after waiting for a place in the client's pipeline; it is answered there,
/// when the answer is known. An error is the reason to close the connection. `frame` has at least
/// its [`PREFIX_BYTES`](crate::frame::PREFIX_BYTES).
pub(crate) fn handle(
    manager: &ReplicaManager,
    client: &Client,
    mut frame: Bytes,
    mut share: Share,
) -> Result<()> {
    let mut prefix = &frame[..];
    let (key, version, correlation_id) = (prefix.get_i16(), prefix.get_i16(), prefix.get_i32());
    let api = APIS.iter().find(|api| api.key as i16 == key);
    let api = api.with_context(|| format!("API key {key} is not served"))?;
    let request = || format!("{:?} version {version}", api.key);
    let served = (api.served_from..=api.advertised.1).contains(&version);
    ensure!(served || api.key == ApiKey::ApiVersions, "{} is not served", request());
    if served {
        let elements = schemas::check(&frame, api, version).context("malformed");
        share.take((1 + elements.with_context(request)?) * ELEMENT_BYTES)?;
    }
    let place = client.pipeline.place(share, if served { version } else { 0 }, correlation_id);
    let Some(reply) = place else { return Ok(()) };
    if !served {
        // KIP-511: answered in version 0, where the client finds the version to ask with.
        reply.send(api_versions().with_error_code(ResponseError::UnsupportedVersion.code()));
        return Ok(());
    }
    let (topics, groups) = (&manager.topics, &manager.groups);
    let answer = || {
        decode_request_header_from_buffer(&mut frame).context("malformed")?;
        match api.key {
            ApiKey::Produce => produce(manager, body(frame, version)?, reply)?,
            ApiKey::Fetch => fetch(manager, body(frame, version)?, reply),
            ApiKey::DeleteRecords => delete_records(manager, body(frame, version)?, reply),
            ApiKey::ListOffsets => reply.send(list_offsets(topics, body(frame, version)?)),
            ApiKey::CreateTopics => reply.send(create_topics(manager, body(frame, version)?)),
            ApiKey::Metadata => metadata(manager, body(frame, version)?, client.address, reply),
            ApiKey::ApiVersions => reply.send(api_versions()),
            ApiKey::FindCoordinator => reply.send(find_coordinator(&body(frame, version)?, client)),
            ApiKey::JoinGroup => groups.join(&body(frame, version)?, reply),
            ApiKey::SyncGroup => groups.sync(&body(frame, version)?, reply),
            ApiKey::Heartbeat => reply.send(groups.heartbeat(&body(frame, version)?)),
            ApiKey::LeaveGroup => reply.send(groups.leave(&body(frame, version)?)),
            ApiKey::OffsetCommit => reply.send(groups.commit(topics, &body(frame, version)?)),
            ApiKey::OffsetFetch => reply.send(groups.fetch_offsets(body(frame, version)?)),
            ApiKey::InitProducerId => reply.send(manager.producer_ids.init(&body(frame, version)?)),
            ApiKey::ConsumerGroupHeartbeat => {
                let error = ResponseError::UnsupportedVersion.code();
                reply.send(ConsumerGroupHeartbeatResponse::default().with_error_code(error));
            }
            _ => bail!("not served"),
        }
        Ok(())
    };
    answer().with_context(request)
}

fn body<T: Decodable>(mut frame: Bytes, version: i16) -> Result<T> {
    T::decode(&mut frame, version).context("malformed")
}

/// 0 when it went well.
pub(crate) fn code(result: OrError<()>) -> i16 {
    result.map_or_else(|error| error.code(), |()| 0)
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
