//! Opaque record batches: the broker checks the header and writes offset and leader epoch; the
//! records stay as the client compressed them.
//! <https://kafka.apache.org/documentation/#recordbatch>

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::ResponseError;

use crate::api::OrError;

/// Names of the codecs, by the lowest three bits of a batch's attributes.
pub(crate) const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

const HEADER_BYTES: usize = 61;
/// The end of the length field, which counts the bytes after it.
const LENGTH_END: usize = 12;
/// The end of the CRC, which covers the bytes after it: writing offset and leader epoch keeps it
/// valid.
const CRC_END: usize = 21;
/// The epoch of the only leader.
const LEADER_EPOCH: i32 = 0;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL_BATCH: i16 = 1 << 5;

/// A batch that passed the checks and has no offset yet.
#[derive(Debug)]
pub(crate) struct IncomingBatch {
    pub(crate) records: i32,
    /// Index into [`CODECS`].
    pub(crate) codec: usize,
    bytes: BytesMut,
}

/// A batch with its place in a log.
#[derive(Debug, Clone)]
pub(crate) struct RecordBatch {
    pub(crate) base_offset: i64,
    pub(crate) next_offset: i64,
    /// Bytes of the log before the batch, set by the log that it is appended to.
    pub(crate) position: u64,
    pub(crate) bytes: Bytes,
}

/// Splits the records of one partition into batches and checks each. The bytes are copied: a log
/// must not keep a whole request in memory for the sake of one batch. A batch that announces more
/// than `bytes_max` is answered with MESSAGE_TOO_LARGE.
pub(crate) fn parse(mut records: &[u8], bytes_max: usize) -> OrError<Vec<IncomingBatch>> {
    // The length of each batch tells where the next one begins.
    let mut batches = Vec::new();
    while !records.is_empty() {
        let (batch, rest) = split(records, bytes_max)?;
        batches.push(check(batch)?);
        records = rest;
    }
    Ok(batches)
}

/// Splits off the first batch.
fn split(records: &[u8], bytes_max: usize) -> OrError<(&[u8], &[u8])> {
    let mut length = records
        .get(8..LENGTH_END)
        .ok_or(ResponseError::CorruptMessage)?;
    let length = usize::try_from(length.get_i32()).map_err(|_| ResponseError::CorruptMessage)?;
    refuse!(
        length.saturating_add(LENGTH_END) > bytes_max,
        MessageTooLarge
    );
    records
        .split_at_checked(length + LENGTH_END)
        .ok_or(ResponseError::CorruptMessage)
}

/// Checks the header of a batch, and the checksum over the rest.
fn check(batch: &[u8]) -> OrError<IncomingBatch> {
    refuse!(
        batch.get(16).is_some_and(|magic| *magic != 2),
        InvalidRecord
    );
    let header = batch
        .get(..HEADER_BYTES)
        .ok_or(ResponseError::CorruptMessage)?;
    // The header's fields that are checked, at their places in the format.
    let crc = (&header[17..]).get_u32();
    let attributes = (&header[CRC_END..]).get_i16();
    let last_offset_delta = (&header[23..]).get_i32();
    let records = (&header[57..]).get_i32();
    refuse!(crc32c::crc32c(&batch[CRC_END..]) != crc, CorruptMessage);

    // Offsets are assigned by the count of records, so the count must be right.
    let counted = records >= 1 && last_offset_delta == records - 1;
    refuse!(
        !counted || attributes & (TRANSACTIONAL | CONTROL_BATCH) != 0,
        InvalidRecord
    );
    // The records themselves are never opened.
    let codec = usize::from(attributes.to_be_bytes()[1] & 7);
    refuse!(codec >= CODECS.len(), UnsupportedCompressionType);
    Ok(IncomingBatch {
        records,
        codec,
        bytes: batch.into(),
    })
}

