//! Helpers of the tests: a broker without threads, arguments, record batches, requests.

#[path = "../../../../crates/timer-core/tests/support/effort.rs"]
mod effort;
pub(crate) mod examples;
mod fetches;
mod fuzz;
mod produce;
mod tcp;
mod wire;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc::Receiver, mpsc::TryRecvError};

use anyhow::Result;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use clap::Parser;
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request};
use timer_core::ManualTimer;

use crate::api::{self, Answer};
use crate::{args::Args, partition::Partition, schemas::APIS};
use crate::{replica_fetcher, replica_manager::ReplicaManager};
use examples::produce;

pub(crate) const CORRELATION_ID: i32 = 77;

/// A broker without threads: its timer is a manual one, and followers fetch when the test says. It
/// has a topic `t`.
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
        Fixture {
            timer,
            manager,
            connections: AtomicU64::new(0),
        }
    }

    /// Sends a request over a connection of its own, at the last version.
    pub(crate) fn ask<Q: Request>(&self, body: &Q) -> Asked<Q::Response> {
        self.ask_at(latest::<Q>(), body).unwrap()
    }

    pub(crate) fn ask_at<Q: Request>(&self, version: i16, body: &Q) -> Result<Asked<Q::Response>> {
        let connection = self.connections.fetch_add(1, Relaxed);
        let client = crate::fuzz::client(connection);
        let answer = api::handle(&self.manager, &client, request(version, body))?;
        Ok(Asked {
            connection,
            version,
            answer,
            response: PhantomData,
        })
    }

    /// Sends a request that is answered at once, if at all.
    pub(crate) fn answer(&self, frame: impl Into<Bytes>) -> Result<Option<BytesMut>> {
        let client = crate::fuzz::client(self.connections.fetch_add(1, Relaxed));
        let answer = api::handle(&self.manager, &client, frame.into())?;
        Ok(next_frame(&answer))
    }

    pub(crate) fn partition(&self, index: i32) -> Arc<Partition> {
        self.manager.topics.partition("t", index).unwrap()
    }

    /// Lets a follower fetch a partition until it has everything and the leader knows.
    pub(crate) fn replicate(&self, follower: usize, partition: i32) {
        while self.follow(follower, &self.partition(partition)) {}
    }

    /// Lets a follower fetch once; returns true if that brought news.
    pub(crate) fn follow(&self, follower: usize, partition: &Partition) -> bool {
        // The follower's connection comes after those of the requests.
        let connection = self.connections.load(Relaxed);
        crate::fuzz::follow(&self.manager, connection, follower, partition)
    }

    /// Produces one record to partition 0 with acks=1; returns the error code.
    pub(crate) fn append(&self) -> i16 {
        let asked = self.ask(&produce(1, 0, &[(0, record_batch(1))]));
        let response = asked.answer().unwrap();
        response.responses[0].partition_responses[0].error_code
    }

    /// Appends a record, which both followers then fetch.
    pub(crate) fn append_replicated(&self) {
        assert_eq!(self.append(), 0);
        self.replicate_to_all(0);
    }

    pub(crate) fn replicate_to_all(&self, partition: i32) {
        for follower in 0..2 {
            self.replicate(follower, partition);
        }
    }
}

/// A request that was sent over `connection`.
pub(crate) struct Asked<T> {
    pub(crate) connection: u64,
    version: i16,
    answer: Receiver<Answer>,
    response: PhantomData<T>,
}

impl<T: Decodable + HeaderVersion> Asked<T> {
    /// Returns the response, once it is there.
    pub(crate) fn answer(&self) -> Option<T> {
        Some(decoded(self.version, next_frame(&self.answer)?))
    }
}

/// Returns the last version of a request.
pub(crate) fn latest<Q: Request>() -> i16 {
    let api = APIS.iter().find(|api| api.key as i16 == Q::KEY);
    *api.expect("it is served").advertised.end()
}

fn next_frame(answer: &Receiver<Answer>) -> Option<BytesMut> {
    match answer.try_recv() {
        Ok(response) => response.map(|response| response().unwrap()),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => panic!("an answer is lost"),
    }
}

pub(crate) fn decoded<T: Decodable + HeaderVersion>(version: i16, frame: impl Into<Bytes>) -> T {
    let mut frame = frame.into();
    assert_eq!(frame.get_i32() as usize, frame.len(), "the length in front");
    let response = replica_fetcher::decoded(&mut frame, version, CORRELATION_ID).unwrap();
    assert!(frame.is_empty(), "{} bytes follow", frame.len());
    response
}

pub(crate) fn args(extra: &[&str]) -> Args {
    let mut args = Args::parse_from([&["broker"], extra].concat());
    args.listen.set_port(0);
    args
}

/// Makes 98 bytes that claim this many records; the broker does not look into them.
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

/// Encodes a request without the length in front.
pub(crate) fn request<Q: Request>(version: i16, body: &Q) -> Bytes {
    replica_fetcher::encoded(body, version, CORRELATION_ID)
        .unwrap()
        .split_off(4)
        .freeze()
}

/// Puts the length in front of a request.
pub(crate) fn framed(request: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(request.len() as i32);
    frame.extend_from_slice(request);
    frame
}
