//! Frames that are no requests, or nearly: from a seed, always the same.
//!
//! `TEST_EFFORT=200 cargo test --release -p broker-example --lib fuzz` throws a million and watches
//! the memory, too. What once was trouble is kept in `corpus.txt`.

use std::{fs, ops::Range};

use bytes::Bytes;
use fastrand::Rng;

use super::{
    Fixture,
    effort::effort,
    examples::{each_version, example},
    framed,
};
use crate::{
    frame::read_frame,
    fuzz::{Connection, FRAME_MAX, follow_all},
};

/// Without `TEST_EFFORT`.
const FRAMES: u64 = 5_000;
/// With so many, and nothing beside them, the memory tells something.
const FRAMES_TO_WATCH: usize = 1_000_000;
/// What the process may grow by once it is warm.
const GROWTH_KIB_MAX: u64 = 32 << 10;

fn bytes_of(random: &mut Rng, count: Range<usize>) -> Vec<u8> {
    (0..random.usize(count)).map(|_| random.u8(..)).collect()
}

/// A request with some of its bytes changed, cut out, doubled, or made a giant length.
fn mutated(random: &mut Rng, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..bytes.len());
        let end = at + random.usize(..bytes.len() - at) + 1;
        match random.usize(..8) {
            0 => bytes.truncate(end),
            1 => drop(bytes.drain(at..end.min(at + 8))),
            2 => bytes = [&bytes[..end], &bytes[at..]].concat(),
            3 => bytes[at..end].iter_mut().take(5).for_each(|byte| *byte = 0xff),
            4 => bytes[at..end].iter_mut().take(4).for_each(|byte| *byte = 0),
            5 => bytes[at] ^= 1 << random.usize(..8),
            6 => bytes[at] = bytes[at].wrapping_add(1),
            _ => bytes[at] = random.u8(..),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

/// Hands the bytes of a connection's frames to the broker, and hangs up.
fn throw(broker: &Fixture, mut wire: &[u8]) {
    let mut connection =
        Connection::new(&broker.manager, broker.client().pipeline.requests.connection);
    while let Ok(Some(frame)) = read_frame(&mut wire, FRAME_MAX, |_| Ok(()))
        && connection.handle(&broker.manager, frame)
    {}
    connection.hang_up(&broker.manager);
}

fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn fuzzed_frames_crash_nothing_hang_nothing_and_leave_nothing_behind() {
    let frames = usize::try_from(effort(FRAMES)).unwrap();
    let bounds = ["--max-partitions", "100", "--max-log", "20000"];
    let broker = Fixture::new(&bounds);
    let examples: Vec<Bytes> = each_version().map(|(key, version)| example(key, version)).collect();
    let mut random = Rng::with_seed(1);
    let mut warm_kib = None;
    for number in 0..frames {
        let request = &examples[random.usize(..examples.len())];
        let bytes = match random.usize(..16) {
            0 => bytes_of(&mut random, 8..108),
            1 => [&request[..10], &bytes_of(&mut random, 60..61)].concat(), // behind a good header
            _ => mutated(&mut random, request),
        };
        let mut wire = framed(&bytes);
        if random.usize(..64) == 0 {
            wire[random.usize(..4)] = random.u8(..);
        }
        throw(&broker, &wire);
        if number % 256 == 0 {
            follow_all(&broker.manager);
            broker.manager.shrink_in_sync();
        }
        if number == frames / 4 {
            warm_kib = resident_kib();
        }
    }
    let manager = &broker.manager;
    let parked = manager.produces.len() + manager.fetches.len() + manager.delete_records.len();
    let watched = manager.produces.keys() + manager.fetches.keys() + manager.delete_records.keys();
    assert_eq!((parked, watched), (0, 0));
    assert!(manager.counters.lock().records > 0, "some were good enough");
    let topics = manager.topics.all();
    assert!(topics.iter().map(|topic| topic.len()).sum::<usize>() <= 100);
    if frames >= FRAMES_TO_WATCH
        && let (Some(warm), Some(now)) = (warm_kib, resident_kib())
    {
        println!("{frames} frames; resident: {warm} KiB after a quarter, {now} KiB at the end");
        assert!(now <= warm + GROWTH_KIB_MAX, "grew from {warm} to {now} KiB");
    }
}

#[test]
fn the_corpus_is_answered_or_refused() {
    let broker = Fixture::new(&[]);
    let lines = include_str!("corpus.txt").lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let digits: Vec<u32> = line.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
        throw(&broker, &bytes);
        throw(&broker, &framed(&bytes));
    }
    broker.append_replicated();
}
