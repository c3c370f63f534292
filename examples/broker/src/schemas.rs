//! The APIs that are served: their versions, and how their requests lie on the wire.

use kafka_protocol::messages::ApiKey;

use crate::layout::{
    Field::{self, Array, Fixed, Since, String, Until},
    Layout,
};

pub(crate) struct Api {
    pub(crate) key: ApiKey,
    /// First and last version told to clients.
    pub(crate) advertised: (i16, i16),
    /// First version that can be decoded.
    pub(crate) served_from: i16,
    pub(crate) layout: Layout,
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
/// although 0 to 2 are not served, and FindCoordinator although there are no groups. Without Produce 0 it drops gzip, snappy and lz4; without FindCoordinator lz4; without
/// Fetch 10 zstd; without Fetch 4 it writes an older record format. The last versions stay below
/// those with topic ids.
pub(crate) static APIS: [Api; 8] = [
    api(ApiKey::Produce, (0, 12), 3, 9, PRODUCE),
    api(ApiKey::Fetch, (4, 12), 4, 12, FETCH),
    api(ApiKey::ListOffsets, (1, 6), 1, 6, LIST_OFFSETS),
    api(ApiKey::Metadata, (0, 12), 0, 9, METADATA),
    api(ApiKey::FindCoordinator, (0, 3), 0, 3, &[String, Since(1, &BYTE)]), // key, its type
    api(ApiKey::ApiVersions, (0, 3), 0, 3, &[Since(3, &String), Since(3, &String)]), // client
    api(ApiKey::CreateTopics, (2, 6), 2, 5, CREATE_TOPICS),
    api(ApiKey::DeleteRecords, (0, 2), 0, 2, DELETE_RECORDS),
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

const LIST_OFFSETS: &[Field] = &[
    INT,             // replica
    Since(2, &BYTE), // isolation
    Array(&[
        String, // topic
        Array(&[
            INT,            // partition
            Since(4, &INT), // leader epoch
            LONG,           // timestamp
        ]),
    ]),
];

const CREATE_TOPICS: &[Field] = &[
    Array(&[
        String,                       // name
        Fixed(6),                     // partitions, replication factor
        Array(&[INT, Array(&[INT])]), // assignment: partition, brokers
        Array(&[String, String]),     // configuration: name, value
    ]),
    INT,  // timeout
    BYTE, // only to be validated
];

const DELETE_RECORDS: &[Field] = &[
    Array(&[String, Array(&[INT, LONG])]), // topic: partition, offset
    INT,                                   // timeout
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
