//! Tests of the broker over real sockets, with the real timer: many connections, and clients that
//! misbehave.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{atomic::Ordering::Relaxed, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Buf;
use example_support::Stop;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;

use super::{args, decoded, examples::*, framed, latest, record_batch, request};
use crate::{Broker, replica_fetcher::Follower, run_follower};

struct Client(TcpStream);

impl Client {
    /// Connects, and makes the topic.
    fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect(broker.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(300)))
            .unwrap();
        let mut client = Client(stream);
        client.ask(&metadata(&["t"]));
        client.receive::<MetadataRequest>();
        client
    }

    fn ask<Q: Request>(&mut self, body: &Q) {
        self.send(&framed(&request(latest::<Q>(), body)));
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Receives the answer to a request of type `Q`.
    fn receive<Q: Request>(&mut self) -> Q::Response {
        let mut frame = vec![0; 4];
        self.0.read_exact(&mut frame).unwrap();
        frame.resize(4 + (&frame[..]).get_i32() as usize, 0);
        self.0.read_exact(&mut frame[4..]).unwrap();
        decoded(latest::<Q>(), frame)
    }

    fn send_produce(&mut self, acks: i16, timeout_ms: i32) {
        self.ask(&produce(acks, timeout_ms, &[(0, record_batch(1))]));
    }

    /// Receives the answer to a produce; returns its error code.
    fn produced(&mut self) -> i16 {
        self.receive::<ProduceRequest>().responses[0].partition_responses[0].error_code
    }

    /// Returns true at an end of file, or at the reset that a close with unread bytes causes.
    fn was_closed(mut self) -> bool {
        !matches!(self.0.read(&mut [0]), Ok(1..))
    }
}

/// Starts a broker with these options, and a client of it.
fn start(options: &[&str]) -> (Broker, Client) {
    let args = args(options);
    let broker = Broker::start(&args, args.listen).unwrap();
    let client = Client::connect(&broker);
    (broker, client)
}

fn resume_followers(broker: &Broker) {
    for follower in &*broker.manager.followers {
        follower.paused.store(false, Relaxed);
    }
}

/// Waits for a condition; the deadline is the test runner's.
fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let (broker, mut client) = start(&["--pause-followers"]);
    client.send_produce(-1, 600_000);
    client.ask(&metadata(&["behind"]));
    wait_until(|| !broker.manager.produces.is_empty());
    resume_followers(&broker);
    assert_eq!(client.produced(), 0);
    let response = client.receive::<MetadataRequest>();
    assert_eq!(response.topics[0].name, Some(text("behind").into()));
    broker.shutdown();
}

#[test]
fn followers_of_other_processes_acknowledge() {
    let (broker, mut client) = start(&["--node", "1", "--cluster", "1=127.0.0.1:0,2,3"]);
    let address = broker.address();
    let args = args(&[]);
    // Two followers over sockets, as other processes would be.
    thread::scope(|scope| {
        let stops = [2, 3].map(|node| {
            let (stop, stopped) = mpsc::channel();
            let args = &args;
            scope.spawn(move || run_follower(node, address, args, &stopped).unwrap());
            stop
        });
        client.send_produce(-1, 60_000);
        assert_eq!(client.produced(), 0);
        for stop in stops {
            stop.send(()).unwrap();
        }
    });
    broker.shutdown();
}

