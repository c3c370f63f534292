//! The folders of this crate are layers: no file imports from a folder above its own, and no files
//! import each other in a circle. `docs/ARCHITECTURE.md` has the order.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../timer-core/tests/house/layers/imports.rs"]
mod imports;

use std::path::Path;

#[test]
fn no_file_imports_upwards_or_in_a_circle() {
    imports::check("purgatory", &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
}
