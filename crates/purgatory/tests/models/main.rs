//! Random steps, as many as `TEST_EFFORT` says, compared with a reference or checked by invariants.

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
