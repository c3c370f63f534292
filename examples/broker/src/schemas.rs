//! The APIs that are served: their versions, and how their requests lie on the wire.

use kafka_protocol::messages::ApiKey;

use crate::layout::Field::{self, Array, Fixed, Since, String};

pub(crate) struct Api {
    pub(crate) key: ApiKey,
    /// First and last version told to clients.
    pub(crate) advertised: (i16, i16),
    /// First version that can be decoded.
    pub(crate) served_from: i16,
    /// Of a request, in their order.
    pub(crate) fields: &'static [Field],
}

const fn api(
    key: ApiKey,
    advertised: (i16, i16),
    served_from: i16,
    fields: &'static [Field],
) -> Api {
    Api { key, advertised, served_from, fields }
}

/// Those of a Kafka 2.1: every client of today still speaks them. The last versions stay below those
/// with compact lengths and tagged fields, with topic ids, with static members.
///
/// librdkafka infers what a broker can do from its versions, so Produce is advertised from 0
/// although 0 to 2 are not served. Without Produce 0 it drops gzip, snappy and lz4; without
/// FindCoordinator lz4; without Fetch 10 zstd; without Fetch 4 it writes an older record format.
pub(crate) static APIS: [Api; 15] = [
    api(ApiKey::Produce, (0, 8), 3, PRODUCE),
    api(ApiKey::Fetch, (4, 10), 4, FETCH),
    api(ApiKey::ListOffsets, (1, 3), 1, LIST_OFFSETS),
    api(ApiKey::Metadata, (0, 6), 0, METADATA),
    api(ApiKey::FindCoordinator, (0, 2), 0, &[String, Since(1, &BYTE)]), // key, its type
    api(ApiKey::ApiVersions, (0, 2), 0, &[]),
    api(ApiKey::CreateTopics, (2, 4), 2, CREATE_TOPICS),
    api(ApiKey::DeleteRecords, (0, 1), 0, DELETE_RECORDS),
    api(ApiKey::JoinGroup, (0, 3), 0, JOIN_GROUP),
    api(ApiKey::SyncGroup, (0, 2), 0, SYNC_GROUP),
    api(ApiKey::Heartbeat, (0, 2), 0, &[String, INT, String]), // group, generation, member
    api(ApiKey::LeaveGroup, (0, 2), 0, &[String, String]),     // group, member
    api(ApiKey::OffsetCommit, (2, 4), 2, OFFSET_COMMIT),
    api(ApiKey::OffsetFetch, (1, 1), 1, &[String, Array(&[String, Array(&[INT])])]), // group; topic
    api(ApiKey::InitProducerId, (0, 1), 0, &[String, INT]), // transactional id, its timeout
];

/// Transactional id, acks, timeout; topic (partition, records).
const PRODUCE: &[Field] = &[String, Fixed(2), INT, Array(&[String, Array(&[INT, Field::Bytes])])];

/// Replica, longest wait, least and most bytes, isolation; session and its epoch; topic (partitions);
/// forgotten topic (partition).
const FETCH: &[Field] = &[
    Fixed(17),
    Since(7, &LONG),
    Array(&[String, Array(FETCH_PARTITION)]),
    Since(7, &Array(&[String, Array(&[INT])])),
];

/// Partition, leader epoch, fetch offset, log start offset, most bytes.
const FETCH_PARTITION: &[Field] = &[INT, Since(9, &INT), LONG, Since(5, &LONG), INT];

/// Replica, isolation; topic (partition, timestamp).
const LIST_OFFSETS: &[Field] = &[INT, Since(2, &BYTE), Array(&[String, Array(&[INT, LONG])])];

/// Name, partitions and replication factor, assignment (partition, broker), configuration (name,
/// value); timeout; whether it is only to be validated.
const CREATE_TOPICS: &[Field] = &[
    Array(&[String, Fixed(6), Array(&[INT, Array(&[INT])]), Array(&[String, String])]),
    INT,
    BYTE,
];

/// Topic (partition, offset); timeout.
const DELETE_RECORDS: &[Field] = &[Array(&[String, Array(&[INT, LONG])]), INT];

/// Topic; whether it may make topics.
const METADATA: &[Field] = &[Array(&[String]), Since(4, &BYTE)];

/// Group, session timeout, rebalance timeout, member, protocol type; protocol (its name, metadata).
const JOIN_GROUP: &[Field] =
    &[String, INT, Since(1, &INT), String, String, Array(&[String, Field::Bytes])];

/// Group, generation, member; member (its assignment).
const SYNC_GROUP: &[Field] = &[String, INT, String, Array(&[String, Field::Bytes])];

/// Group, generation, member, retention; topic (partition, offset, metadata).
const OFFSET_COMMIT: &[Field] =
    &[String, INT, String, LONG, Array(&[String, Array(&[INT, LONG, String])])];

const BYTE: Field = Fixed(1);
const INT: Field = Fixed(4);
const LONG: Field = Fixed(8);
