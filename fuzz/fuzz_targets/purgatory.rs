//! `cargo +nightly fuzz run purgatory -s none --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::purgatory::run(data));
