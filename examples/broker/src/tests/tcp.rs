//! The broker over real sockets, with the real timer: also many connections, and clients that do
//! not play along.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use example_support::Stop;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Request, decode_request_header_from_buffer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use timer_core::Clock;

use super::{Fixture, args, decoded, examples::*, framed, latest, record_batch, request};
use crate::connection::{Connections, FRAME_MAX, IDLE_MAX, serve};
use crate::topics::TopicConfig;
use crate::{Args, Broker, frame::read_frame, run_follower};
use crate::{Summary, replica_fetcher::Follower};

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    /// Connects, and makes the topic.
    pub(crate) fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect(broker.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let mut client = Client(stream);
        client.ask(&metadata(&["t"]));
        client.receive::<MetadataRequest>();
        client
    }

    pub(crate) fn ask<Q: Request>(&mut self, body: &Q) {
        self.send(&framed(&request(latest::<Q>(), body)));
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The answer to such a request.
    pub(crate) fn receive<Q: Request>(&mut self) -> Q::Response {
        let mut frame = vec![0; 4];
        self.0.read_exact(&mut frame).unwrap();
        frame.resize(4 + (&frame[..]).get_i32() as usize, 0);
        self.0.read_exact(&mut frame[4..]).unwrap();
        decoded(latest::<Q>(), frame)
    }

    pub(crate) fn send_produce(&mut self, acks: i16, timeout_ms: i32) {
        self.ask(&produce(acks, timeout_ms, &[(0, record_batch(1))]));
    }

    /// The error code of the produce sent before.
    pub(crate) fn produced(&mut self) -> i16 {
        self.receive::<ProduceRequest>().responses[0].partition_responses[0].error_code
    }

    /// An end of file, or a reset where unread bytes were thrown away.
    pub(crate) fn was_closed(mut self) -> bool {
        !matches!(self.0.read(&mut [0]), Ok(1..))
    }
}

/// A broker with these options, and a client of it.
pub(crate) fn start(options: &[&str]) -> (Broker, Client) {
    let broker = Broker::start(&args(options)).unwrap();
    let client = Client::connect(&broker);
    (broker, client)
}

/// The same, when the client has a produce parked.
pub(crate) fn start_with_parked(options: &[&str]) -> (Broker, Client) {
    let (broker, mut client) = start(options);
    client.send_produce(-1, 600_000);
    wait_until(|| !broker.manager.produces.is_empty());
    (broker, client)
}

pub(crate) fn resume_followers(broker: &Broker) {
    broker.manager.followers.iter().for_each(|follower| follower.paused.store(false, Relaxed));
}

/// The deadline is the test runner's.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn answers_come_in_the_order_of_the_requests_though_a_parked_one_holds_up_no_other() {
    let (broker, mut client) = start_with_parked(&["--pause-followers"]);
    client.send_produce(-1, 60_000);
    client.ask(&metadata(&["behind"]));
    wait_until(|| broker.manager.topics.get("behind").is_some());
    assert_eq!(broker.manager.produces.len(), 2, "the request behind them ran");
    resume_followers(&broker);
    assert_eq!((client.produced(), client.produced()), (0, 0));
    let response = client.receive::<MetadataRequest>();
    assert_eq!(response.topics[0].name, Some(text("behind").into()));
    broker.shutdown();
}

/// Serves one connection of a broker without threads, to which the client does this.
fn served(broker: &Fixture, client: impl FnOnce(Client)) {
    let connections = Connections::new(&broker.manager.args);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, peer) = listener.accept().unwrap();
    let connection = connections.register(accepted, peer).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| serve(&connection, &broker.manager));
        client(Client(stream));
    });
}

/// Waits until the next thing that the timer does is due after `time`.
fn wait_until_due(broker: &Fixture, now_ns: u64, time: Duration) {
    let due = now_ns + time.as_nanos() as u64;
    wait_until(|| broker.manager.timer.next_deadline_ns() == Some(due));
}

