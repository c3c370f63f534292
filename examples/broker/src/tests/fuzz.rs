//! Frames that are no requests, or nearly: from a seed, always the same.
//!
//! `TEST_EFFORT=200 cargo test --release -p broker-example --lib fuzz` throws a million and watches
//! the memory, too. What once was trouble is kept in `corpus.txt`.

use std::{fs, ops::Range};

use bytes::Bytes;
use fastrand::Rng;
use kafka_protocol::messages::ApiKey;

use super::{effort::effort, examples::*, framed};
use crate::fuzz::{Session, follow_all};

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

fn resident_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn fuzzed_frames_crash_nothing_hang_nothing_and_leave_nothing_behind() {
    let frames = usize::try_from(effort(FRAMES)).unwrap();
    let mut session = Session::new();
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
        session.read(&wire);
        session.hang_up();
        if number % 256 == 0 {
            follow_all(&session.manager);
            session.manager.shrink_in_sync();
        }
        if number == frames / 4 {
            warm_kib = resident_kib();
        }
    }
    assert!(session.manager.counters.lock().records > 0, "some were good enough");
    let partitions_max = usize::from(session.manager.args.max_partitions);
    let topics = session.manager.topics.all();
    assert!(topics.iter().map(|topic| topic.len()).sum::<usize>() <= partitions_max);
    session.end();
    if frames >= FRAMES_TO_WATCH
        && let (Some(warm), Some(now)) = (warm_kib, resident_kib())
    {
        println!("{frames} frames; resident: {warm} KiB after a quarter, {now} KiB at the end");
        assert!(now <= warm + GROWTH_KIB_MAX, "grew from {warm} to {now} KiB");
    }
}

#[test]
fn the_corpus_is_answered_or_refused() {
    let mut session = Session::new();
    for line in include_str!("corpus.txt").lines().filter(|line| !line.starts_with('#')) {
        let digits: Vec<u32> = line.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
        for wire in [&bytes, &framed(&bytes)] {
            session.read(wire);
            session.hang_up();
        }
    }
    let records = session.manager.counters.lock().records;
    session.read(&framed(&example(ApiKey::Produce, 8)));
    assert_eq!(session.manager.counters.lock().records, records + 3, "still served");
    session.end();
}
