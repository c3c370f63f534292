//! The hash of a key: [`KeyHasher`], which a model replaces by a predictable one.

#[cfg(not(loom))]
use std::hash::BuildHasher;

/// Returns a number below `count`, a power of two, that depends on all bits of a hash. With some
/// seeds the hashes of neighbouring numbers, such as partitions, are alike in many of their bits:
/// such keys would share a few shards.
pub(crate) fn mixed(hash: u64, count: usize) -> usize {
    // A model's hasher names the shard itself.
    if cfg!(loom) {
        return (hash >> 32) as usize;
    }
    // 2^64 over the golden ratio. The upper bits of the product depend on all lower ones.
    let bits = count.trailing_zeros();
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - bits)) as usize
}

/// Hashes keys.
#[cfg(not(loom))]
pub(crate) type KeyHasher = rapidhash::fast::SeedableState<'static>;
/// Hashes keys in a model, the same in each run.
#[cfg(loom)]
pub(crate) type KeyHasher = std::hash::BuildHasherDefault<Number>;

/// Makes the hasher of a form. Its own seed makes hashes impossible to guess. In a simulation
/// hashes are the same in each run, so that even orders repeat.
#[cfg(not(loom))]
pub(crate) fn key_hasher(is_simulated: bool) -> KeyHasher {
    if is_simulated {
        return KeyHasher::fixed();
    }
    let seed = rapidhash::fast::RandomState::new().hash_one(0_u64);
    KeyHasher::new(seed)
}

#[cfg(loom)]
pub(crate) fn key_hasher(_is_simulated: bool) -> KeyHasher {
    KeyHasher::default()
}

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

    /// Takes the number as one byte, so that request numbers differ as other keys do.
    fn write_u64(&mut self, number: u64) {
        self.0 = self.0 << 8 | number;
    }

    fn finish(&self) -> u64 {
        // The upper half names the shard, the lower half the place in a table.
        self.0 << 32 | self.0 & u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use crate::Purgatory;

    /// So a client cannot choose keys that share a shard.
    #[test]
    fn each_form_has_a_seed_of_its_own() {
        let hash = || Purgatory::<u32>::new("test").map(|form| form.handle.table.hash(&1_u32));
        assert_ne!(hash().unwrap(), hash().unwrap());
    }
}
