//! The arithmetic of the wheel: the level and the slot of a deadline, and nothing else.
//!
//! Level `k` has buckets of `size^k` ticks. Time on a level is counted in its buckets: the *unit*
//! of a time `t` is `t / size^k`. A deadline belongs to the lowest level whose ring reaches it,
//! `unit(deadline) - unit(now) < ring`, at slot `unit(deadline) mod ring`. Both are taken from
//! absolute times (never from the delay alone), so a slot holds one unit at a time.
//!
//! A ring has `size` slots. A *double* ring has twice as many and overlaps the level above, so that
//! a coarse bucket can be handed down before it expires: its *lead* is a quarter of its ticks.
//! Tasks that fall due meanwhile go first.
//!
//! A *phase* shifts where units begin, so that the shards of a timer do not all hand down their
//! coarse buckets at the same tick.

use std::{error::Error, fmt};

use crate::wheel::step;

/// A value that is out of bounds: a [tick](crate::TickLength) or a [`WheelSize`].
///
/// ```
/// use timer_core::WheelSize;
///
/// let error = WheelSize::new(1).unwrap_err();
/// assert_eq!((error.value, error.min, error.max), (1, 2, 32768));
/// assert_eq!(error.to_string(), "1 is not between 2 and 32768");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfBounds<T> {
    /// The value.
    pub value: T,
    /// The least legal value.
    pub min: T,
    /// The greatest legal value.
    pub max: T,
}

impl<T: PartialOrd + Copy> OutOfBounds<T> {
    /// Returns an error, unless `min <= value <= max`.
    pub(crate) fn check(value: T, min: T, max: T) -> Result<(), OutOfBounds<T>> {
        if value < min || value > max {
            return Err(OutOfBounds { value, min, max });
        }
        Ok(())
    }
}

impl<T: fmt::Debug> fmt::Display for OutOfBounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfBounds { value, min, max } = self;
        write!(f, "{value:?} is not between {min:?} and {max:?}")
    }
}

impl<T: fmt::Debug> Error for OutOfBounds<T> {}

/// The number of slots of each level of a wheel; the levels of a timer's wheels have twice as many.
///
/// ```
/// use timer_core::WheelSize;
///
/// assert_eq!(WheelSize::default().slots(), 64);
/// assert_eq!(WheelSize::KAFKA.slots(), 20);
/// assert!(WheelSize::new(1).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WheelSize {
    slots: u16,
}

impl WheelSize {
    /// Kafka's 20 slots a level: with a tick of 1 ms the levels span 20 ms, 400 ms, 8 s, 160 s, …
    pub const KAFKA: WheelSize = WheelSize { slots: 20 };
    /// The least number of slots: two.
    pub const MIN: usize = 2;
    /// The largest number of slots: 2^15.
    pub const MAX: usize = 1 << 15;

    /// Makes a wheel of `slots` slots a level.
    ///
    /// # Errors
    /// [`OutOfBounds`] outside [`MIN`](Self::MIN)`..=`[`MAX`](Self::MAX).
    pub fn new(slots: usize) -> Result<WheelSize, OutOfBounds<usize>> {
        OutOfBounds::check(slots, Self::MIN, Self::MAX)?;
        Ok(WheelSize {
            slots: slots as u16,
        })
    }

    /// Returns the number of slots.
    pub fn slots(self) -> usize {
        usize::from(self.slots)
    }

    /// Returns the phase of one of `count` wheels: a fraction of a bucket of levels 1 to 3 each.
    pub(crate) fn phase(self, number: usize, count: usize) -> u64 {
        // Shift by the same fraction of a bucket of each level: `number` of `count` parts. No
        // product is too large: a bucket of level 3 has at most 2^45 ticks, and there are at most
        // 256 wheels.
        let slots = u64::from(self.slots);
        let part = |level| slots.pow(level) * number as u64 / count as u64;
        part(1) + part(2) + part(3)
    }
}

impl Default for WheelSize {
    /// Returns 64 slots: one machine word of occupancy and a kilobyte a level. Cheaper than 20
    /// everywhere; 256 hand over faster, start and stop alike, and take four times the memory for
    /// their buckets.
    fn default() -> Self {
        WheelSize { slots: 64 }
    }
}

/// A bucket, and the tick at which it expires: the first at which a task in it can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueBucket {
    pub(super) level: usize,
    pub(super) slot: usize,
    pub(super) expiration: u64,
}

impl DueBucket {
    /// Returns the deadline in the bucket that has this lower half. The bucket's level is
    /// [narrow](Geometry::is_narrow), so there is only one.
    #[inline]
    pub(crate) fn deadline(self, low: u32) -> u64 {
        self.expiration + u64::from(low.wrapping_sub(self.expiration as u32))
    }
}

/// The sizes of a wheel's levels, and the arithmetic of their units.
#[derive(Debug)]
pub(super) struct Geometry {
    size: u32,
    /// The slots of a level: `size`, or twice that.
    ring: u32,
    phase: u64,
    scale: Scale,
}

/// The way to divide a time by `size^level`.
#[derive(Debug)]
enum Scale {
    /// The size is a power of two: shift by this many bits a level.
    Bits(u32),
    /// The ticks in one slot of each level, for every level that u64 ticks can need.
    Ticks(Box<[u64]>),
}

impl Geometry {
    /// Makes a geometry whose rings have `size` slots once or twice (`rings`), shifted by a phase.
    pub(super) fn new(size: WheelSize, rings: u32, phase: u64) -> Self {
        let slots = size.slots() as u64;
        // Most sizes are powers of two, for which a shift divides.
        let scale = if slots.is_power_of_two() {
            Scale::Bits(slots.trailing_zeros())
        } else {
            let ticks = std::iter::successors(Some(1u64), |ticks| ticks.checked_mul(slots));
            Scale::Ticks(ticks.collect())
        };
        let size = u32::from(size.slots);
        Geometry {
            size,
            ring: rings * size,
            phase,
            scale,
        }
    }

