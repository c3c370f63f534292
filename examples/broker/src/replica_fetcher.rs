//! A follower replica: it asks the leader for its topics (`Metadata`) and fetches every partition
//! of them, over one connection, as any client would. It is a thread beside the leader, or a
//! process of its own (`--node`). What makes it a replica is the `replica_id` in its `Fetch`: the
//! leader takes the offsets it asks for as what it has, and so learns of its progress from its
//! *next* fetch.
//!
//! Its fetches are long polls, so an idle follower waits in the leader's purgatory. It looks for
//! topics whenever a fetch brought nothing, and every few fetches in any case, so a new topic is
//! followed a tenth of a second later. Its logs are in memory: a follower that is started again, or
//! finds the leader again, begins anew. It serves no clients.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{io::BufReader, io::Write, net::SocketAddr, net::TcpStream, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use dashmap::DashMap;
use example_support::Stop;
use kafka_protocol::{
    ResponseError, messages::fetch_request::*, messages::*, protocol::Decodable,
    protocol::HeaderVersion, protocol::Request, protocol::encode_request_header_into_buffer,
};

use crate::{
    batch, batch::IncomingBatch, batch::RecordBatch, fetch::FETCH_BYTES_MAX, frame::read_frame,
    log::Log, partition::Partition, topics::TopicPartition,
};

/// How long a fetch waits at the leader: as long as a deletion or a new topic may go unnoticed.
const FETCH_WAIT_MAX: Duration = Duration::from_millis(100);
/// After this many fetches that each brought something, the topics are looked up again.
const FETCHES_PER_METADATA: usize = 16;
/// Between two attempts to reach the leader.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// How often one that is paused looks whether it still is.
const PAUSED: Duration = Duration::from_millis(50);
/// For connecting, and for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A follower and its logs.
pub(crate) struct Follower {
    pub(crate) id: i32,
    /// It fetches nothing.
    pub(crate) paused: AtomicBool,
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

    /// Its log start offset and its log end offset.
    pub(crate) fn log_range(&self, key: &TopicPartition) -> (i64, i64) {
        let log = self.logs.get(key);
        log.map_or((0, 0), |log| (log.log_start_offset, log.log_end_offset))
    }

    /// Appends what a fetch brought; true when that was news.
    pub(crate) fn append(
        &self,
        key: &TopicPartition,
        batches: impl IntoIterator<Item = RecordBatch>,
        leaders_start: i64,
    ) -> bool {
        let before = self.log_range(key);
        let mut log = self.logs.entry(key.clone()).or_default();
        batches.into_iter().for_each(|batch| log.append(batch));
        log.start_at(leaders_start);
        (log.log_start_offset, log.log_end_offset) != before
    }

    /// Follows the leader until told to stop, with a pause between two fetches; reconnects for
    /// as long as it takes.
    pub(crate) fn follow(&self, leader: SocketAddr, stop: &Stop, interval: Duration) {
        while !stop.is_raised() {
            let result = Session::connect(leader).and_then(|mut session| {
                tracing::info!("replica {} follows {leader}", self.id);
                self.logs.clear(); // whose log it had is not known any more
                while !stop.is_raised() {
                    let paused = self.paused.load(Relaxed);
                    if !paused {
                        session.round(self)?;
                    }
                    stop.pause(if paused { PAUSED } else { interval });
                }
                Ok(())
            });
            if let Err(reason) = result
                && !stop.is_raised()
            {
                tracing::debug!("the leader at {leader} is not followed: {reason:#}");
                stop.pause(RECONNECT_AFTER);
            }
        }
    }
}

