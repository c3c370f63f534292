//! Locks, atomics and thread-locals: timer-core's facade, so that loom and shuttle check the
//! shipped code; and what else differs in their models.

mod limit;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(all(feature = "keyed", not(any(loom, shuttle))))]
mod values;

pub(crate) use limit::Limit;
pub(crate) use timer_core::driver::sync::{
    AtomicU64, Mutex, Ordering, plain, thread_local, thread_slot,
};

#[cfg(all(feature = "keyed", not(any(loom, shuttle))))]
pub(crate) use values::Values;

#[cfg(any(loom, shuttle))]
pub(crate) use model::Values;

/// The number of versions a room has: a power of two. A model has one, so that keys meet.
pub(crate) const VERSIONS_A_ROOM: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// So many payloads an event takes out and checks together. More would save locks; but each of them
/// can neither expire nor be cancelled before the checks of the others are over. A model takes two,
/// so that a walk has steps.
pub(crate) const TOGETHER: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// How many rooms a purgatory has unless its builder says: 64 for each processor, as a power of two
/// from 64 to [`MAX_SHARDS`](timer_core::MAX_SHARDS). A model has two.
pub(crate) fn default_rooms() -> usize {
    if cfg!(any(loom, shuttle)) {
        return 2;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors * 64).next_power_of_two().clamp(64, timer_core::MAX_SHARDS)
}

/// How keys are hashed: seeded anew for each purgatory.
#[cfg(not(any(loom, shuttle)))]
pub(crate) type KeyHasher = rapidhash::fast::RandomState;
/// In a model: alike in each run, with neighbouring numbers in different rooms.
#[cfg(any(loom, shuttle))]
pub(crate) type KeyHasher = std::hash::BuildHasherDefault<model::Number>;
