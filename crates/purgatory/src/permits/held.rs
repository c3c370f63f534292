//! The permits that a guard holds, in one word.
//!
//! A guard is its table and this word, so it moves in registers. A larger guard would move through
//! memory, in other parts than it was written in, and each move would wait until the written parts
//! have left the store buffer.
//!
//! - **Heavy**: with keys, a weight that has no room in the word lies in the shard, from the grant
//!   to the return. Few programs have such weights.

use timer_core::{
    MAX_SHARDS,
    driver::{PageSlot, Pages},
};

/// The bits of a line's number, and of the number of a heavy weight.
const NUMBER_BITS: u32 = 28;

/// The bits below the weight: that number, and the shard's.
const PLACE_BITS: u32 = NUMBER_BITS + MAX_SHARDS.trailing_zeros();

/// The least weight that is heavy. In a word it stands for any heavy weight.
const HEAVY: u64 = u64::MAX >> PLACE_BITS;

/// Permits of a line that are held. With one key, the word is their weight; with several keys, it
/// also has their shard and line, or the number of their heavy weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held(u64);

/// Permits of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighed {
    pub(super) line: u32,
    pub(super) weight: u64,
}

/// The heavy weights of one shard.
#[derive(Debug, Default)]
pub(super) struct HeavyWeights {
    /// Made with the first heavy weight.
    weights: Option<Box<Pages<Weighed, 16>>>,
}

const LIES_HERE: &str = "Heavy: a weight that is named is there";

impl PageSlot for Weighed {
    const MAX: u32 = 1 << NUMBER_BITS;

    fn vacant() -> Self {
        Weighed { line: 0, weight: 0 }
    }
}

/// Returns true if the type of the keys has one value, `()`.
pub(super) const fn is_one_key<K>() -> bool {
    size_of::<K>() == 0
}

impl Held {
    pub(super) const NOTHING: Held = Held(0);

    /// Returns true if it holds no permit.
    pub(super) fn is_nothing<K>(self) -> bool {
        self.light_weight::<K>() == 0
    }

    /// Returns the number of the permits' shard; numbers beyond the last wrap around.
    pub(super) fn shard<K>(self) -> usize {
        if is_one_key::<K>() {
            return 0;
        }
        (self.0 >> NUMBER_BITS) as usize
    }

    /// Returns the weight, or [`HEAVY`].
    fn light_weight<K>(self) -> u64 {
        if is_one_key::<K>() {
            return self.0;
        }
        self.0 >> PLACE_BITS
    }

    /// Returns the weight; `None` if it lies in the shard.
    pub(super) fn weight<K>(self) -> Option<u64> {
        let weight = self.light_weight::<K>();
        if !is_one_key::<K>() && weight == HEAVY {
            return None;
        }
        Some(weight)
    }

    /// Returns the number of the line, or of the heavy weight.
    fn number<K>(self) -> u32 {
        if is_one_key::<K>() {
            return 0;
        }
        self.0 as u32 % (1 << NUMBER_BITS)
    }
}

impl HeavyWeights {
    /// Records permits of a line of this shard as held.
    pub(super) fn hold<K>(&mut self, shard: usize, line: u32, weight: u64) -> Held {
        if is_one_key::<K>() {
            return Held(weight);
        }
        if weight < HEAVY {
            return held(shard, line, weight);
        }
        self.hold_heavy(shard, Weighed { line, weight })
    }

    #[cold]
    fn hold_heavy(&mut self, shard: usize, weighed: Weighed) -> Held {
        let heavy = self.weights.get_or_insert_default();
        let (number, slot) = heavy.claim_slot().expect("fewer weights than slots");
        *slot = weighed;
        held(shard, number, HEAVY)
    }

    /// Returns the line and weight of permits that are held.
    pub(super) fn weighed<K>(&self, held: Held) -> Weighed {
        let number = held.number::<K>();
        match held.weight::<K>() {
            Some(weight) => Weighed {
                line: number,
                weight,
            },
            None => *self.weights.as_ref().expect(LIES_HERE).at(number),
        }
    }

    /// Returns the line and weight of permits that are held no longer.
    pub(super) fn let_go<K>(&mut self, held: Held) -> Weighed {
        let weighed = self.weighed::<K>(held);
        if held.weight::<K>().is_none() {
            let heavy = self.weights.as_mut().expect(LIES_HERE);
            heavy.release(held.number::<K>());
        }
        weighed
    }
}

/// Makes the word of permits.
fn held(shard: usize, number: u32, weight: u64) -> Held {
    Held(weight << PLACE_BITS | (shard as u64) << NUMBER_BITS | u64::from(number))
}
