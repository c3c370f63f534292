//! The APIs that are served: their versions, and how their requests lie on the wire.

use kafka_protocol::messages::ApiKey;

pub(crate) struct Api {
    pub(crate) key: ApiKey,
    /// First and last version told to clients.
    pub(crate) advertised: (i16, i16),
    /// First version that can be decoded.
    pub(crate) served_from: i16,
    /// The fields of a request, in their order: a digit is that many bytes, `s` a string, `b`
    /// bytes, `[...]` an array of what is in it, `<7...>` present from version 7 on.
    pub(crate) fields: &'static [u8],
}

const fn api(key: ApiKey, advertised: (i16, i16), served_from: i16, fields: &'static str) -> Api {
    Api { key, advertised, served_from, fields: fields.as_bytes() }
}

/// Those of a Kafka 2.1: every client of today still speaks them. The last versions stay below
/// those with compact lengths and tagged fields, with topic ids, with static members.
///
/// librdkafka infers what a broker can do from its versions, so Produce is advertised from 0
/// although 0 to 2 are not served. Without Produce 0 it drops gzip, snappy and lz4; without
/// FindCoordinator lz4; without Fetch 10 zstd; without Fetch 4 it writes an older record format.
///
/// ConsumerGroupHeartbeat is answered with UNSUPPORTED_VERSION: without it librdkafka's new group
/// protocol would wait for ever, and say nothing. Its body is not looked at.
pub(crate) static APIS: [Api; 16] = [
    // Transactional id, acks, timeout; topic (partition, records).
    api(ApiKey::Produce, (0, 8), 3, "s24[s[4b]]"),
    // Replica, longest wait, least and most bytes, isolation; session, its epoch; topic (partition,
    // leader epoch, offset, log start, most bytes); forgotten topic (partition).
    api(ApiKey::Fetch, (4, 10), 4, "44441<78>[s[4<94>8<58>4]]<7[s[4]]>"),
    // Replica, isolation; topic (partition, timestamp).
    api(ApiKey::ListOffsets, (1, 3), 1, "4<21>[s[48]]"),
    // Topic; whether it may make topics.
    api(ApiKey::Metadata, (0, 6), 0, "[s]<41>"),
    // Key, its type.
    api(ApiKey::FindCoordinator, (0, 2), 0, "s<11>"),
    api(ApiKey::ApiVersions, (0, 2), 0, ""),
    // Name, partitions, replication factor, assignment (partition, broker), configuration (name,
    // value); timeout; whether it is only to be validated.
    api(ApiKey::CreateTopics, (2, 4), 2, "[s42[4[4]][ss]]41"),
    // Topic (partition, offset); timeout.
    api(ApiKey::DeleteRecords, (0, 1), 0, "[s[48]]4"),
    // Group, session timeout, rebalance timeout, member, protocol type; protocol (name, metadata).
    api(ApiKey::JoinGroup, (0, 3), 0, "s4<14>ss[sb]"),
    // Group, generation, member; member (its assignment).
    api(ApiKey::SyncGroup, (0, 2), 0, "s4s[sb]"),
    // Group, generation, member.
    api(ApiKey::Heartbeat, (0, 2), 0, "s4s"),
    // Group, member.
    api(ApiKey::LeaveGroup, (0, 2), 0, "ss"),
    // Group, generation, member, retention; topic (partition, offset, metadata).
    api(ApiKey::OffsetCommit, (2, 4), 2, "s4s8[s[48s]]"),
    // Group; topic (partition).
    api(ApiKey::OffsetFetch, (1, 1), 1, "s[s[4]]"),
    // Transactional id, its timeout.
    api(ApiKey::InitProducerId, (0, 1), 0, "s4"),
    api(ApiKey::ConsumerGroupHeartbeat, (0, 1), 0, ""),
];
