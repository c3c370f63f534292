//! `cargo +nightly fuzz run wheel -s none --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::wheel::run(data));
