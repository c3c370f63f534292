//! Idempotent producers: what came again is recognised by producer id, epoch and sequence number,
//! and answered with the offset it has already. Each partition remembers the last five batches of a
//! producer, as many as a client has in flight, and so many producers; the longest silent goes
//! first.
//!
//! Producers are numbered and there are no transactions: a transactional id is refused.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::{api::OrError, batch::IncomingBatch};

/// Producers that a partition remembers.
const PRODUCERS_MAX: usize = 1000;
/// Kafka's `max.in.flight.requests.per.connection` at most, for such a producer.
const BATCHES_MAX: usize = 5;

/// Hands out producer ids, from a random one on: an old client must not be taken for a new one
/// after the broker was started again.
pub(crate) struct ProducerIds(AtomicI64);

impl ProducerIds {
    pub(crate) fn new() -> ProducerIds {
        let random = RandomState::new().hash_one(0) >> 16;
        ProducerIds(AtomicI64::new(random.cast_signed()))
    }

    pub(crate) fn init(&self, request: &InitProducerIdRequest) -> InitProducerIdResponse {
        let response = InitProducerIdResponse::default();
        if let Some(id) = &request.transactional_id {
            tracing::warn!("{}: transactions are not supported", id.0);
            let error = ResponseError::TransactionalIdAuthorizationFailed;
            return response.with_error_code(error.code()).with_producer_epoch(-1);
        }
        response.with_producer_id(self.0.fetch_add(1, Relaxed).into())
    }
}

/// Who wrote a batch, and which of its batches it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) sequence: i32,
}

/// The producers of one partition.
#[derive(Default)]
pub(crate) struct Producers {
    by_id: HashMap<i64, Entry>,
    appends: u64,
}

struct Entry {
    epoch: i16,
    batches: VecDeque<Known>,
    last_append: u64,
}

struct Known {
    first_sequence: i32,
    records: i32,
    base_offset: i64,
}

impl Producers {
    /// The base offset of a batch that came again; `None`: it is to be appended.
    /// OUT_OF_ORDER_SEQUENCE_NUMBER when one before it is missing, INVALID_PRODUCER_EPOCH when
    /// there is a newer one. A producer not (or no longer) known may begin anywhere, as in Kafka.
    pub(crate) fn duplicate(&self, batches: &[IncomingBatch]) -> OrError<Option<i64>> {
        let [IncomingBatch { producer: Some(producer), records, .. }] = batches else {
            let plain = batches.iter().all(|batch| batch.producer.is_none());
            return if plain { Ok(None) } else { Err(ResponseError::InvalidRecord) };
        };
        let Some(entry) = self.by_id.get(&producer.id) else { return Ok(None) };
        refuse!(producer.epoch < entry.epoch, InvalidProducerEpoch);
        let next = if producer.epoch > entry.epoch {
            0
        } else {
            let same = |known: &&Known| {
                (known.first_sequence, known.records) == (producer.sequence, *records)
            };
            if let Some(known) = entry.batches.iter().find(same) {
                return Ok(Some(known.base_offset));
            }
            entry.batches.back().map_or(0, |last| after(last.first_sequence, last.records))
        };
        let in_order = producer.sequence == next;
        if in_order { Ok(None) } else { Err(ResponseError::OutOfOrderSequenceNumber) }
    }

    /// A batch was appended.
    pub(crate) fn note(&mut self, producer: Producer, records: i32, base_offset: i64) {
        self.appends += 1;
        if self.by_id.len() >= PRODUCERS_MAX && !self.by_id.contains_key(&producer.id) {
            let silent = self.by_id.iter().min_by_key(|(_, entry)| entry.last_append);
            let silent = silent.map(|(id, _)| *id);
            silent.and_then(|id| self.by_id.remove(&id));
        }
        let new = || Entry { epoch: producer.epoch, batches: VecDeque::new(), last_append: 0 };
        let entry = self.by_id.entry(producer.id).or_insert_with(new);
        if entry.epoch != producer.epoch {
            *entry = new();
        }
        if entry.batches.len() == BATCHES_MAX {
            entry.batches.pop_front();
        }
        entry.last_append = self.appends;
        entry.batches.push_back(Known { first_sequence: producer.sequence, records, base_offset });
    }
}

