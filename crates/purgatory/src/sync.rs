//! Locks, atomics and thread-locals: timer-core's facade, so that loom and shuttle check the shipped
//! code; and what else differs in their models.

#[cfg(any(loom, shuttle))]
pub use timer_core::sync::plant;
pub(crate) use timer_core::sync::{AtomicU64, Mutex, Ordering, planted, thread_local, thread_slot};

/// Stripes of a watch registry: a power of two. 4096 of 128 bytes (256 for keys of more than 16) keep
/// threads that work on different keys out of each other's way; a model has two, so that keys meet.
pub(crate) const STRIPES: usize = if cfg!(any(loom, shuttle)) { 2 } else { 4096 };

/// How keys are hashed: seeded anew for each purgatory.
#[cfg(not(any(loom, shuttle)))]
pub(crate) type KeyHasher = foldhash::fast::RandomState;
/// In a model: alike in each run, with neighbouring numbers in different stripes.
#[cfg(any(loom, shuttle))]
pub(crate) type KeyHasher = std::hash::BuildHasherDefault<model::Number>;

#[cfg(any(loom, shuttle))]
mod model {
    #[derive(Debug, Default)]
    pub(crate) struct Number(u64);

    impl std::hash::Hasher for Number {
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
        }

        fn finish(&self) -> u64 {
            self.0 << 32 | self.0 & u64::from(u32::MAX)
        }
    }
}
