//! Throws arbitrary bytes at a broker without threads, for libFuzzer, the replay of its corpus, and
//! the tests here.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{OnceLock, mpsc::Receiver};
use std::time::Duration;

use bytes::{Buf, Bytes};
use clap::Parser;
use timer_core::ManualTimer;

use crate::api::{self, Answer, Client};
use crate::partition::{FollowerFetch, Partition, UpTo};
use crate::replica_manager::ReplicaManager;
use crate::{args::Args, fetch::FETCH_BYTES_MAX, frame::read_frame};

const FRAME_MAX: u32 = 64 << 10;
/// The number of connections at a time.
const CONNECTIONS: usize = 4;
/// The first byte of an event, which is not a request: no API has such a key.
const EVENTS: u8 = 0x7f;
const BOUNDS: &str = "broker --max-partitions 16 --max-log 20000";

/// One connection as its thread sees it; nothing reads the responses.
struct Connection {
    client: Client,
    /// The request that waits for its answer, or has it.
    asked: Option<(Bytes, Receiver<Answer>)>,
}

/// Makes a client without a socket.
pub(crate) fn client(connection: u64) -> Client {
    Client {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9092)),
        connection,
    }
}

impl Connection {
    fn new(number: u64) -> Connection {
        Connection {
            client: client(number),
            asked: None,
        }
    }

    /// Handles a request; false when the connection is over, because it was refused or the request
    /// before still waits.
    fn handle(&mut self, manager: &ReplicaManager, frame: Bytes) -> bool {
        if let Some((asked, answer)) = self.asked.take()
            && !is_answered(&asked, &answer)
        {
            return false;
        }
        if let Ok(answer) = api::handle(manager, &self.client, frame.clone()) {
            self.asked = Some((frame, answer));
        }
        self.asked.is_some()
    }

    /// Ends the connection: a request that waited must have its answer then.
    fn hang_up(self, manager: &ReplicaManager) {
        manager.end_connection(self.client.connection, "client disconnected");
        if let Some((frame, answer)) = self.asked {
            assert!(is_answered(&frame, &answer), "no answer: {frame:?}");
        }
    }
}

/// Returns true if a request has an answer, which must be its own.
fn is_answered(frame: &[u8], answer: &Receiver<Answer>) -> bool {
    let Ok(answer) = answer.try_recv() else {
        return false;
    };
    let Some(response) = answer else { return true };
    let response = response().unwrap_or_else(|error| panic!("{error:#}: {frame:?}"));
    let length = u32::try_from(response.len() - 4).unwrap_or(0);
    assert_eq!(response[..4], length.to_be_bytes(), "the length in front");
    assert_eq!(response[4..8], frame[4..8], "another request's answer");
    true
}

/// Fetches once for a follower, over this connection; returns true if that brought news.
pub(crate) fn follow(
    manager: &ReplicaManager,
    connection: u64,
    follower: usize,
    partition: &Partition,
) -> bool {
    let follower = &manager.followers[follower];
    let log = follower.offsets(&partition.key);
    let fetch = FollowerFetch {
        id: follower.id,
        connection,
        log_start: log.start,
        log_end: log.end,
    };
    manager.note_fetch(partition, fetch);
    // If the offset is gone, the leader's log start says where to go on.
    let read = partition
        .read(log.end, UpTo::LogEnd, FETCH_BYTES_MAX, true)
        .unwrap_or_default();
    follower.append(&partition.key, read, partition.offsets().log_start)
}

/// A broker and the connections to it.
pub(crate) struct Session {
    timer: ManualTimer,
    pub(crate) manager: ReplicaManager,
    open: [Connection; CONNECTIONS],
    /// The index of the connection that sends the next request.
    current: usize,
    next_number: u64,
}

/// Handles the frames in `data` with a broker that has a topic `t`. A frame whose API key begins
/// with 0x7f is an event instead of a request. Its second byte chooses: time passes, as many
/// milliseconds as its correlation id; the followers fetch; another connection goes on; this one
/// hangs up.
///
/// # Panics
/// When a request has no answer, or an operation or watch is left when all have hung up.
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
        let open = std::array::from_fn(|number| Connection::new(number as u64));
        Session {
            timer,
            manager,
            open,
            current: 0,
            next_number: CONNECTIONS as u64,
        }
    }

    pub(crate) fn read(&mut self, mut data: &[u8]) {
        while let Ok(Some(frame)) = read_frame(&mut data, FRAME_MAX) {
            if frame[0] == EVENTS {
                self.happen(&frame);
            } else if !self.open[self.current].handle(&self.manager, frame) {
                self.hang_up();
            }
        }
    }

    fn happen(&mut self, event: &[u8]) {
        let mut number = &event[4..8];
        let value = u64::from(number.get_u32());
        match event[1] % 4 {
            0 => self.timer.advance(Duration::from_millis(value)),
            1 => {
                self.follow_all();
                self.manager.shrink_in_sync();
            }
            2 => self.current = value as usize % CONNECTIONS,
            _ => self.hang_up(),
        }
    }

    /// Lets the followers fetch until they have everything and the leader knows.
    pub(crate) fn follow_all(&self) {
        // The followers' connections come after all open ones.
        let (manager, connection) = (&self.manager, self.next_number);
        for topic in manager.topics.all() {
            for partition in &*topic {
                for follower in 0..manager.followers.len() {
                    while follow(manager, connection, follower, partition) {}
                }
            }
        }
    }

    /// Ends the current connection; another one takes its place.
    pub(crate) fn hang_up(&mut self) {
        let next = Connection::new(self.next_number);
        self.next_number += 1;
        std::mem::replace(&mut self.open[self.current], next).hang_up(&self.manager);
    }

    pub(crate) fn end(mut self) {
        for connection in 0..CONNECTIONS {
            self.current = connection;
            self.hang_up();
        }
        // No operation and no watch is left.
        let ReplicaManager {
            produces,
            fetches,
            delete_records,
            ..
        } = &self.manager;
        assert_eq!(
            produces.len() + fetches.len() + delete_records.len(),
            0,
            "still parked"
        );
        assert_eq!(
            produces.watched() + fetches.watched() + delete_records.watched(),
            0
        );
    }
}
