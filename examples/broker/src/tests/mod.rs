//! What the tests share: arguments, record batches, requests.

mod produce;
mod tcp;
mod wire;

use bytes::{BufMut, Bytes, BytesMut};
use clap::Parser;
use kafka_protocol::{
    messages::{
        ApiKey, ProduceRequest, RequestHeader, TopicName,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Encodable, StrBytes, encode_request_header_into_buffer},
};

use crate::args::Args;

pub(crate) const CORRELATION_ID: i32 = 77;

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
