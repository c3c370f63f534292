//! No files of a bench import each other in a circle.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../crates/purgatory/tests/house/imports.rs"]
mod imports;

use std::path::Path;

#[test]
fn no_files_of_a_bench_import_each_other_in_a_circle() {
    let bins = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    for bench in ["peers", "purgatory_perf", "schemes", "soak"] {
        let circle = imports::in_circles(&imports::of_crate(&bins.join(bench)));
        assert!(circle.is_empty(), "{bench}: {circle:?}");
    }
}
