//! What the tests share: a broker without threads, arguments, record batches, requests.

mod create_topics;
mod delete_records;
#[path = "../../../../crates/timer-core/tests/support/effort.rs"]
mod effort;
pub(crate) mod examples;
mod fetches;
mod fuzz;
mod load;
mod produce;
pub(crate) mod tcp;
mod wire;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use clap::Parser;
use kafka_protocol::{
    messages::{
        ApiKey, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, TopicName,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Decodable, Encodable, HeaderVersion, StrBytes, encode_request_header_into_buffer},
};
use timer_core::ManualTimer;

use crate::{
    api::{self, Client},
    args::Args,
    partition::Partition,
    pipeline::Answer,
    replica_manager::ReplicaManager,
};

pub(crate) const CORRELATION_ID: i32 = 77;

/// A broker without threads: its clock is turned by hand, the followers fetch when the test says.
/// It has a topic `t`.
pub(crate) struct Fixture {
    pub(crate) timer: ManualTimer,
    pub(crate) manager: ReplicaManager,
    connections: AtomicU64,
}

impl Fixture {
    pub(crate) fn new(extra: &[&str]) -> Fixture {
        let timer = ManualTimer::new();
        let manager = ReplicaManager::new(&args(extra), &timer).unwrap();
        manager.topics.get_or_create("t").unwrap();
        Fixture { timer, manager, connections: AtomicU64::new(0) }
    }

    pub(crate) fn client(&self) -> Client {
        crate::fuzz::client(&self.manager, self.connections.fetch_add(1, Relaxed))
    }

    /// One request over a connection of its own.
    pub(crate) fn ask(&self, key: ApiKey, version: i16, body: &impl Encodable) -> Client {
        let client = self.client();
        handle(&self.manager, &client, request(key, version, body)).unwrap();
        client
    }

    /// One request that is answered at once, if at all.
    pub(crate) fn answer(&self, frame: impl Into<Bytes>) -> anyhow::Result<Option<BytesMut>> {
        let client = self.client();
        handle(&self.manager, &client, frame.into())?;
        Ok(next_frame(&client))
    }

    pub(crate) fn partition(&self, index: i32) -> Arc<Partition> {
        self.manager.topics.partition("t", index).unwrap()
    }

    /// A follower fetches a partition until it has everything and the leader knows.
    pub(crate) fn replicate(&self, follower: usize, partition: i32) {
        while self.follow(follower, &self.partition(partition)) {}
    }

    /// One fetch by a follower; returns whether that brought news.
    pub(crate) fn follow(&self, follower: usize, partition: &Partition) -> bool {
        crate::fuzz::follow(&self.manager, follower, partition)
    }

    /// The error code of an acks=1 produce of one record to partition 0.
    pub(crate) fn append(&self) -> i16 {
        let client = self.ask(ApiKey::Produce, 8, &produce(1, 0, &[(0, record_batch(1))]));
        let response: ProduceResponse = answered(&client, 8).unwrap();
        response.responses[0].partition_responses[0].error_code
    }

    /// An append that both followers have.
    pub(crate) fn append_replicated(&self) {
        assert_eq!(self.append(), 0);
        (0..2).for_each(|follower| self.replicate(follower, 0));
    }
}

/// A request that was read.
pub(crate) fn handle(
    manager: &ReplicaManager,
    client: &Client,
    frame: Bytes,
) -> anyhow::Result<()> {
    let mut share = client.pipeline.requests.share();
    share.take(frame.len())?;
    api::handle(manager, client, frame, share)
}

/// The next response to a client, once it is there.
pub(crate) fn answered<T: Decodable + HeaderVersion>(client: &Client, version: i16) -> Option<T> {
    Some(decoded(version, next_frame(client)?))
}

fn next_frame(client: &Client) -> Option<BytesMut> {
    match client.pipeline.is_ready().then(|| client.pipeline.next())??.0 {
        Answer::Response(response) => {
            Some(response(&mut client.pipeline.responses.share()).unwrap())
        }
        Answer::Nothing => None,
        Answer::Lost => panic!("an answer is lost"),
    }
}

pub(crate) fn decoded<T: Decodable + HeaderVersion>(version: i16, frame: BytesMut) -> T {
    let mut frame = frame.freeze();
    assert_eq!(frame.get_i32() as usize, frame.len(), "the length in front");
    let header = ResponseHeader::decode(&mut frame, T::header_version(version)).unwrap();
    assert_eq!(header.correlation_id, CORRELATION_ID);
    let response = T::decode(&mut frame, version).unwrap();
    assert!(frame.is_empty(), "{} bytes follow", frame.len());
    response
}

pub(crate) fn args(extra: &[&str]) -> Args {
    let mut args = Args::parse_from([&["broker"], extra].concat());
    args.listen.set_port(0);
    args
}

/// 98 bytes that claim so many records: the broker does not look into them.
pub(crate) fn record_batch(records: i32) -> Bytes {
    let mut batch = vec![0; 61];
    batch.extend_from_slice(b"records as the client compressed them");
    batch[11] = 98 - 12;
    batch[16] = 2;
    batch[43..57].fill(0xff); // no idempotent producer
    batch[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    batch[57..61].copy_from_slice(&records.to_be_bytes());
    with_crc(batch).into()
}

pub(crate) fn with_crc(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// A produce to topic `t`: (partition, records).
pub(crate) fn produce(acks: i16, timeout_ms: i32, data: &[(i32, Bytes)]) -> ProduceRequest {
    let partition = |(index, records): &(i32, Bytes)| {
        PartitionProduceData::default().with_index(*index).with_records(Some(records.clone()))
    };
    let partitions = data.iter().map(partition).collect();
    let topic = TopicProduceData::default().with_name(topic_name("t"));
    let request = ProduceRequest::default().with_acks(acks).with_timeout_ms(timeout_ms);
    request.with_topic_data(vec![topic.with_partition_data(partitions)])
}

/// A request without the length in front.
pub(crate) fn request(key: ApiKey, version: i16, body: &impl Encodable) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_correlation_id(CORRELATION_ID);
    let mut frame = BytesMut::new();
    encode_request_header_into_buffer(&mut frame, &header).unwrap();
    body.encode(&mut frame, version).unwrap();
    frame.freeze()
}

/// With the length in front.
pub(crate) fn framed(request: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(request.len() as i32);
    frame.extend_from_slice(request);
    frame
}
