//! The bodies of the fuzz targets: bytes become operations, each is done to the real thing and to a
//! plain reference beside it, and after each the two must agree. Whoever feeds one, libFuzzer
//! (`fuzz_targets`), the committed corpus or proptest (`tests/replay.rs`), gets a panic for what is
//! wrong and nothing for the rest.
//!
//! What bytes can ask for is bounded here, so that none of them takes long or much memory.

use arbitrary::{Arbitrary, Unstructured};

pub mod broker;
pub mod purgatory;
pub mod wheel;

/// Each operation is in so many bytes of its own: one that is cut out or changed leaves the others
/// as they are, for a fuzzer that mutates and for proptest, which shrinks. Missing bytes are zeros.
fn records<'a, T: Arbitrary<'a>>(data: &'a [u8], bytes: usize) -> impl Iterator<Item = T> {
    data.chunks(bytes)
        .filter_map(|record| Unstructured::new(record).arbitrary().ok())
}