/// Sequence numbers go from `i32::MAX` to 0.
fn after(first: i32, records: i32) -> i32 {
    first.wrapping_add(records) & i32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch;
    use crate::tests::{Fixture, examples::text, record_batch, with_crc};

    /// A batch of producer 7.
    fn batch(epoch: i16, sequence: i32, records: i32) -> Vec<u8> {
        from_producer(7, epoch, sequence, records)
    }

    fn from_producer(id: i64, epoch: i16, sequence: i32, records: i32) -> Vec<u8> {
        let mut batch = record_batch(records).to_vec();
        batch[43..51].copy_from_slice(&id.to_be_bytes());
        batch[51..53].copy_from_slice(&epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&sequence.to_be_bytes());
        with_crc(batch)
    }

    /// A partition to append to: the base offset, and whether the batch came again.
    fn log() -> impl Fn(&[u8]) -> OrError<(i64, bool)> {
        let partition = Fixture::new(&[]).partition(0);
        move |records| {
            let appended = partition.append(batch::parse(records, 1 << 20)?, false)?;
            Ok((appended.base_offset, appended.duplicate))
        }
    }

    const OUT_OF_ORDER: OrError<(i64, bool)> = Err(ResponseError::OutOfOrderSequenceNumber);

    #[test]
    fn the_last_five_batches_are_known_again_and_have_their_offsets() {
        let append = log();
        for at in 0..7 {
            assert_eq!(append(&batch(0, at * 10, 10)), Ok((i64::from(at) * 10, false)));
        }
        for at in 2..7 {
            assert_eq!(append(&batch(0, at * 10, 10)), Ok((i64::from(at) * 10, true)));
        }
        for at in [0, 1, 8] {
            assert_eq!(append(&batch(0, at * 10, 10)), OUT_OF_ORDER, "batch {at}");
        }
        assert_eq!(append(&batch(0, 60, 9)), OUT_OF_ORDER, "not the same batch");
        assert_eq!(append(&batch(0, 70, 1)), Ok((70, false)));
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_ends_the_old_one() {
        let append = log();
        assert_eq!(append(&batch(3, 5, 1)), Ok((0, false)), "unknown: begins anywhere");
        assert_eq!(append(&batch(4, 6, 1)), OUT_OF_ORDER);
        assert_eq!(append(&batch(4, 0, 1)), Ok((1, false)));
        assert_eq!(append(&batch(3, 6, 1)), Err(ResponseError::InvalidProducerEpoch));
        assert_eq!(append(&batch(4, 5, 1)), OUT_OF_ORDER, "the old epoch's are forgotten");
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let append = log();
        assert_eq!(append(&batch(0, i32::MAX - 1, 2)), Ok((0, false)));
        assert_eq!(append(&batch(0, 0, 1)), Ok((2, false)));
        let append = log();
        assert_eq!(append(&batch(0, i32::MAX - 1, 3)), Ok((0, false)));
        assert_eq!(append(&batch(0, 1, 1)), Ok((3, false)));
    }

    #[test]
    fn producers_do_not_disturb_each_other_and_the_longest_silent_is_forgotten() {
        let log = log();
        let append = |id, sequence| log(&from_producer(id, 0, sequence, 1));
        for id in 0..1000 {
            assert!(matches!(append(id, 0), Ok((_, false))));
        }
        assert!(matches!(append(0, 1), Ok((_, false))));
        assert!(matches!(append(1000, 0), Ok((_, false))), "instead of 1");
        assert!(matches!(append(0, 1), Ok((_, true))));
        assert!(matches!(append(2, 0), Ok((_, true))));
        assert!(matches!(append(1, 0), Ok((_, false))));
    }

    #[test]
    fn what_is_no_idempotent_batch_is_told() {
        let append = log();
        for _ in 0..2 {
            assert!(matches!(append(&record_batch(2)), Ok((_, false))), "always appended");
        }
        let two = [batch(0, 0, 1), batch(0, 1, 1)].concat();
        for wrong in [two, batch(-1, 0, 1), batch(0, -1, 1)] {
            assert_eq!(append(&wrong), Err(ResponseError::InvalidRecord));
        }
        let mut transactional = batch(0, 0, 1);
        transactional[22] |= 1 << 4;
        let error = ResponseError::TransactionalIdAuthorizationFailed;
        assert_eq!(append(&with_crc(transactional)), Err(error));
    }

    #[test]
    fn producer_ids_differ_and_a_transactional_one_is_refused() {
        let ids = ProducerIds::new();
        let [one, two] = [(); 2].map(|()| {
            let request = InitProducerIdRequest::default().with_transactional_id(None);
            ids.init(&request).producer_id.0
        });
        assert!(one >= 0 && two == one + 1);
        let request = InitProducerIdRequest::default();
        let request = request.with_transactional_id(Some(text("x").into()));
        assert_eq!(ids.init(&request).error_code, 53);
    }
}
