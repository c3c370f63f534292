//! The bodies of the fuzz targets. Bytes are decoded into operations. Each operation is applied to
//! the code under test and to a plain reference, and after each the two must agree. A difference is
//! a panic, for libFuzzer (`fuzz_targets`), the committed corpus and proptest (`tests/replay.rs`)
//! alike.
//!
//! Decoding bounds the work, so that no input takes a long time or much memory.

use arbitrary::{Arbitrary, Unstructured};

pub mod broker;
pub mod purgatory;
pub mod wheel;

/// Decodes operations, each from `bytes` bytes of its own. Removing or changing an operation leaves
/// the others as they are, which suits mutation and shrinking. Missing bytes are zeros.
fn records<'a, T: Arbitrary<'a>>(data: &'a [u8], bytes: usize) -> impl Iterator<Item = T> {
    data.chunks(bytes)
        .filter_map(|record| Unstructured::new(record).arbitrary().ok())
}
