//! The APIs that are served: their versions, and how their requests lie on the wire.

use kafka_protocol::messages::ApiKey;

use crate::layout::Field::{self, Array, Fixed, Since, String, Until};

pub(crate) struct Api {
    pub(crate) key: ApiKey,
    /// First and last version told to clients.
    pub(crate) advertised: (i16, i16),
    /// First version that can be decoded.
    pub(crate) served_from: i16,
    /// From this version on lengths are compact and tagged fields follow each struct.
    pub(crate) flexible_from: i16,
    /// Of a request, in their order.
    pub(crate) fields: &'static [Field],
}

const fn api(
    key: ApiKey,
    advertised: (i16, i16),
    served_from: i16,
    flexible_from: i16,
    fields: &'static [Field],
) -> Api {
    Api { key, advertised, served_from, flexible_from, fields }
}

/// librdkafka infers what a broker can do from its versions, so Produce is advertised from 0
/// although 0 to 2 are not served. Without Produce 0 it drops gzip, snappy and lz4; without
/// FindCoordinator lz4; without Fetch 10 zstd; without Fetch 4 it writes an older record format. The
/// last versions stay below those with topic ids, those of groups below those with static members.
pub(crate) static APIS: [Api; 15] = [
    api(ApiKey::Produce, (0, 12), 3, 9, PRODUCE),
    api(ApiKey::Fetch, (4, 12), 4, 12, FETCH),
    api(ApiKey::ListOffsets, (1, 6), 1, 6, LIST_OFFSETS),
    api(ApiKey::Metadata, (0, 12), 0, 9, METADATA),
    api(ApiKey::FindCoordinator, (0, 3), 0, 3, &[String, Since(1, &BYTE)]), // key, its type
    api(ApiKey::ApiVersions, (0, 3), 0, 3, &[Since(3, &String), Since(3, &String)]), // client
    api(ApiKey::CreateTopics, (2, 6), 2, 5, CREATE_TOPICS),
    api(ApiKey::DeleteRecords, (0, 2), 0, 2, DELETE_RECORDS),
    api(ApiKey::JoinGroup, (0, 4), 0, 6, JOIN_GROUP),
    api(ApiKey::SyncGroup, (0, 2), 0, 4, SYNC_GROUP),
    api(ApiKey::Heartbeat, (0, 2), 0, 4, &[String, INT, String]), // group, generation, member
    api(ApiKey::LeaveGroup, (0, 2), 0, 4, &[String, String]),     // group, member
    api(ApiKey::OffsetCommit, (2, 6), 2, 8, OFFSET_COMMIT),
    api(ApiKey::OffsetFetch, (1, 7), 1, 6, OFFSET_FETCH),
    api(ApiKey::InitProducerId, (0, 4), 0, 2, INIT_PRODUCER_ID),
];

/// Transactional id, acks, timeout; topic (partition, records).
const PRODUCE: &[Field] = &[String, Fixed(2), INT, Array(&[String, Array(&[INT, Field::Bytes])])];

/// Replica, longest wait, least and most bytes, isolation; session and its epoch; topic (partitions);
/// forgotten topic (partition); rack.
const FETCH: &[Field] = &[
    Fixed(17),
    Since(7, &LONG),
    Array(&[String, Array(FETCH_PARTITION)]),
    Since(7, &Array(&[String, Array(&[INT])])),
    Since(11, &String),
];

/// Partition, leader epoch, fetch offset, last fetched epoch, log start offset, most bytes.
const FETCH_PARTITION: &[Field] =
    &[INT, Since(9, &INT), LONG, Since(12, &INT), Since(5, &LONG), INT];

/// Replica, isolation; topic (partition, leader epoch, timestamp).
const LIST_OFFSETS: &[Field] =
    &[INT, Since(2, &BYTE), Array(&[String, Array(&[INT, Since(4, &INT), LONG])])];

/// Name, partitions and replication factor, assignment (partition, broker), configuration (name,
/// value); timeout; whether it is only to be validated.
const CREATE_TOPICS: &[Field] = &[
    Array(&[String, Fixed(6), Array(&[INT, Array(&[INT])]), Array(&[String, String])]),
    INT,
    BYTE,
];

/// Topic (partition, offset); timeout.
const DELETE_RECORDS: &[Field] = &[Array(&[String, Array(&[INT, LONG])]), INT];

/// Topic (its id, name); whether it may make topics; cluster's and topics' operations.
const METADATA: &[Field] = &[
    Array(&[Since(10, &Fixed(16)), String]),
    Since(4, &BYTE),
    Since(8, &Until(10, &BYTE)),
    Since(8, &BYTE),
];

/// Group, session timeout, rebalance timeout, member, protocol type; protocol (its name, metadata).
const JOIN_GROUP: &[Field] =
    &[String, INT, Since(1, &INT), String, String, Array(&[String, Field::Bytes])];

/// Group, generation, member; member (its assignment).
const SYNC_GROUP: &[Field] = &[String, INT, String, Array(&[String, Field::Bytes])];

/// Group, generation, member, retention; topic (partition, offset, leader epoch, metadata).
const OFFSET_COMMIT: &[Field] = &[
    String,
    INT,
    String,
    Until(4, &LONG),
    Array(&[String, Array(&[INT, LONG, Since(6, &INT), String])]),
];

/// Group; topic (partition); whether only what no transaction can change.
const OFFSET_FETCH: &[Field] = &[String, Array(&[String, Array(&[INT])]), Since(7, &BYTE)];

/// Transactional id, its timeout; producer id and epoch.
const INIT_PRODUCER_ID: &[Field] = &[String, INT, Since(3, &LONG), Since(3, &Fixed(2))];

const BYTE: Field = Fixed(1);
const INT: Field = Fixed(4);
const LONG: Field = Fixed(8);