/// The clock is turned by hand. A connection is cut when it was silent for its time, and not
/// before: then a request is still answered. A byte now and then is silence, too.
#[test]
fn a_connection_is_closed_when_a_request_does_not_come_in_time() {
    const MILLISECOND: Duration = Duration::from_millis(1);
    let broker = Fixture::new(&[]);
    let request = framed(&example(ApiKey::ApiVersions, latest::<ApiVersionsRequest>()));
    let begun = &request[..7];
    for (first, time) in [(&b""[..], IDLE_MAX), (&begun[..1], FRAME_MAX), (begun, FRAME_MAX)] {
        for early in [MILLISECOND, Duration::ZERO] {
            served(&broker, |mut client| {
                client.send(&request);
                client.receive::<ApiVersionsRequest>();
                let now_ns = broker.timer.clock().now_ns();
                // The answer is written: its time is the same as a frame's.
                wait_until_due(&broker, now_ns, IDLE_MAX);
                client.send(first);
                wait_until_due(&broker, now_ns, time);
                broker.timer.advance(time - early);
                if early.is_zero() {
                    assert!(client.was_closed(), "{first:?} and silence");
                } else {
                    client.send(&request[first.len()..]);
                    client.receive::<ApiVersionsRequest>();
                }
            });
        }
    }
}

/// One that waits for memory is cut when the time of its frame is over, though nobody gives any
/// back.
#[test]
fn a_connection_that_waits_for_memory_is_cut_at_its_time() {
    let broker = Fixture::new(&["--queued-max-request-bytes", "100000"]);
    let memory = &broker.manager.memory[0];
    let [mut all, mut beyond] = [77, 78].map(|connection| memory.account(connection).share());
    all.take(100_000).unwrap();
    beyond.take(50_000).unwrap();
    assert!(memory.is_exceeded());
    served(&broker, |mut client| {
        client.send(&framed(&[0; 60_000])[..50_000]);
        wait_until_due(&broker, broker.timer.clock().now_ns(), FRAME_MAX);
        wait_until(|| memory.is_waited_for());
        broker.timer.advance(FRAME_MAX);
        assert!(client.was_closed());
    });
    assert_eq!(broker.manager.counters.lock().rejected, 0, "not the client's fault");
    drop((all, beyond));
    assert_eq!(memory.taken(), 0);
}

/// Sent whole, as a client does: it looks for the answer afterwards.
#[test]
fn a_produce_above_the_frame_bound_is_answered_and_the_connection_goes_on() {
    let (broker, mut client) = start(&[]);
    let records = Bytes::from(vec![7; broker.manager.args.max_frame as usize]);
    let body = produce(-1, 60_000, &[(0, records)]);
    for _ in 0..2 {
        client.ask(&body);
        assert_eq!(client.produced(), 10, "MESSAGE_TOO_LARGE");
    }
    client.send_produce(1, 0);
    assert_eq!(client.produced(), 0);
    let summary = broker.shutdown();
    assert_eq!((summary.rejected, summary.records), (0, 1));
}

#[test]
fn what_is_malformed_closes_its_own_connection_and_nothing_else() {
    let (broker, mut bystander) = start(&[]);
    let giant_array = [&[0, 3, 0, 4, 0, 0, 0, 1, 0xff, 0xff][..], &i32::MAX.to_be_bytes()].concat();
    let attacks = [
        i32::MAX.to_be_bytes().to_vec(),
        (-1_i32).to_be_bytes().to_vec(),
        framed(&[0, 3]),
        framed(b"GET / HTTP/1.1\r\n"),
        framed(&giant_array),
    ];
    for (index, attack) in attacks.iter().enumerate() {
        let mut attacker = Client::connect(&broker);
        attacker.send(attack);
        assert!(attacker.was_closed(), "attack {index}");
        bystander.send_produce(-1, 10_000);
        assert_eq!(bystander.produced(), 0, "after attack {index}");
    }
    let summary = broker.shutdown();
    assert_eq!((summary.rejected, summary.records), (5, 5));
    assert_eq!(summary.parked[0].1.completed + summary.parked[0].1.ended_at_once, 5);
    assert_eq!(summary.acked_before_replicated, 0);
}