/// Forwards a follower's connection to this leader, until the returned socket is shut down.
fn forward(follower: TcpStream, leader: &Broker) -> TcpStream {
    let leader = TcpStream::connect(leader.address()).unwrap();
    for (from, to) in [(&follower, &leader), (&leader, &follower)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            // When one direction ends, however it does, end the other.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    follower
}

/// The leader still counts the follower as an in-sync replica that has the records.
#[test]
fn follower_that_loses_its_connection_keeps_its_logs() {
    let leader = &["--node", "1", "--cluster", "1=127.0.0.1:0,2,3"];
    let (first, mut client) = start(leader);
    let (second, _) = start(leader);
    client.send_produce(1, 0);
    assert_eq!(client.produced(), 0);
    let key = &first.manager.topics.partition("t", 0).unwrap().key;
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = between.local_addr().unwrap();
    // Another leader has another log.
    for (next, expected) in [(&first, 0..1), (&second, 0..0)] {
        let (follower, stop) = (Follower::new(2, false), Stop::new());
        thread::scope(|scope| {
            scope.spawn(|| follower.follow(address, &stop, Duration::ZERO));
            let connection = forward(between.accept().unwrap().0, &first);
            wait_until(|| follower.offsets(key) == (0..1));
            connection.shutdown(Shutdown::Both).unwrap();
            let again = between.accept().unwrap().0;
            assert!(again.peek(&mut [0]).is_ok()); // the follower asks for the cluster's id
            stop.raise();
            forward(again, next);
        });
        assert_eq!(follower.offsets(key), expected);
    }
    first.shutdown();
    second.shutdown();
}

/// The followers are two clients: the system closes the connection of a killed one.
#[test]
fn a_killed_follower_acknowledges_nothing() {
    let (broker, mut client) = start(&["--node", "1", "--cluster", "1=127.0.0.1:0,2,3"]);
    let partition = broker.manager.topics.partition("t", 0).unwrap();
    let follow = |id, client: &mut Client, offset| {
        client.ask(&fetch(id, 1, &[(0, offset)]).with_max_wait_ms(0));
        client.receive::<FetchRequest>();
    };
    let [mut second, mut third] = [(); 2].map(|()| Client::connect(&broker));
    client.send_produce(-1, 600_000);
    wait_until(|| broker.manager.produces.len() == 1);
    // Follower 2 reports that it has the record, and is killed.
    follow(2, &mut second, 0);
    follow(2, &mut second, 1);
    drop(second);
    wait_until(|| partition.in_sync_followers() == [3]);
    // Follower 2 is started again, and fetches nothing yet. Follower 3 has the record.
    let mut again = Client::connect(&broker);
    follow(3, &mut third, 0);
    follow(3, &mut third, 1);
    assert_eq!(client.produced(), 0);
    assert_eq!(partition.in_sync_followers(), [3]);
    follow(2, &mut again, 0);
    assert_eq!(partition.in_sync_followers(), [3]);
    follow(2, &mut again, 1);
    assert_eq!(partition.in_sync_followers(), [2, 3]);
    broker.shutdown();
}

#[test]
fn hundreds_of_connections_have_a_produce_parked_each() {
    const CONNECTIONS: usize = 300;
    let args = args(&["--pause-followers"]);
    let broker = Broker::start(&args, args.listen).unwrap();
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(&broker)).collect();
    for client in &mut clients {
        client.send_produce(-1, 600_000);
    }
    wait_until(|| broker.manager.produces.len() == CONNECTIONS);
    // A third of the clients leaves; the others are answered.
    clients.truncate(CONNECTIONS * 2 / 3);
    wait_until(|| broker.manager.produces.len() == clients.len());
    resume_followers(&broker);
    for client in &mut clients {
        assert_eq!(client.produced(), 0);
    }
    let summary = broker.shutdown();
    let stats = &summary.parked[0].1;
    assert_eq!((stats.completed, stats.cancelled), (200, 100));
    assert_eq!((summary.rejected, summary.acked_before_replicated), (0, 0));
}

#[test]
fn connection_too_many_is_closed() {
    let (broker, first) = start(&["--max-connections", "2"]);
    let mut second = Client::connect(&broker);
    second.send_produce(-1, 60_000);
    assert_eq!(second.produced(), 0, "both followers have their places");
    assert!(Client(TcpStream::connect(broker.address()).unwrap()).was_closed());
    drop(first);
    wait_until(|| {
        let mut next = TcpStream::connect(broker.address()).unwrap();
        next.write_all(&framed(&example(ApiKey::ApiVersions, 0)))
            .unwrap();
        matches!(next.read(&mut [0]), Ok(1))
    });
    broker.shutdown();
}

