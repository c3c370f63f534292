//! `cargo +nightly fuzz run wheel -s none --features libfuzzer`
#![cfg_attr(fuzzing, no_main)]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::wheel::run(data));

/// Without cargo-fuzz, as with `--all-features`, libFuzzer does not provide the program.
#[cfg(not(fuzzing))]
fn main() {}
