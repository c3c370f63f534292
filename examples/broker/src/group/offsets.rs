//! OffsetCommit and OffsetFetch: how far a group has come, in memory only.

use std::{collections::HashMap, sync::Arc};

use kafka_protocol::{
    ResponseError, messages::offset_commit_request::*, messages::offset_commit_response::*,
    messages::offset_fetch_request::*, messages::offset_fetch_response::*, messages::*,
    protocol::StrBytes,
};

use super::{coordinator::GroupCoordinator, state::Phase, state::State};
use crate::{api::OrError, api::code, topics::Topics};

/// Partitions that one group may have offsets of.
const PARTITIONS_MAX: usize = 10_000;
/// Kafka's `offset.metadata.max.bytes`.
const METADATA_BYTES_MAX: usize = 4096;

/// By topic and partition.
pub(super) type Offsets = HashMap<(String, i32), Committed>;

pub(super) struct Committed {
    offset: i64,
    /// Copied, and shared with responses.
    metadata: StrBytes,
}

impl GroupCoordinator {
    pub(crate) fn commit(
        self: &Arc<Self>,
        topics: &Topics,
        request: &OffsetCommitRequest,
    ) -> OffsetCommitResponse {
        // A client outside the group, which assigns itself its partitions, has no generation.
        let outside = request.generation_id_or_member_epoch < 0;
        let id = &request.group_id;
        match if outside { self.get_or_create(id) } else { self.group(id) } {
            Err(error) => commit_each(request, |_, _| Err(error)),
            Ok(group) => {
                let mut state = group.state.lock();
                let allowed = may_commit(&mut state, request);
                let response = commit_each(request, |topic, asked| {
                    allowed.and_then(|()| commit(&mut state.offsets, topics, topic, asked))
                });
                self.settle(&group, state, false);
                response
            }
        }
    }

    /// A partition without a committed offset has -1, in a group that there is not, too.
    pub(crate) fn fetch_offsets(&self, request: OffsetFetchRequest) -> OffsetFetchResponse {
        let group = self.group(&request.group_id).ok();
        let state = group.as_ref().map(|group| group.state.lock());
        let found = |topic: &TopicName, index| {
            let response = OffsetFetchResponsePartition::default().with_partition_index(index);
            match state.as_ref().and_then(|state| state.offsets.get(&(topic.to_string(), index))) {
                None => response.with_committed_offset(-1),
                Some(committed) => response
                    .with_committed_offset(committed.offset)
                    .with_metadata(Some(committed.metadata.clone())),
            }
        };
        let topics = request.topics.into_iter().flatten().map(|asked| {
            let partitions = asked.partition_indexes.iter().map(|index| found(&asked.name, *index));
            let partitions = partitions.collect();
            OffsetFetchResponseTopic::default().with_name(asked.name).with_partitions(partitions)
        });
        OffsetFetchResponse::default().with_topics(topics.collect())
    }
}

fn may_commit(state: &mut State, request: &OffsetCommitRequest) -> OrError<()> {
    let generation = request.generation_id_or_member_epoch;
    match state.phase {
        Phase::Dead => Err(ResponseError::CoordinatorNotAvailable),
        Phase::Empty if generation < 0 => Ok(()),
        phase => {
            state.heartbeat(&request.member_id, generation)?;
            let assigns = phase == Phase::CompletingRebalance;
            if assigns { Err(ResponseError::RebalanceInProgress) } else { Ok(()) }
        }
    }
}

fn commit_each(
    request: &OffsetCommitRequest,
    mut commit: impl FnMut(&str, &OffsetCommitRequestPartition) -> OrError<()>,
) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            OffsetCommitResponsePartition::default()
                .with_partition_index(asked.partition_index)
                .with_error_code(code(commit(&topic.name, asked)))
        });
        let partitions = partitions.collect();
        let topic = OffsetCommitResponseTopic::default().with_name(topic.name.clone());
        topic.with_partitions(partitions)
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn commit(
    offsets: &mut Offsets,
    topics: &Topics,
    topic: &str,
    asked: &OffsetCommitRequestPartition,
) -> OrError<()> {
    let index = asked.partition_index;
    topics.partition(topic, index)?;
    let metadata = asked.committed_metadata.as_deref().unwrap_or_default().to_owned();
    refuse!(metadata.len() > METADATA_BYTES_MAX, OffsetMetadataTooLarge);
    let key = (topic.to_owned(), index);
    let full = !offsets.contains_key(&key) && offsets.len() >= PARTITIONS_MAX;
    refuse!(full, InvalidCommitOffsetSize);
    offsets.insert(key, Committed { offset: asked.committed_offset, metadata: metadata.into() });
    Ok(())
}