/// Clients come in as soon as a follower has lost its connection.
#[test]
fn clients_take_no_place_of_a_follower() {
    let (broker, mut client) = start(&["--max-connections", "1"]);
    for _ in 0..5 {
        broker.followers.connections.cut();
        for _ in 0..3 {
            assert!(Client(TcpStream::connect(broker.address()).unwrap()).was_closed());
        }
        // The produce is refused until both followers are back: too few replicas are in sync.
        wait_until(|| {
            client.send_produce(-1, 60_000);
            client.produced() == 0
        });
    }
    broker.shutdown();
}

#[test]
fn client_that_does_not_read_is_not_read_from() {
    let (broker, mut client) = start(&[]);
    client
        .0
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    // Each answer repeats the name, 4 kB: more than sockets buffer.
    let ask = framed(&request(6, &metadata(&[&*"x".repeat(4000)])));
    let mut sent = 0;
    let stopped = loop {
        match client.0.write(&ask[sent % ask.len()..]) {
            Ok(bytes) => sent += bytes,
            Err(error) => break error.kind(),
        }
        assert!(sent < 100_000_000, "everything was read");
    };
    assert!(
        [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&stopped),
        "{stopped}"
    );
    let mut other = Client::connect(&broker);
    other.send_produce(-1, 60_000);
    assert_eq!(other.produced(), 0, "others are served");
    // A request that was sent whole is answered.
    for _ in 0..sent / ask.len() {
        client.receive::<MetadataRequest>();
    }
    broker.shutdown();
}

/// The client's end lies behind five requests, which no thread reads while the first one waits.
#[test]
fn end_of_a_pipelining_client_is_seen_at_once() {
    let (broker, mut client) = start(&["--pause-followers", "--max-connections", "1"]);
    let waits = fetch(-1, 1, &[(0, 0)]).with_max_wait_ms(i32::MAX);
    for _ in 0..6 {
        client.ask(&waits);
    }
    wait_until(|| broker.manager.fetches.len() == 1);
    drop(client);
    // Another client is served, and nothing stays parked.
    wait_until(|| {
        let mut next = TcpStream::connect(broker.address()).unwrap();
        next.write_all(&framed(&example(ApiKey::ApiVersions, 0)))
            .unwrap();
        matches!(next.read(&mut [0]), Ok(1))
    });
    wait_until(|| broker.manager.fetches.is_empty());
    let fetches = &broker.shutdown().parked[1].1;
    assert_eq!(fetches.expired, 0);
    assert!(fetches.cancelled >= 1);
}

/// A parked request is answered before its connection is closed. A follower reports only by its
/// next fetch that it has the records, and pauses before it.
#[test]
fn shutdown_answers_parked_despite_half_frames() {
    assert!(
        args(&[]).follower_interval >= Duration::from_millis(10),
        "or it would not be seen"
    );
    for options in [&["--pause-followers"][..], &["--follower-interval", "5m"]] {
        let (broker, mut client) = start(options);
        client.send_produce(-1, 600_000);
        wait_until(|| !broker.manager.produces.is_empty());
        // Silent connections, some inside a frame.
        let begun = [&[][..], &[0, 0], &[0, 0, 1, 0, 0, 3]]
            .into_iter()
            .cycle()
            .take(20);
        let silent = begun.map(|bytes| {
            let mut stream = TcpStream::connect(broker.address()).unwrap();
            stream.write_all(bytes).unwrap();
            stream
        });
        let _silent: Vec<_> = silent.collect();
        // The answer comes before the end of the connection.
        assert_eq!(broker.shutdown().parked[0].1.cancelled, 1, "{options:?}");
        assert_eq!(client.produced(), 6, "{options:?}");
        assert!(client.was_closed(), "{options:?}");
    }
}
