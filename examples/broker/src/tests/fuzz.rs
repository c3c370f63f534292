//! Malformed and nearly correct requests, always the same for a seed; `MODEL_SEED` sets the seed.
//!
//! `TEST_EFFORT=200 cargo test --release -p broker-example --lib fuzz` throws a million. Frames
//! that once caused trouble are kept in `fuzz/corpus/broker`.

use std::ops::Range;

use bytes::Bytes;
use fastrand::Rng;

use super::{
    effort::{effort, number},
    examples::*,
    framed,
};
use crate::fuzz::Session;

/// The number of frames without `TEST_EFFORT`.
const FRAMES: u64 = 5_000;

fn bytes_of(random: &mut Rng, count: Range<usize>) -> Vec<u8> {
    (0..random.usize(count)).map(|_| random.u8(..)).collect()
}

/// Returns a request with some of its bytes changed, cut out, doubled, or made a giant length.
fn mutated(random: &mut Rng, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..bytes.len());
        let end = at + random.usize(..bytes.len() - at) + 1;
        // There are eight ways to break a request.
        match random.usize(..8) {
            0 => bytes.truncate(end),
            1 => drop(bytes.drain(at..end.min(at + 8))),
            2 => bytes = [&bytes[..end], &bytes[at..]].concat(),
            3 => bytes[at..end.min(at + 5)].fill(0xff),
            4 => bytes[at..end.min(at + 4)].fill(0),
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

#[test]
fn fuzzed_frames_crash_nothing_and_leave_nothing() {
    let frames = usize::try_from(effort(FRAMES)).unwrap();
    // Begin with correct requests, one of each API and version.
    let mut session = Session::new();
    let examples: Vec<Bytes> = each_version()
        .map(|(key, version)| example(key, version))
        .collect();
    let seed = number("MODEL_SEED").unwrap_or(1);
    println!("MODEL_SEED={seed}"); // shown when the test fails
    let mut random = Rng::with_seed(seed);
    for number in 0..frames {
        let request = &examples[random.usize(..examples.len())];
        // Most frames are nearly correct: these reach the deepest code.
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
        // Now and then the followers fetch, so that logs move on.
        if number % 256 == 0 {
            session.follow_all();
            session.manager.shrink_in_sync();
        }
    }
    assert!(
        session.manager.counters.lock().records > 0,
        "some were good enough"
    );
    session.end();
}
