//! Bytes from strangers, and a broker without threads to throw them at: what libFuzzer, the replay
//! of its corpus and the tests here share.

use std::net::{Ipv4Addr, SocketAddr};
use std::{sync::OnceLock, time::Duration};

use bytes::{Buf, Bytes};
use clap::Parser;
use kafka_protocol::messages::ApiKey;
use timer_core::ManualTimer;

use crate::api::{self, Client};
use crate::partition::{Partition, UpTo};
use crate::pipeline::{Answer, PLACES_MAX, Pipeline};
use crate::replica_manager::ReplicaManager;
use crate::{args::Args, fetch::FETCH_BYTES_MAX, frame::read_frame};

const FRAME_MAX: u32 = 64 << 10;
/// Connections at a time.
const CONNECTIONS: usize = 4;
/// No API has such a key: what happens beside the requests.
const EVENTS: u8 = 0x7f;
/// Longer than anything waits: a timeout is an `i32` of milliseconds.
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);
const BOUNDS: &str =
    "broker --max-partitions 16 --max-log 20000 --max-groups 4 --max-group-members 4";

/// One connection as its reader sees it, with nobody who writes the answers.
struct Connection {
    client: Client,
    /// Requests that were accepted and wait for their answers, or have them.
    accepted: Vec<Bytes>,
    /// One that was not: its connection is to be closed.
    refused: bool,
}

/// A client without a socket.
pub(crate) fn client(manager: &ReplicaManager, number: u64) -> Client {
    let pipeline = Pipeline::new(number, &manager.memory);
    Client { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9092)), pipeline }
}

impl Connection {
    fn new(manager: &ReplicaManager, number: u64) -> Connection {
        Connection { client: client(manager, number), accepted: Vec::new(), refused: false }
    }

    /// Handles a request; false when the connection is over, because it was refused or more would
    /// have to wait for a place.
    fn handle(&mut self, manager: &ReplicaManager, frame: Bytes) -> bool {
        let share = self.client.pipeline.requests.share();
        match api::handle(manager, &self.client, frame.clone(), share) {
            Ok(()) => self.accepted.push(frame),
            Err(_) => self.refused = true,
        }
        !self.refused && self.accepted.len() < PLACES_MAX
    }

    /// The client is gone: each request has exactly one answer, and a refused one none. But a
    /// member is not gone with its connection: a request that waits for its group is given up.
    fn hang_up(self, manager: &ReplicaManager) {
        let pipeline = &self.client.pipeline;
        manager.cancel_for_connection(pipeline.requests.connection, "client disconnected");
        pipeline.finish();
        for frame in &self.accepted {
            let response = match pipeline.next().map(|(answer, _)| answer) {
                Some(Answer::Response(response)) => response(&mut pipeline.responses.share()),
                Some(Answer::Nothing) => continue,
                Some(Answer::Lost) if waits_for_its_group(frame) => continue,
                Some(Answer::Lost) | None => panic!("no answer: {frame:?}"),
            };
            let response = response.unwrap_or_else(|error| panic!("{error:#}: {frame:?}"));
            let length = u32::try_from(response.len() - 4).unwrap_or(0);
            assert_eq!(response[..4], length.to_be_bytes(), "the length in front");
            assert_eq!(response[4..8], frame[4..8], "another request's answer");
        }
        match pipeline.next() {
            None => {}
            Some((Answer::Lost, _)) if self.refused => assert!(pipeline.next().is_none()),
            Some(_) => panic!("an answer too many: {:?}", self.accepted),
        }
    }
}

/// A JoinGroup, a SyncGroup.
fn waits_for_its_group(mut frame: &[u8]) -> bool {
    [ApiKey::JoinGroup as i16, ApiKey::SyncGroup as i16].contains(&frame.get_i16())
}

/// One fetch by a follower; returns whether that brought news.
pub(crate) fn follow(manager: &ReplicaManager, follower: usize, partition: &Partition) -> bool {
    let follower = &manager.followers[follower];
    let (start, end) = follower.log_range(&partition.key);
    manager.note_fetch(partition, follower.id, start, end);
    // An offset that is gone: the leader's log start says where to go on.
    let read = partition.read(end, UpTo::LogEnd, FETCH_BYTES_MAX, true).unwrap_or_default();
    follower.append(&partition.key, read, partition.offsets().log_start)
}

/// The followers fetch until they have everything and the leader knows.
pub(crate) fn follow_all(manager: &ReplicaManager) {
    for topic in manager.topics.all() {
        for partition in &*topic {
            for follower in 0..manager.followers.len() {
                while follow(manager, follower, partition) {}
            }
        }
    }
}

/// A broker of its own and the connections to it.
pub(crate) struct Session {
    timer: ManualTimer,
    pub(crate) manager: ReplicaManager,
    open: [Connection; CONNECTIONS],
    /// The one whose requests come.
    current: usize,
    next_number: u64,
}

/// Does what the frames say, to a broker with a topic `t`. A frame whose API key begins with 0x7f
/// is no request: by its second byte time passes, by as many milliseconds as its correlation id
/// says; the followers fetch; another connection goes on; this one hangs up.
///
/// # Panics
/// When a request has no answer or two, or something stays behind when all have hung up and time
/// has passed.
pub fn run(data: &[u8]) {
    let mut session = Session::new();
    session.read(data);
    session.end();
}

impl Session {
    pub(crate) fn new() -> Session {
        static ARGS: OnceLock<Args> = OnceLock::new();
        let args = ARGS.get_or_init(|| Args::parse_from(BOUNDS.split(' ')));
        let timer = ManualTimer::new();
        let manager = ReplicaManager::new(args, &timer).expect("its timer is open");
        manager.topics.get_or_create("t").expect("the first topic");
        let open = std::array::from_fn(|number| Connection::new(&manager, number as u64));
        Session { timer, manager, open, current: 0, next_number: CONNECTIONS as u64 }
    }

    pub(crate) fn read(&mut self, mut data: &[u8]) {
        while let Ok(Some(frame)) = read_frame(&mut data, FRAME_MAX, |_| Ok(())) {
            if frame[0] == EVENTS {
                self.happen(&frame);
            } else if !self.open[self.current].handle(&self.manager, frame) {
                self.hang_up();
            }
        }
    }

    fn happen(&mut self, event: &[u8]) {
        let value = event[4..8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        match event[1] % 4 {
            0 => self.timer.advance(Duration::from_millis(value)),
            1 => {
                follow_all(&self.manager);
                self.manager.shrink_in_sync();
            }
            2 => self.current = value as usize % CONNECTIONS,
            _ => self.hang_up(),
        }
    }

    /// The current connection ends, and another one takes its place.
    pub(crate) fn hang_up(&mut self) {
        let next = Connection::new(&self.manager, self.next_number);
        self.next_number += 1;
        std::mem::replace(&mut self.open[self.current], next).hang_up(&self.manager);
    }

    pub(crate) fn end(mut self) {
        for connection in 0..CONNECTIONS {
            self.current = connection;
            self.hang_up();
        }
        let ReplicaManager { produces, fetches, delete_records, groups, .. } = &self.manager;
        assert_eq!(produces.len() + fetches.len() + delete_records.len(), 0, "still parked");
        assert_eq!(produces.watched() + fetches.watched() + delete_records.watched(), 0);
        let parked = || groups.rebalances.len() + groups.syncs.len() + groups.sessions.len();
        for _ in 0..3 {
            self.timer.advance(LONG);
        }
        assert_eq!(parked(), 0, "members without a session");
    }
}
