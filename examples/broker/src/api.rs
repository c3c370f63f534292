//! Handles a request: decodes its version, header and body, and calls the function of its API. A
//! new API is a row in [`APIS`] and an arm in [`dispatch`].

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
    replica_manager::ReplicaManager, reply::Reply, schemas, schemas::APIS,
};

/// A value, or the error code that the client gets instead.
pub(crate) type OrError<T> = std::result::Result<T, ResponseError>;

pub(crate) struct Client {
    /// The broker's address that the client connected to.
    pub(crate) address: SocketAddr,
    /// The number of its connection.
    pub(crate) connection: u64,
}

/// Takes one request; the receiver gets its answer when it is known. An error is the reason to
/// close the connection. `frame` has at least its [`PREFIX_BYTES`](crate::frame::PREFIX_BYTES).
pub(crate) fn handle(
    manager: &ReplicaManager,
    client: &Client,
    mut frame: Bytes,
) -> Result<Receiver<Answer>> {
    let mut prefix = &frame[..];
    let key = prefix.get_i16();
    let version = prefix.get_i16();
    let correlation_id = prefix.get_i32();

    // An API or version that is not served ends the connection, except for ApiVersions.
    let api = APIS.iter().find(|api| api.key as i16 == key);
    let api = api.with_context(|| format!("API key {key} is not served"))?;
    let request = || format!("{:?} version {version}", api.key);
    if !api.serves(version) {
        ensure!(
            api.key == ApiKey::ApiVersions,
            "{} is not served",
            request()
        );
        // KIP-511: the answer, in version 0, tells the client the version to ask with.
        let (reply, answer) = Reply::new(client.connection, 0, correlation_id);
        reply.send(api_versions().with_error_code(ResponseError::UnsupportedVersion.code()));
        return Ok(answer);
    }

    // Every length is checked before anything is decoded.
    let checked = schemas::check(&frame, api, version);
    checked.context("malformed").with_context(request)?;
    let decoded = decode_request_header_from_buffer(&mut frame);
    decoded.context("malformed").with_context(request)?;

    let (reply, answer) = Reply::new(client.connection, version, correlation_id);
    let request_body = Body { frame, version };
    dispatch(manager, client, api.key, request_body, reply).with_context(request)?;
    Ok(answer)
}

/// Calls the function of an API.
fn dispatch(
    manager: &ReplicaManager,
    client: &Client,
    api: ApiKey,
    body: Body,
    reply: Reply,
) -> Result<()> {
    match api {
        ApiKey::Produce => produce(manager, body.decode()?, reply)?,
        ApiKey::Fetch => fetch(manager, body.decode()?, reply),
        ApiKey::DeleteRecords => delete_records(manager, body.decode()?, reply),
        ApiKey::ListOffsets => reply.send(list_offsets(&manager.topics, body.decode()?)),
        ApiKey::CreateTopics => reply.send(create_topics(&manager.topics, body.decode()?)),
        ApiKey::Metadata => metadata(manager, body.decode()?, client.address, reply),
        ApiKey::ApiVersions => reply.send(api_versions()),
        ApiKey::InitProducerId => reply.send(init_producer_id(manager, &body.decode()?)),
        ApiKey::FindCoordinator => {
            // There are no groups; librdkafka asks for a coordinator all the same.
            let error = ResponseError::CoordinatorNotAvailable.code();
            reply.send(FindCoordinatorResponse::default().with_error_code(error));
        }
        _ => bail!("not served"),
    }
    Ok(())
}

/// The part of a request after its header.
struct Body {
    frame: Bytes,
    version: i16,
}

impl Body {
    fn decode<T: Decodable>(mut self) -> Result<T> {
        T::decode(&mut self.frame, self.version).context("malformed")
    }
}

/// Returns the timeout that a client asks for; a negative one is zero, as in Kafka.
pub(crate) fn millis(milliseconds: i32) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

fn api_versions() -> ApiVersionsResponse {
    // librdkafka infers features from these versions: see the table of APIs.
    let mut versions = Vec::new();
    for api in &APIS {
        let version = ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(*api.advertised.start())
            .with_max_version(*api.advertised.end());
        versions.push(version);
    }
    ApiVersionsResponse::default().with_api_keys(versions)
}