    /// Returns the slots of a level.
    pub(super) fn ring(&self) -> usize {
        self.ring as usize
    }

    /// Returns how many ticks before its expiry a bucket may be handed down.
    #[inline(always)] // as `bucket`
    pub(super) fn lead(&self, level: usize) -> u64 {
        if self.ring > self.size {
            self.bucket_ticks(level) / 4
        } else {
            0
        }
    }

    /// Returns the last tick that has a place. A timer's wheels have ticks beyond it, whatever
    /// their phase: `u64::MAX` is the deadline of tasks that are never due.
    pub(super) fn last_tick(&self) -> u64 {
        let is_double = self.ring > self.size; // as those of a timer
        let beyond = if is_double {
            self.phase.max(1)
        } else {
            self.phase
        };
        u64::MAX - beyond
    }

    /// Returns the ticks of a bucket of `level`.
    #[inline(always)] // as `bucket`
    pub(super) fn bucket_ticks(&self, level: usize) -> u64 {
        match &self.scale {
            Scale::Bits(bits) => 1 << (bits * level as u32),
            Scale::Ticks(ticks) => ticks[level],
        }
    }

    /// Returns a present up to which no lower level reaches `bucket`, which is above level 0.
    /// `None` if there may be no such present.
    pub(super) fn now_max(&self, bucket: DueBucket) -> Option<u64> {
        let reach = u64::from(self.ring) * self.bucket_ticks(bucket.level - 1);
        bucket.expiration.checked_sub(reach)
    }

    /// Returns true when no two deadlines of one bucket have the same lower half.
    pub(super) fn is_narrow(&self, level: usize) -> bool {
        self.bucket_ticks(level) <= 1 << 32
    }

    /// Converts `time`, at most `last_tick`, to units of `level`.
    #[inline(always)] // as `bucket`
    fn unit(&self, level: usize, time: u64) -> u64 {
        let shifted = time.saturating_add(self.phase);
        match &self.scale {
            Scale::Bits(bits) => shifted >> (bits * level as u32),
            Scale::Ticks(ticks) => shifted / ticks[level],
        }
    }

    /// Returns the unit of the level above that a unit is in.
    fn coarser(&self, unit: u64) -> u64 {
        match &self.scale {
            Scale::Bits(bits) => unit >> bits,
            Scale::Ticks(_) => unit / u64::from(self.size),
        }
    }

    /// Returns the first tick of a unit.
    fn start(&self, level: usize, unit: u64) -> u64 {
        (unit * self.bucket_ticks(level)).saturating_sub(self.phase)
    }

    /// Returns the slot of a unit: `unit` modulo the ring.
    fn slot(&self, unit: u64) -> usize {
        match self.scale {
            Scale::Bits(_) => unit as usize & (self.ring() - 1),
            Scale::Ticks(_) => (unit % u64::from(self.ring)) as usize,
        }
    }

    /// Returns the slot of `now` on `level`.
    #[inline]
    pub(super) fn slot_now(&self, level: usize, now: u64) -> usize {
        self.slot(self.unit(level, now))
    }

    /// Returns the bucket at a slot that is less than a round of the ring ahead of `now`.
    #[inline]
    pub(super) fn bucket_at(&self, level: usize, slot: usize, now: u64) -> DueBucket {
        // The slot of the present, on this level.
        let unit = self.unit(level, now);
        // The distance from the present's slot, modulo the ring: without a division.
        let ahead = slot + self.ring() - self.slot(unit);
        let ahead = if ahead >= self.ring() {
            ahead - self.ring()
        } else {
            ahead
        };
        DueBucket {
            level,
            slot,
            expiration: self.start(level, unit + ahead as u64),
        }
    }

    /// Returns true when a deadline belongs in a bucket. A deadline that has passed belongs in the
    /// bucket of the present.
    pub(super) fn holds(&self, bucket: DueBucket, deadline: u64, now: u64) -> bool {
        let unit = |time| self.unit(bucket.level, time);
        unit(deadline.max(now)) == unit(bucket.expiration)
    }

    /// Returns the bucket of a deadline, seen from `now`; `now <= deadline <= last_tick`.
    /// O(levels).
    ///
    /// The bucket begins at or after `now`: above level 0 a deadline in the present unit belongs to
    /// the level below.
    #[inline(always)] // a call costs 10 instructions
    pub(super) fn bucket(&self, deadline: u64, now: u64) -> DueBucket {
        let mut level = 0;
        let mut unit = self.unit(0, deadline);
        let mut unit_now = self.unit(0, now);
        // The lowest level whose ring reaches the deadline.
        while unit - unit_now >= u64::from(self.ring) {
            step();
            level += 1;
            unit = self.coarser(unit);
            unit_now = self.coarser(unit_now);
        }
        DueBucket {
            level,
            slot: self.slot(unit),
            expiration: self.start(level, unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_hand_down_at_different_ticks() {
        for (slots, count) in [(64, 16), (20, 8), (64, 64)] {
            let size = WheelSize::new(slots).unwrap();
            for level in 1..=3 {
                let span = u64::pow(slots as u64, level);
                let mut at: Vec<_> = (0..count).map(|n| size.phase(n, count) % span).collect();
                at.sort_unstable();
                at.dedup();
                assert_eq!(
                    at.len() as u64,
                    span.min(count as u64),
                    "level {level} of {slots}"
                );
                let widest = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
                assert!(
                    widest <= 2 * span / count as u64 + 1,
                    "bunched on level {level}: {at:?}"
                );
            }
        }
    }
}
