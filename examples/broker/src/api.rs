//! The APIs that are served: versions, layouts, dispatch and encoding. A new API is a row in
//! [`APIS`] and an arm in [`answer`].

use std::net::SocketAddr;

use anyhow::{Context, bail};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::{
    ResponseError,
    messages::{ApiKey, ApiVersionsResponse, ResponseHeader, api_versions_response::ApiVersion},
    protocol::{Decodable, Encodable, HeaderVersion, decode_request_header_from_buffer},
};

use crate::{
    layout::{
        self,
        Field::{self, Array, Fixed, Since, String, Until},
        Layout,
    },
    metadata, not_served, produce,
    replica_manager::ReplicaManager,
};

pub(crate) struct Api {
    pub(crate) key: ApiKey,
    /// First and last version told to clients.
    pub(crate) advertised: (i16, i16),
    /// First version that can be decoded.
    pub(crate) served_from: i16,
    layout: Layout,
}

const fn api(
    key: ApiKey,
    advertised: (i16, i16),
    served_from: i16,
    flexible_from: i16,
    fields: &'static [Field],
) -> Api {
    Api { key, advertised, served_from, layout: Layout { flexible_from, fields } }
}

/// librdkafka infers what a broker can do from its versions, so Produce is advertised from 0
/// although 0 to 2 are not served, and Fetch and FindCoordinator although [`not_served`] answers
/// them. Without Produce 0 it drops gzip, snappy and lz4; without FindCoordinator lz4; without
/// Fetch 10 zstd; without Fetch 4 it writes an older record format. The last versions stay below
/// those with topic ids.
pub(crate) static APIS: [Api; 5] = [
    api(ApiKey::Produce, (0, 12), 3, 9, PRODUCE),
    api(ApiKey::Fetch, (4, 12), 4, 12, FETCH),
    api(ApiKey::Metadata, (0, 12), 0, 9, METADATA),
    api(ApiKey::FindCoordinator, (0, 3), 0, 3, &[String, Since(1, &BYTE)]), // key, its type
    api(ApiKey::ApiVersions, (0, 3), 0, 3, &[Since(3, &String), Since(3, &String)]), // client
];

const PRODUCE: &[Field] = &[
    String,                                        // transactional id
    Fixed(2),                                      // acks
    INT,                                           // timeout
    Array(&[String, Array(&[INT, Field::Bytes])]), // topic: partition, records
];

const FETCH: &[Field] = &[
    Fixed(17),       // replica, longest wait, least and most bytes, isolation
    Since(7, &LONG), // session and its epoch
    Array(&[
        String, // topic
        Array(&[
            INT,             // partition
            Since(9, &INT),  // leader epoch
            LONG,            // fetch offset
            Since(12, &INT), // last fetched epoch
            Since(5, &LONG), // log start offset
            INT,             // most bytes
        ]),
    ]),
    Since(7, &Array(&[String, Array(&[INT])])), // forgotten topic: partitions
    Since(11, &String),                         // rack
];

const METADATA: &[Field] = &[
    Array(&[Since(10, &Fixed(16)), String]), // topic id, name
    Since(4, &BYTE),                         // may make topics
    Since(8, &Until(10, &BYTE)),             // cluster operations
    Since(8, &BYTE),                         // topic operations
];

const BYTE: Field = Fixed(1);
const INT: Field = Fixed(4);
const LONG: Field = Fixed(8);

/// Answers one request, after waiting as long as the request does; `None`: the client expects no
/// response. An error is the reason to close the connection. `address` is where the client reached
/// the broker; `frame` has at least its [`PREFIX_BYTES`](crate::frame::PREFIX_BYTES).
pub(crate) fn answer(
    manager: &ReplicaManager,
    address: SocketAddr,
    frame: Bytes,
) -> anyhow::Result<Option<BytesMut>> {
    let mut prefix = &frame[..];
    let (key, version, correlation_id) = (prefix.get_i16(), prefix.get_i16(), prefix.get_i32());
    let Some(api) = APIS.iter().find(|api| api.key as i16 == key) else {
        bail!("API key {key} is not served");
    };
    let mut request = Request { frame, version, correlation_id };
    if !(api.served_from..=api.advertised.1).contains(&version) {
        if api.key == ApiKey::ApiVersions {
            // KIP-511: answered in version 0, where the client finds the version to ask with.
            request.version = 0;
            let unsupported = ResponseError::UnsupportedVersion.code();
            return request.respond(&api_versions().with_error_code(unsupported));
        }
        bail!("{:?} version {version} is not served", api.key);
    }
    request
        .read_header(api)
        .and_then(|()| request.dispatch(api.key, manager, address))
        .with_context(|| format!("{:?} version {version}", api.key))
}

struct Request {
    frame: Bytes,
    version: i16,
    correlation_id: i32,
}

impl Request {
    fn read_header(&mut self, api: &Api) -> anyhow::Result<()> {
        layout::check(&self.frame, api.key, self.version, &api.layout).context("malformed")?;
        decode_request_header_from_buffer(&mut self.frame).context("malformed")?;
        Ok(())
    }

    fn dispatch(
        &mut self,
        key: ApiKey,
        manager: &ReplicaManager,
        address: SocketAddr,
    ) -> anyhow::Result<Option<BytesMut>> {
        let version = self.version;
        match key {
            ApiKey::Produce => match produce::produce(manager, self.body()?, version)? {
                Some(response) => self.respond(&response),
                None => Ok(None),
            },
            ApiKey::Metadata => {
                let body = self.body()?;
                self.respond(&metadata::metadata(&manager.topics, &body, version, address))
            }
            ApiKey::ApiVersions => self.respond(&api_versions()),
            ApiKey::Fetch => {
                let body = self.body()?;
                self.respond(&not_served::fetch(body))
            }
            ApiKey::FindCoordinator => self.respond(&not_served::find_coordinator(version)),
            _ => bail!("not served"),
        }
    }

    fn body<T: Decodable>(&mut self) -> anyhow::Result<T> {
        T::decode(&mut self.frame, self.version).context("malformed")
    }

    /// A whole frame. Encoding is strict: a field that the version lacks must not be set.
    fn respond<T: Encodable + HeaderVersion>(&self, body: &T) -> anyhow::Result<Option<BytesMut>> {
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        let header = ResponseHeader::default().with_correlation_id(self.correlation_id);
        header.encode(&mut frame, T::header_version(self.version))?;
        body.encode(&mut frame, self.version)?;
        let length = i32::try_from(frame.len() - 4).context("response too large")?;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(Some(frame))
    }
}

fn api_versions() -> ApiVersionsResponse {
    let version = |api: &Api| {
        let (min, max) = api.advertised;
        let version = ApiVersion::default().with_api_key(api.key as i16);
        version.with_min_version(min).with_max_version(max)
    };
    ApiVersionsResponse::default().with_api_keys(APIS.iter().map(version).collect())
}
