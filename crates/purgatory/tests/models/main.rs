//! Random runs beside a reference, or with every invariant checked; as long as `TEST_EFFORT` says.

#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;

mod model;
mod oracle;