#[test]
fn followers_beside_the_leaders_process_can_be_paused_too() {
    for (extra, error_code) in [(&[][..], 0), (&["--pause-followers"], 7)] {
        let leader = ["--node", "1", "--cluster", "1=127.0.0.1:0,2,3"];
        let (broker, mut client) = start(&leader);
        let (address, args) = (broker.address(), args(extra));
        thread::scope(|scope| {
            let stops = [2, 3].map(|node| {
                let (stop, stopped) = mpsc::channel();
                let args = &args;
                scope.spawn(move || run_follower(node, address, args, &stopped).unwrap());
                stop
            });
            client.send_produce(-1, if error_code == 0 { 60_000 } else { 300 });
            assert_eq!(client.produced(), error_code, "{extra:?}");
            stops.iter().for_each(|stop| stop.send(()).unwrap());
        });
        broker.shutdown();
    }
}

#[test]
fn an_address_in_use_is_named() {
    let broker = Broker::start(&args(&[])).unwrap();
    let second = Args { listen: broker.address(), ..args(&[]) };
    let error = Broker::start(&second).err().unwrap().to_string();
    assert_eq!(error, format!("cannot listen on {}", broker.address()));
    broker.shutdown();
}

/// Or one with a backlog would starve those behind it. The test answers for the leader.
#[test]
fn a_follower_asks_for_another_topic_first_each_time() {
    let broker = Fixture::new(&["--partitions", "1"]);
    broker.manager.topics.get_or_create("other").unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (leader, stop) = (listener.local_addr().unwrap(), Stop::new());
    let mut first = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| Follower::new(2, false).follow(leader, &stop, Duration::ZERO));
        let (mut stream, _) = listener.accept().unwrap();
        while first.len() < 4 {
            let frame = read_frame(&mut stream, 1 << 20, |_| Ok(())).unwrap().unwrap();
            let mut body = frame.clone();
            let header = decode_request_header_from_buffer(&mut body).unwrap();
            if header.request_api_key == ApiKey::Fetch as i16 {
                let request = FetchRequest::decode(&mut body, header.request_api_version).unwrap();
                first.push(request.topics[0].topic.to_string());
                broker.append(); // each fetch brings something
            }
            stream.write_all(&broker.answer(frame).unwrap().unwrap()).unwrap();
        }
        stop.raise();
    });
    assert!(first[0] != first[1] && first[..2] == first[2..], "{first:?}");
}

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

/// What is parked is answered before its connection is closed. A follower says by its next fetch
/// that it has the records, and takes its time until then.
#[test]
fn a_shutdown_answers_who_waits_and_half_a_frame_and_silence_do_not_hold_it_up() {
    assert!(args(&[]).follower_interval >= Duration::from_millis(10), "or it would not be seen");
    for options in [&["--pause-followers"][..], &["--follower-interval", "1day"]] {
        let (broker, mut client) = start_with_parked(options);
        let begun = [&[][..], &[0, 0], &[0, 0, 1, 0, 0, 3]].into_iter().cycle().take(20);
        let silent = begun.map(|bytes| {
            let mut stream = TcpStream::connect(broker.address()).unwrap();
            stream.write_all(bytes).unwrap();
            stream
        });
        let _silent: Vec<_> = silent.collect();
        let mut other = Client::connect(&broker);
        other.send_produce(1, 0);
        assert_eq!(other.produced(), 0);
        assert_eq!(shut_down_in_time(broker).parked[0].1.cancelled, 1, "{options:?}");
        assert_eq!(client.produced(), 6, "{options:?}");
        assert!(client.was_closed(), "{options:?}");
    }
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
