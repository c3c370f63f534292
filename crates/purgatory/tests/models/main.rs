//! Random runs beside a reference, or with every invariant checked; as long as `TEST_EFFORT` says.

#[path = "../../../../fuzz/src/purgatory/bytes.rs"]
mod bytes;
#[path = "../../../timer-core/tests/support/effort.rs"]
mod effort;

mod acting;
mod model;
mod oracle;
mod permits;
mod replica_sets;
mod replication;
mod replies;
mod watermarks;
