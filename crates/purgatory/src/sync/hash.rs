//! The hash of a key: [`KeyHasher`], which a model replaces by one that it knows.

/// Hashes keys, with a new seed for each purgatory.
#[cfg(not(loom))]
pub(crate) type KeyHasher = rapidhash::fast::RandomState;
/// Hashes keys in a model: alike in each run.
#[cfg(loom)]
pub(crate) type KeyHasher = std::hash::BuildHasherDefault<Number>;

/// A hasher that puts neighbouring numbers into different shards.
#[cfg(loom)]
#[derive(Debug, Default)]
pub(crate) struct Number(u64);

#[cfg(loom)]
impl std::hash::Hasher for Number {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    /// Counts as one byte, so that request numbers differ as others do.
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0 << 8 | number;
    }

    fn finish(&self) -> u64 {
        // The shard is told by the upper half, the place in a table by the lower one.
        self.0 << 32 | self.0 & u64::from(u32::MAX)
    }
}
