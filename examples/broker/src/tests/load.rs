//! Many connections, and clients that do not play along, over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::{ApiKey, MetadataRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::tcp::{Client, resume_followers, start, wait_until};
use super::{args, examples::*, framed, request};
use crate::{Broker, Summary, connection::Connections, topics::TopicConfig};

const CONNECTIONS: usize = 2000;

/// As many connections as the limit on file descriptors allows: each has one at both ends, and
/// other tests run beside this.
fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let allowed = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
    let connections = CONNECTIONS.min(allowed.saturating_sub(500) / 2);
    if connections < CONNECTIONS {
        println!("ONLY {connections} CONNECTIONS: the limit on open files is {allowed}");
    }
    connections
}

#[test]
fn two_thousand_connections_have_a_produce_parked_each() {
    let count = connections();
    let broker = Broker::start(&args(&["--pause-followers"])).unwrap();
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(&broker)).collect();
    clients.iter_mut().for_each(|client| client.send_produce(-1, 600_000));
    wait_until(|| broker.manager.produces.len() == count);
    // Half of them go; the others are answered.
    clients.truncate(count / 2);
    wait_until(|| broker.manager.produces.len() == count / 2);
    resume_followers(&broker);
    for client in &mut clients {
        assert_eq!(client.produced(), 0);
    }
    let summary = broker.shutdown();
    assert_eq!(summary.parked[0].1.completed, (count / 2) as u64);
    assert_eq!(summary.parked[0].1.cancelled, (count - count / 2) as u64);
    assert_eq!((summary.rejected, summary.acked_before_replicated), (0, 0));
}

#[test]
fn one_connection_too_many_is_closed_and_a_place_comes_free() {
    let (broker, first) = start(&["--max-connections", "2"]);
    let mut second = Client::connect(&broker);
    second.send_produce(-1, 60_000);
    assert_eq!(second.produced(), 0, "both followers have their places");
    let third = Client(TcpStream::connect(broker.address()).unwrap());
    assert!(third.was_closed());
    second.send_produce(1, 0);
    assert_eq!(second.produced(), 0);
    drop(first);
    wait_until(|| {
        let mut next = TcpStream::connect(broker.address()).unwrap();
        next.write_all(&framed(&example(ApiKey::ApiVersions, 0))).unwrap();
        matches!(next.read(&mut [0]), Ok(1))
    });
    assert!(broker.shutdown().refused >= 1);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let (broker, mut client) = start(&["--max-partitions", "32000", "--partitions", "1"]);
    let large = TopicConfig { partitions: 1000, ..broker.manager.topics.defaults };
    broker.manager.topics.create("large", large, false).unwrap();
    client.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Each answer has some 40 kB, all together 400 MB; each request 4 kB, more than sockets buffer.
    let ask = |number| {
        let names = ["large", &format!("seen-{number:05}"), &"x".repeat(4000)];
        framed(&request(6, &metadata(&names)))
    };
    let requests: Vec<u8> = (0..10_000).flat_map(ask).collect();
    let mut sent = 0;
    let stopped = loop {
        match client.0.write(&requests[sent..]) {
            Ok(bytes) => sent += bytes,
            Err(error) => break error.kind(),
        }
        assert!(sent < requests.len(), "everything was read");
    };
    assert!([ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&stopped), "{stopped}");
    let handled = broker.manager.topics.all().len();
    assert!(handled < 2000, "{handled} requests were handled, nobody reads the answers");

    let mut other = Client::connect(&broker);
    other.send_produce(-1, 60_000);
    assert_eq!(other.produced(), 0, "others are served");
    // What was sent whole is answered.
    (0..sent / ask(0).len()).for_each(|_| drop(client.receive::<MetadataRequest>()));
    broker.shutdown();
}

#[expect(clippy::disallowed_methods, reason = "measures a shutdown")]
fn shut_down_in_time(broker: Broker) -> Summary {
    let start = Instant::now();
    let summary = broker.shutdown();
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(10), "the shutdown took {elapsed:?}");
    summary
}

#[test]
fn half_a_frame_and_silence_hold_up_neither_others_nor_the_shutdown() {
    let broker = Broker::start(&args(&["--pause-followers"])).unwrap();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(broker.address()).unwrap()).collect();
    for (stream, bytes) in silent.iter().zip([&[][..], &[0, 0], &[0, 0, 1, 0, 0, 3]].iter().cycle())
    {
        (&*stream).write_all(bytes).unwrap();
    }
    let mut client = Client::connect(&broker);
    client.send_produce(-1, 600_000);
    wait_until(|| broker.manager.produces.len() == 1);
    assert_eq!(shut_down_in_time(broker).parked[0].1.cancelled, 1);
    assert_eq!(client.produced(), 6);
}

/// A budget for requests that is smaller than what the clients send, and clients that have sent
/// half a frame each, until no memory is left and one share is beyond the budget.
fn half_frames(frame: &[u8]) -> (Broker, Vec<Client>) {
    let budget = ["--queued-max-request-bytes", "4194304"];
    let broker = Broker::start(&args(&budget)).unwrap();
    let clients: Vec<_> = (0..150)
        .map(|_| {
            let mut client = Client(TcpStream::connect(broker.address()).unwrap());
            client.send(&frame[..frame.len() / 2]); // the sockets buffer it
            client
        })
        .collect();
    let memory = &broker.manager.memory[0];
    wait_until(|| memory.is_exceeded());
    assert!((4_000_000..=4_194_304).contains(&memory.taken()), "{}", memory.taken());
    (broker, clients)
}

/// A produce of 200 kB that is answered with CORRUPT_MESSAGE, and its share is more than it has of
/// its own.
fn large_frame() -> Vec<u8> {
    let body = produce(1, 0, &[(0, vec![0; 200_000].into())]);
    framed(&request(8, &body))
}

#[test]
fn half_frames_take_no_more_than_the_budget_and_each_request_has_its_turn() {
    let frame = large_frame();
    let (broker, mut clients) = half_frames(&frame);
    let mut small = Client::connect(&broker);
    small.send_produce(-1, 60_000);
    assert_eq!(small.produced(), 0, "what is small is served meanwhile");
    clients.iter_mut().for_each(|client| client.send(&frame[frame.len() / 2..]));
    clients.iter_mut().for_each(|client| assert_eq!(client.produced(), 2));
    wait_until(|| broker.manager.memory[0].taken() == 0);
    assert_eq!(broker.shutdown().records, 1);
}

#[test]
fn connections_that_wait_for_memory_do_not_hold_up_the_shutdown() {
    let (broker, clients) = half_frames(&large_frame());
    let memory = Arc::clone(&broker.manager.memory[0]);
    shut_down_in_time(broker);
    assert!(clients.into_iter().all(Client::was_closed));
    wait_until(|| memory.taken() == 0);
}

#[test]
fn a_client_above_its_share_of_connections_is_refused_and_others_are_served() {
    let options = ["--max-connections-per-ip", "2", "--max-connections", "4"];
    let cluster = ["--node", "1", "--cluster", "1=127.0.0.1:0,2,3"]; // no followers beside
    let connections = Connections::new(&args(&[&options[..], &cluster].concat()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connect = |ip: [u8; 4]| {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        connections.register(stream, (ip, 1).into())
    };
    let (greedy, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut held: Vec<_> = [greedy, greedy, other].map(|ip| connect(ip).unwrap()).into();
    assert!(connect(greedy).is_none());
    held.push(connect(other).unwrap());
    assert!(connect([10, 0, 0, 3]).is_none(), "too many in all");
    held.remove(0);
    assert!(connect(greedy).is_some());
}
