//! `cargo +nightly fuzz run broker -s none --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::broker::run(data));
