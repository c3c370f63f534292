//! The APIs that are served: their versions, and the layout of their requests, by which the lengths
//! of a request are checked before anything is decoded.
//!
//! The decoder trusts the count of an array and reserves that many elements at once, so 4 bytes can
//! ask for 128 GiB. An allocation that fails aborts the process, without a panic to catch. So each
//! API describes the layout of its request ([`Api::fields`]), and [`check`] walks the frame by it
//! without allocating. A count is accepted up to [`ELEMENTS_MAX`], and only if the bytes of every
//! element are there.

use std::ops::RangeInclusive;

use anyhow::{Context, ensure};
use bytes::Buf;
use kafka_protocol::messages::ApiKey;

use crate::frame::PREFIX_BYTES;

pub(crate) struct Api {
    pub(crate) key: ApiKey,
    /// The versions that clients are told.
    pub(crate) advertised: RangeInclusive<i16>,
    /// First version that can be decoded.
    pub(crate) served_from: i16,
    /// The fields of a request, in order: a digit is that many bytes, `s` a string, `b` bytes,
    /// `[...]` an array of the fields inside, `<7...>` fields that are present from version 7 on.
    pub(crate) fields: &'static [u8],
}

const fn api(
    key: ApiKey,
    advertised: RangeInclusive<i16>,
    served_from: i16,
    fields: &'static str,
) -> Api {
    Api {
        key,
        advertised,
        served_from,
        fields: fields.as_bytes(),
    }
}

impl Api {
    /// Returns true if requests of this version are decoded.
    pub(crate) fn serves(&self, version: i16) -> bool {
        (self.served_from..=*self.advertised.end()).contains(&version)
    }
}

/// The versions of Kafka 2.1, which every client of today still speaks. The highest stay below
/// those with compact lengths and tagged fields, with topic ids, or with static members.
///
/// librdkafka infers what a broker can do from its versions, so Produce is advertised from 0
/// although 0 to 2 are not served. Without Produce 0 it drops gzip, snappy and lz4; without
/// FindCoordinator lz4; without Fetch 10 zstd; without Fetch 4 it writes an older record format.
pub(crate) static APIS: [Api; 9] = [
    // Transactional id, acks, timeout; topic (partition, records).
    api(ApiKey::Produce, 0..=8, 3, "s24[s[4b]]"),
    // Replica, longest wait, least and most bytes, isolation; session, its epoch; topic (partition,
    // leader epoch, offset, log start, most bytes); forgotten topic (partition).
    api(
        ApiKey::Fetch,
        4..=10,
        4,
        "44441<78>[s[4<94>8<58>4]]<7[s[4]]>",
    ),
    // Replica, isolation; topic (partition, timestamp).
    api(ApiKey::ListOffsets, 1..=3, 1, "4<21>[s[48]]"),
    // Topic; whether it may make topics.
    api(ApiKey::Metadata, 1..=6, 1, "[s]<41>"),
    // Key, its type.
    api(ApiKey::FindCoordinator, 0..=2, 0, "s<11>"),
    api(ApiKey::ApiVersions, 0..=2, 0, ""),
    // Name, partitions, replication factor, assignment (partition, broker), configuration (name,
    // value); timeout; whether it is only to be validated.
    api(ApiKey::CreateTopics, 2..=4, 2, "[s42[4[4]][ss]]41"),
    // Topic (partition, offset); timeout.
    api(ApiKey::DeleteRecords, 0..=1, 0, "[s[48]]4"),
    // Transactional id, its timeout.
    api(ApiKey::InitProducerId, 0..=1, 0, "s4"),
];

/// The most array elements in a request, which bounds what decoding it can allocate.
pub(crate) const ELEMENTS_MAX: usize = 1 << 16;

/// Checks every length in a frame, which starts with the request header.
pub(crate) fn check(frame: &[u8], api: &Api, version: i16) -> anyhow::Result<()> {
    let mut walk = Walk {
        rest: frame,
        version,
        elements_left: ELEMENTS_MAX,
    };
    walk.skip(PREFIX_BYTES)?;
    walk.fields(b"s").context("client id")?;
    walk.fields(api.fields)
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    elements_left: usize,
}

impl Walk<'_> {
    /// Walks over these fields.
    fn fields(&mut self, mut fields: &[u8]) -> anyhow::Result<()> {
        // Walk field after field; recurse into brackets.
        while let [field, behind @ ..] = fields {
            fields = behind;
            match field {
                b's' => {
                    let length = length_of(self.rest.try_get_i16()?.into())?;
                    self.skip(length)?;
                }
                b'b' => {
                    let length = length_of(self.rest.try_get_i32()?)?;
                    self.skip(length)?;
                }
                b'[' => {
                    let (element, behind) = closed(fields);
                    fields = behind;
                    for _ in 0..self.count()? {
                        self.fields(element)?;
                    }
                }
                b'<' => {
                    let (mut since, behind) = closed(fields);
                    fields = behind;
                    let version = since.split_off_first().map_or(0, digit);
                    if usize::try_from(self.version)? >= version {
                        self.fields(since)?;
                    }
                }
                bytes => self.skip(digit(bytes))?,
            }
        }
        Ok(())
    }

    /// Reads the number of an array's elements.
    fn count(&mut self) -> anyhow::Result<usize> {
        let count = length_of(self.rest.try_get_i32()?)?;
        let left = self.elements_left;
        ensure!(
            count <= left,
            "{count} elements announced, {left} are allowed"
        );
        self.elements_left -= count;
        Ok(count)
    }

    fn skip(&mut self, bytes: usize) -> anyhow::Result<()> {
        let missing = || format!("{bytes} bytes announced, {} left", self.rest.len());
        self.rest = self.rest.get(bytes..).with_context(missing)?;
        Ok(())
    }
}

/// Returns the value of a digit in a table of fields.
fn digit(byte: &u8) -> usize {
    usize::from(byte - b'0')
}

/// Reads the number of bytes or elements; -1 stands for null, which has none.
fn length_of(length: i32) -> anyhow::Result<usize> {
    ensure!(length >= -1, "a length of {length}");
    Ok(usize::try_from(length).unwrap_or(0))
}

/// Splits fields at the end of the bracket that is open.
fn closed(fields: &[u8]) -> (&[u8], &[u8]) {
    let mut depth = 1;
    for (at, field) in fields.iter().enumerate() {
        match field {
            b'[' | b'<' => depth += 1,
            b']' | b'>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&fields[..at], &fields[at + 1..]);
        }
    }
    (fields, &[])
}
