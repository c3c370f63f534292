//! Random runs beside a reference; as long as `TEST_EFFORT` says.

#[path = "../support/effort.rs"]
mod effort;

mod model;
mod oracle;