/// Whether the in-sync ones of these followers really have `partition` up to `offset`: read from
/// their own logs, not from what the leader believes; those of other processes are out of sight.
pub(crate) fn all_have(followers: &[Follower], partition: &Partition, offset: i64) -> bool {
    let in_sync = partition.in_sync_followers();
    let mut in_sync = followers
        .iter()
        .filter(|follower| in_sync.contains(&follower.id));
    in_sync.all(|follower| follower.log_range(&partition.key).1 >= offset)
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
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let reader = BufReader::new(stream);
        Ok(Session {
            reader,
            correlation_id: 0,
            topics: Vec::new(),
            fetches: 0,
        })
    }

    /// A fetch of everything; the topics before it, when it is time.
    fn round(&mut self, follower: &Follower) -> Result<()> {
        if self.fetches.is_multiple_of(FETCHES_PER_METADATA) {
            self.topics = self.metadata()?;
        }
        let news = self.fetch(follower)?;
        self.fetches = if news { self.fetches + 1 } else { 0 };
        Ok(())
    }

    /// The names of the topics, and how many partitions each has.
    fn metadata(&mut self) -> Result<Vec<(TopicName, i32)>> {
        let all = MetadataRequest::default().with_topics(None);
        let response: MetadataResponse = self.ask(&all, 6)?;
        let topics = response.topics.into_iter().filter_map(|topic| {
            let partitions = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            Some((topic.name?, partitions))
        });
        Ok(topics.collect())
    }

    /// True when it brought news.
    fn fetch(&mut self, follower: &Follower) -> Result<bool> {
        let partition = |name: &TopicName, index| {
            let (start, end) = follower.log_range(&key(name, index));
            FetchPartition::default()
                .with_partition(index)
                .with_fetch_offset(end)
                .with_log_start_offset(start)
                .with_partition_max_bytes(FETCH_BYTES_MAX as i32)
        };
        let topic = |(name, partitions): &(TopicName, i32)| {
            let partitions = (0..*partitions)
                .map(|index| partition(name, index))
                .collect();
            FetchTopic::default()
                .with_topic(name.clone())
                .with_partitions(partitions)
        };
        // Another one first each time, or those behind it would starve.
        let request = FetchRequest::default()
            .with_replica_id(follower.id.into())
            .with_max_wait_ms(FETCH_WAIT_MAX.as_millis() as i32)
            .with_min_bytes(1)
            .with_max_bytes(FETCH_BYTES_MAX as i32)
            .with_session_epoch(-1)
            .with_topics(turned(&self.topics, self.fetches).map(topic).collect());
        let response: FetchResponse = self.ask(&request, 10)?;
        let mut news = false;
        for topic in response.responses {
            for data in topic.partitions {
                let key = key(&topic.topic, data.partition_index);
                match ResponseError::try_from_code(data.error_code) {
                    // An offset that is gone: the leader's log start says where to go on.
                    None | Some(ResponseError::OffsetOutOfRange) => {}
                    Some(error) => bail!("fetch of {key}: {error}"),
                }
                let records = data.records.unwrap_or_default();
                let batches = batch::parse(&records, usize::MAX)
                    .with_context(|| format!("records of {key}"))?;
                let batches = batches.into_iter().map(IncomingBatch::replicated);
                news |= follower.append(&key, batches, data.log_start_offset);
            }
        }
        Ok(news)
    }

    /// In this version of the request.
    fn ask<Q: Request>(&mut self, request: &Q, version: i16) -> Result<Q::Response> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        self.reader
            .get_mut()
            .write_all(&encoded(request, version, self.correlation_id)?)?;
        let answer = read_frame(&mut self.reader, u32::MAX)?;
        decoded(
            &mut answer.context("closed by the leader")?,
            version,
            self.correlation_id,
        )
    }
}

/// A whole frame.
pub(crate) fn encoded<Q: Request>(request: &Q, version: i16, id: i32) -> Result<BytesMut> {
    let header = RequestHeader::default()
        .with_request_api_key(Q::KEY)
        .with_request_api_version(version)
        .with_correlation_id(id)
        .with_client_id(Some("replica".into()));
    let mut frame = BytesMut::from(&[0; 4][..]);
    encode_request_header_into_buffer(&mut frame, &header)?;
    request.encode(&mut frame, version)?;
    let length = u32::try_from(frame.len() - 4)?;
    (&mut frame[..4]).put_u32(length);
    Ok(frame)
}

/// A frame without its length; takes off what is decoded.
pub(crate) fn decoded<T: Decodable + HeaderVersion>(
    frame: &mut Bytes,
    version: i16,
    id: i32,
) -> Result<T> {
    let header = ResponseHeader::decode(frame, T::header_version(version))?;
    ensure!(header.correlation_id == id, "an answer to something else");
    T::decode(frame, version)
}

/// All items, another one first for each turn.
fn turned<T>(items: &[T], turn: usize) -> impl Iterator<Item = &T> {
    items
        .iter()
        .cycle()
        .skip(turn % items.len().max(1))
        .take(items.len())
}

fn key(topic: &TopicName, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: topic.as_str().into(),
        partition,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_topic_is_first_in_turn() {
        let order = |turn| super::turned(&[1, 2, 3], turn).copied().collect::<Vec<_>>();
        assert_eq!(
            [0, 1, 2, 3].map(order),
            [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]
        );
        assert_eq!(super::turned::<i32>(&[], 7).count(), 0);
    }
}