impl IncomingBatch {
    /// Returns the batch as the leader wrote it, for a follower's log.
    pub(crate) fn replicated(self) -> RecordBatch {
        let base_offset = (&self.bytes[..8]).get_i64();
        self.assign(base_offset)
    }

    /// Writes the base offset and the leader epoch.
    pub(crate) fn assign(mut self, base_offset: i64) -> RecordBatch {
        self.bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
        self.bytes[LENGTH_END..16].copy_from_slice(&LEADER_EPOCH.to_be_bytes());
        RecordBatch {
            base_offset,
            next_offset: base_offset.saturating_add(self.records.into()),
            position: 0,
            bytes: self.bytes.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{record_batch, with_crc};

    const LARGE: usize = 1 << 32;

    fn changed(at: usize, to: &[u8]) -> Vec<u8> {
        let mut batch = record_batch(3).to_vec();
        batch[at..at + to.len()].copy_from_slice(to);
        with_crc(batch)
    }

    fn error(records: &[u8]) -> ResponseError {
        parse(records, LARGE).unwrap_err()
    }

    #[test]
    fn batches_are_split_and_numbered_under_the_same_crc() {
        let two = [record_batch(3), record_batch(2)].concat();
        let mut next = 40;
        for (batch, records) in parse(&two, LARGE).unwrap().into_iter().zip([3, 2]) {
            let stored = batch.assign(next);
            assert_eq!(
                (stored.base_offset, stored.next_offset),
                (next, next + records)
            );
            assert_eq!((&stored.bytes[..8]).get_i64(), next);
            assert_eq!((&stored.bytes[12..16]).get_i32(), LEADER_EPOCH);
            assert!(check(&stored.bytes).is_ok());
            next = stored.next_offset;
        }
        assert_eq!(next, 45);
    }

    #[test]
    fn every_codec_is_taken_as_it_is() {
        for codec in 0..CODECS.len() {
            let attributes = [0, codec.to_le_bytes()[0]];
            assert_eq!(
                parse(&changed(21, &attributes), LARGE).unwrap()[0].codec,
                codec
            );
        }
        assert_eq!(
            error(&changed(21, &[0, 5])),
            ResponseError::UnsupportedCompressionType
        );
    }

    #[test]
    fn batch_too_large_is_refused_by_its_header() {
        let batch = record_batch(3);
        assert!(
            parse(&batch, batch.len()).is_ok(),
            "the limit itself is allowed"
        );
        let two = [&batch[..], &batch[..]].concat();
        assert_eq!(
            parse(&two, batch.len()).unwrap().len(),
            2,
            "each batch counts"
        );
        for bytes in [&batch[..], &batch[..12]] {
            let error = parse(bytes, batch.len() - 1).unwrap_err();
            assert_eq!(error, ResponseError::MessageTooLarge);
        }
    }

    #[test]
    fn malformed_batches_are_named() {
        let mut flipped = record_batch(3).to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        // A batch that is cut anywhere, or has a wrong bit, is corrupt.
        for end in 1..=flipped.len() {
            assert_eq!(
                error(&flipped[..end]),
                ResponseError::CorruptMessage,
                "cut at {end}"
            );
        }
        for length in [-1, 0, 10, 48, i32::MAX] {
            let bytes = changed(8, &length.to_be_bytes());
            assert_eq!(
                error(&bytes),
                ResponseError::CorruptMessage,
                "length {length}"
            );
        }
        // These batches are whole, but no producer may send them.
        let magic_1 = changed(16, &[1]);
        let control = changed(21, &[0, 32]);
        let transactional = changed(21, &[0, 16]);
        let last_offset = changed(23, &[0, 0, 0, 3]);
        let none = changed(57, &[0; 4]);
        let negative = changed(57, &[0x80, 0, 0, 0]);
        for bytes in [magic_1, control, transactional, last_offset, none, negative] {
            assert_eq!(error(&bytes), ResponseError::InvalidRecord);
        }
    }
}
