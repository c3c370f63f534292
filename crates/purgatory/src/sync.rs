//! Locks, atomics and thread-locals: timer-core's facade, so that loom checks the shipped code; and
//! what else differs under loom.

#[cfg(loom)]
pub use timer_core::sync::plant;
pub(crate) use timer_core::sync::{AtomicU64, Mutex, Ordering, planted, thread_local, thread_slot};

/// Stripes of a watch registry: a power of two. 4096 of 128 bytes (256 for keys of more than 16) keep threads that work on
/// different keys out of each other's way; a model has two, so that keys meet.
pub(crate) const STRIPES: usize = if cfg!(loom) { 2 } else { 4096 };

/// How keys are hashed: seeded anew for each purgatory; alike in each run of a model.
#[cfg(not(loom))]
pub(crate) type KeyHasher = foldhash::fast::RandomState;
#[cfg(loom)]
pub(crate) type KeyHasher = foldhash::fast::FixedState;
