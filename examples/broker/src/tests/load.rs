//! Many connections, and clients that do not play along, over real sockets.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use kafka_protocol::messages::{ApiKey, MetadataRequest, metadata_request::MetadataRequestTopic};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    args, framed, request,
    tcp::{Client, wait_until},
    topic_name,
};
use crate::{Broker, topics::TopicConfig};

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
    broker.manager.signal.pause_followers(false);
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
    let broker = Broker::start(&args(&["--max-connections", "2"])).unwrap();
    let (first, mut second) = (Client::connect(&broker), Client::connect(&broker));
    second.send_produce(-1, 60_000);
    assert_eq!(second.produced(), 0, "both followers have their places");
    let third = Client(TcpStream::connect(broker.address()).unwrap());
    assert!(third.was_closed());
    second.send_produce(1, 0);
    assert_eq!(second.produced(), 0);
    drop(first);
    wait_until(|| {
        let mut next = TcpStream::connect(broker.address()).unwrap();
        next.write_all(&framed(&[0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff])).unwrap();
        matches!(next.read(&mut [0]), Ok(1))
    });
    assert!(broker.shutdown().refused >= 1);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let broker = Broker::start(&args(&["--max-partitions", "32000", "--partitions", "1"])).unwrap();
    let large = TopicConfig { partitions: 1000, ..broker.manager.topics.defaults };
    broker.manager.topics.create("large", large, false).unwrap();
    let mut client = Client::connect(&broker);
    client.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Each answer has some 40 kB, all together 400 MB; each request 4 kB, more than sockets buffer.
    let ask = |number| {
        let names = ["large".to_owned(), format!("seen-{number:05}"), "x".repeat(4000)];
        let topic =
            |name: &String| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let body = MetadataRequest::default().with_topics(Some(names.iter().map(topic).collect()));
        framed(&request(ApiKey::Metadata, 4, &body))
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
    (0..sent / ask(0).len()).for_each(|_| drop(client.receive()));
    broker.shutdown();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures a shutdown")]
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
    let start = Instant::now();
    assert_eq!(broker.shutdown().parked[0].1.cancelled, 1);
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(10), "the shutdown took {elapsed:?}");
    assert_eq!(client.produced(), 6);
}
