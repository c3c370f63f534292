//! A follower replica: it asks the leader for its topics (`Metadata`) and fetches all their
//! partitions, over one connection, as any client would. It is a thread beside the leader, or a
//! process of its own (`--node`). The `replica_id` in its `Fetch` makes it a replica: the leader
//! takes the offsets that it asks for as its log ends, and so learns of its progress from its
//! *next* fetch.
//!
//! Its fetches are long polls, so an idle follower waits in the leader's purgatory. It looks for
//! topics whenever a fetch brought nothing, and every few fetches in any case, so a new topic is
//! followed a tenth of a second later. Its logs are in memory: a follower that is started again, or
//! finds another leader, begins anew; a follower that only lost its connection goes on. The leader
//! cannot tell the two apart: once its connection is lost, a follower does not count as in sync
//! until it has caught up. A follower serves no clients.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{io::BufReader, io::Write, net::SocketAddr, net::TcpStream};
use std::{ops::Range, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use dashmap::DashMap;
use example_support::Stop;
use kafka_protocol::{
    ResponseError, messages::fetch_request::*, messages::*, protocol::Decodable,
    protocol::HeaderVersion, protocol::Request, protocol::StrBytes,
    protocol::encode_request_header_into_buffer,
};

use crate::{
    batch, batch::IncomingBatch, batch::RecordBatch, fetch::FETCH_BYTES_MAX, frame::read_frame,
    log::Log, partition::Partition, topics::TopicPartition,
};

/// The longest wait of a fetch at the leader: for this long a deletion or a new topic may go
/// unnoticed.
const FETCH_WAIT_MAX: Duration = Duration::from_millis(100);
/// The number of fetches in a row with news after which the topics are looked up again.
const FETCHES_PER_METADATA: usize = 16;
/// The pause between two attempts to reach the leader.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// The time between two looks of a paused follower at its flag.
const PAUSED: Duration = Duration::from_millis(50);
/// The longest time for connecting, and for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A follower and its logs.
pub(crate) struct Follower {
    pub(crate) id: i32,
    /// True while it fetches nothing.
    pub(crate) paused: AtomicBool,
    /// The log of each partition: a copy of the leader's, as far as it goes.
    logs: DashMap<TopicPartition, Log>,
}

impl Follower {
    pub(crate) fn new(id: i32, paused: bool) -> Follower {
        Follower {
            id,
            paused: paused.into(),
            logs: DashMap::new(),
        }
    }

    /// Returns the offsets that the follower's log of a partition has.
    pub(crate) fn offsets(&self, key: &TopicPartition) -> Range<i64> {
        let log = self.logs.get(key);
        log.map_or(0..0, |log| log.log_start_offset..log.log_end_offset)
    }

    /// Appends the batches of a fetch; returns true if that was news.
    pub(crate) fn append(
        &self,
        key: &TopicPartition,
        batches: impl IntoIterator<Item = RecordBatch>,
        leaders_start: i64,
    ) -> bool {
        // News is a log that starts or ends elsewhere than before.
        let before = self.offsets(key);
        let mut log = self.logs.entry(key.clone()).or_default();
        for batch in batches {
            log.append(batch);
        }
        log.start_at(leaders_start);
        let after = log.log_start_offset..log.log_end_offset;
        after != before
    }

    /// Follows the leader until `stop` is raised, with a pause between two fetches; reconnects for
    /// as long as it takes.
    pub(crate) fn follow(&self, leader: SocketAddr, stop: &Stop, interval: Duration) {
        let mut cluster = None;
        while !stop.is_raised() {
            let result = self.follow_connection(leader, &mut cluster, stop, interval);
            // A stop also ends the connection, which is no failure.
            if let Err(reason) = result
                && !stop.is_raised()
            {
                tracing::debug!("the leader at {leader} is not followed: {reason:#}");
                stop.pause(RECONNECT_AFTER);
            }
        }
    }

    /// Follows the leader over one connection. The follower's logs are those of `cluster`.
    fn follow_connection(
        &self,
        leader: SocketAddr,
        cluster: &mut Option<StrBytes>,
        stop: &Stop,
        interval: Duration,
    ) -> Result<()> {
        let mut session = Session::connect(leader)?;
        // A leader in another process has another log: begin anew. The same leader counts on what
        // this replica has, so keep it.
        let found = session.metadata()?.cluster_id;
        if *cluster != found {
            self.logs.clear();
            *cluster = found;
        }
        tracing::info!("replica {} follows {leader}", self.id);
        while !stop.is_raised() {
            if self.paused.load(Relaxed) {
                stop.pause(PAUSED);
            } else {
                session.round(self)?;
                stop.pause(interval);
            }
        }
        Ok(())
    }
}

/// Returns true if those of `followers` that are in sync really have `partition` up to `offset`, by
/// their own logs and not by the leader's knowledge. Followers in other processes are out of sight.
pub(crate) fn all_have(followers: &[Follower], partition: &Partition, offset: i64) -> bool {
    let in_sync = partition.in_sync_followers();
    for follower in followers {
        let log_end = follower.offsets(&partition.key).end;
        if in_sync.contains(&follower.id) && log_end < offset {
            return false;
        }
    }
    true
}

/// One connection to the leader.
struct Session {
    reader: BufReader<TcpStream>,
    correlation_id: i32,
    topics: Vec<(TopicName, i32)>,
    fetches: usize,
}

impl Session {
    fn connect(leader: SocketAddr) -> Result<Session> {
        let stream = TcpStream::connect_timeout(&leader, ANSWER_MAX)?;
        // A missing answer ends the connection, not the follower.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(Session {
            reader: BufReader::new(stream),
            correlation_id: 0,
            topics: Vec::new(),
            fetches: 0,
        })
    }

    /// Fetches from every partition; first looks for topics, when it is time.
    fn round(&mut self, follower: &Follower) -> Result<()> {
        if self.fetches.is_multiple_of(FETCHES_PER_METADATA) {
            self.topics = topics_of(self.metadata()?)?;
        }
        let news = self.fetch(follower)?;
        self.fetches = if news { self.fetches + 1 } else { 0 };
        Ok(())
    }

    /// Asks for all topics, and for the cluster's id.
    fn metadata(&mut self) -> Result<MetadataResponse> {
        self.ask(&MetadataRequest::default().with_topics(None), 6)
    }

    /// Fetches once; returns true if that brought news.
    fn fetch(&mut self, follower: &Follower) -> Result<bool> {
        let request = fetch_request(&self.topics, self.fetches, follower);
        let response: FetchResponse = self.ask(&request, 10)?;
        let mut news = false;
        for topic in response.responses {
            for data in topic.partitions {
                let key = key(&topic.topic, data.partition_index);
                match ResponseError::try_from_code(data.error_code) {
                    // If the offset is gone, the leader's log start says where to go on.
                    None | Some(ResponseError::OffsetOutOfRange) => {}
                    Some(error) => bail!("fetch of {key}: {error}"),
                }
                let records = data.records.unwrap_or_default();
                // The leader has checked the batches' size; parse them to find their offsets.
                let batches = batch::parse(&records, usize::MAX);
                let batches = batches.with_context(|| format!("records of {key}"))?;
                let batches = batches.into_iter().map(IncomingBatch::replicated);
                news |= follower.append(&key, batches, data.log_start_offset);
            }
        }
        Ok(news)
    }

    /// Sends a request in this version, and waits for its answer.
    fn ask<Q: Request>(&mut self, request: &Q, version: i16) -> Result<Q::Response> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let id = self.correlation_id;
        let frame = encoded(request, version, id)?;
        self.reader.get_mut().write_all(&frame)?;
        let answer = read_frame(&mut self.reader, u32::MAX)?;
        let mut answer = answer.context("closed by the leader")?;
        decoded(&mut answer, version, id)
    }
}

