//! Runs the bodies of the fuzz targets without a fuzzer: on each file of the committed corpora, and
//! on random bytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    panic::{UnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
    test_runner::{Config, TestError, TestRunner},
};

type Body = fn(&[u8]);

/// Reads a corpus, inputs that libFuzzer kept and inputs that once failed, with their paths.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let paths = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    files
}

fn replay(target: &str, body: Body) {
    // Run all of them, so that every failing one is named.
    let mut failed = Vec::new();
    for (path, data) in corpus(target) {
        if !passes(|| body(&data)) {
            failed.push(path);
        }
    }
    assert!(failed.is_empty(), "the panics above are of {failed:?}");
}

fn passes(run: impl FnOnce() + UnwindSafe) -> bool {
    catch_unwind(run).is_ok()
}

/// Runs random cases, 256 or as many as `PROPTEST_CASES` says. The bytes of a failing case are
/// shrunk and printed, with the command that adds them to a corpus.
fn at_random(body: Body, bytes: impl Strategy<Value = Vec<u8>>) {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&bytes, |bytes| {
        body(&bytes);
        Ok(())
    });
    if let Err(TestError::Fail(reason, bytes)) = result {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{reason}\nprintf {hex} | xxd -r -p > fuzz/corpus/TARGET/NAME");
    }
}

/// Generates records; shrinking removes them one by one.
fn records(bytes: usize, count: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(vec(any::<u8>(), bytes), 0..count).prop_map(|records| records.concat())
}

/// Generates frames of the corpus in any order, with a few bytes changed, and events between them.
/// (Random bytes would not be requests.)
fn frames() -> impl Strategy<Value = Vec<u8>> {
    // A known frame, with up to two bytes changed.
    let known: Vec<Vec<u8>> = corpus("broker")
        .iter()
        .flat_map(|(_, file)| cut(file))
        .collect();
    let changed = (select(known), vec((any::<Index>(), any::<u8>()), 0..3));
    let request = changed.prop_map(|(mut frame, changes)| {
        for (at, byte) in changes {
            *at.get_mut(&mut frame) = byte;
        }
        frame
    });

    // An event between frames: time passes, a follower fetches, a client hangs up.
    let event = (0u8..4, any::<u32>(), 0u32..32).prop_map(|(event, value, by)| {
        [&[0x7f, event, 0, 0][..], &(value >> by).to_be_bytes()].concat()
    });

    // All of them, each after its length.
    vec(prop_oneof![3 => request, 1 => event], 0..40).prop_map(|frames| {
        let framed = |frame: &Vec<u8>| [&(frame.len() as u32).to_be_bytes()[..], frame].concat();
        frames.iter().flat_map(framed).collect()
    })
}

/// Cuts the bytes of a connection into whole frames, without their lengths.
fn cut(mut wire: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = wire.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((frame, rest)) = rest.split_at_checked(length) else {
            break;
        };
        if !frame.is_empty() {
            frames.push(frame.to_vec());
        }
        wire = rest;
    }
    frames
}

#[test]
fn wheel_passes_its_corpus() {
    replay("wheel", fuzz::wheel::run);
}

#[test]
fn purgatory_passes_its_corpus() {
    replay("purgatory", fuzz::purgatory::run);
}

#[test]
fn broker_passes_its_corpus() {
    replay("broker", fuzz::broker::run);
}

#[test]
fn wheel_passes_random_bytes() {
    at_random(fuzz::wheel::run, records(fuzz::wheel::RECORD, 200));
}

#[test]
fn purgatory_passes_random_bytes() {
    at_random(fuzz::purgatory::run, records(fuzz::purgatory::RECORD, 100));
}

#[test]
fn broker_passes_random_frames() {
    at_random(fuzz::broker::run, frames());
}
