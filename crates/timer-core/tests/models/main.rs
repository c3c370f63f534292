//! Random runs beside a reference; `TEST_EFFORT` sets their length.

#[path = "../support/effort.rs"]
mod effort;

#[cfg(feature = "tokio")]
#[path = "../support/stepped.rs"]
mod on_stepped_clock;

#[cfg(feature = "tokio")]
#[path = "../support/mod.rs"]
mod support;

mod model;
mod oracle;
#[cfg(feature = "tokio")]
mod stepped_queue;