/// Returns the names of the topics, and how many partitions each has.
fn topics_of(response: MetadataResponse) -> Result<Vec<(TopicName, i32)>> {
    let mut topics = Vec::new();
    for topic in response.topics {
        let partitions = i32::try_from(topic.partitions.len())?;
        topics.push((topic.name.context("a topic without a name")?, partitions));
    }
    Ok(topics)
}

/// Makes a request for every partition, from the end of the follower's log on.
fn fetch_request(topics: &[(TopicName, i32)], round: usize, follower: &Follower) -> FetchRequest {
    let mut asked = Vec::new();
    // Each round another topic comes first, and each time that a topic does, another of its
    // partitions: otherwise the last ones would starve.
    let of_topic = round / topics.len().max(1);
    for (name, count) in rotated(topics, round) {
        let mut partitions = Vec::new();
        let indices: Vec<_> = (0..*count).collect();
        for index in rotated(&indices, of_topic) {
            let log = follower.offsets(&key(name, *index));
            let partition = FetchPartition::default()
                .with_partition(*index)
                .with_fetch_offset(log.end)
                .with_log_start_offset(log.start)
                .with_partition_max_bytes(FETCH_BYTES_MAX as i32);
            partitions.push(partition);
        }
        let topic = FetchTopic::default().with_topic(name.clone());
        asked.push(topic.with_partitions(partitions));
    }
    FetchRequest::default()
        .with_replica_id(follower.id.into())
        .with_max_wait_ms(FETCH_WAIT_MAX.as_millis() as i32)
        .with_min_bytes(1)
        .with_max_bytes(FETCH_BYTES_MAX as i32)
        .with_session_epoch(-1)
        .with_topics(asked)
}

/// Encodes a request as a whole frame.
pub(crate) fn encoded<Q: Request>(request: &Q, version: i16, id: i32) -> Result<BytesMut> {
    let header = RequestHeader::default()
        .with_request_api_key(Q::KEY)
        .with_request_api_version(version)
        .with_correlation_id(id)
        .with_client_id(Some("replica".into()));
    // The length goes in front, once it is known.
    let mut frame = BytesMut::from(&[0; 4][..]);
    encode_request_header_into_buffer(&mut frame, &header)?;
    request.encode(&mut frame, version)?;
    let length = u32::try_from(frame.len() - 4)?;
    (&mut frame[..4]).put_u32(length);
    Ok(frame)
}

/// Decodes a frame without its length, and takes the decoded bytes off.
pub(crate) fn decoded<T: Decodable + HeaderVersion>(
    frame: &mut Bytes,
    version: i16,
    id: i32,
) -> Result<T> {
    let header = ResponseHeader::decode(frame, T::header_version(version))?;
    ensure!(header.correlation_id == id, "an answer to something else");
    T::decode(frame, version)
}

/// Yields all items, beginning with another one each round.
fn rotated<T>(items: &[T], round: usize) -> impl Iterator<Item = &T> {
    let first = round % items.len().max(1);
    items[first..].iter().chain(&items[..first])
}

fn key(topic: &TopicName, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: topic.as_str().into(),
        partition,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_topic_comes_first_in_some_round() {
        let order = |round| rotated(&[1, 2, 3], round).copied().collect::<Vec<_>>();
        assert_eq!(
            [0, 1, 2, 3].map(order),
            [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]
        );
        assert_eq!(rotated::<i32>(&[], 7).count(), 0);
    }

    /// Only the first partition has room for its records however much the others have.
    #[test]
    fn each_partition_comes_first_in_some_round() {
        let follower = Follower::new(2, false);
        let topics = [("a", 2), ("b", 2), ("c", 1)];
        let topics = topics.map(|(name, count)| (TopicName(name.to_owned().into()), count));
        let first = |round| {
            let request = fetch_request(&topics, round, &follower);
            assert_eq!(request.topics.len(), 3, "round {round}");
            let topic = &request.topics[0];
            (topic.topic.to_string(), topic.partitions[0].partition)
        };
        let firsts: BTreeSet<_> = (0..6).map(first).collect();
        let each = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)];
        let each = each.map(|(name, index)| (name.to_owned(), index));
        assert_eq!(firsts, each.into());
        assert!(fetch_request(&[], 7, &follower).topics.is_empty());
    }
}
