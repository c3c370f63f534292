//! What memory is in use, counted by the allocator, and what is too much.
//!
//! Two rules decide, both by the bytes that are allocated and not yet freed:
//!
//! - *Idle*: at each standstill everything has ended and the passing world is gone; what is left is
//!   the lasting world, empty, and the soak itself. It must be what it was when the warm-up was
//!   over, but for [`IDLE_SLACK`], however many operations went by.
//! - *Live*: at all times there is no more than that and [`PER_OPERATION`] for each operation that
//!   was open at once, at most, since the last standstill, and [`LIVE_SLACK`].

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KIB: u64 = 1024;
/// What idle memory may grow by. The levels of a wheel and its pages are made when they are first
/// used, the fourth level not before 262 s: some are made after the warm-up.
pub(crate) const IDLE_SLACK: u64 = 1024 * KIB;
/// An operation with its record, its closures, its watches under up to six keys, its future and
/// what waits for it.
pub(crate) const PER_OPERATION: u64 = KIB;
/// The passing world.
pub(crate) const LIVE_SLACK: u64 = 8 * KIB * KIB;

/// What is allocated now.
pub(crate) fn live_bytes() -> u64 {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64
}

/// Judges by the two rules, once the warm-up is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judge {
    /// Idle bytes as the warm-up was over.
    pub(crate) base: Option<u64>,
    /// The latest.
    pub(crate) idle: Option<u64>,
    /// Standstills after the one that ended the warm-up.
    pub(crate) judged: u64,
    /// The most that was open at once since the last standstill.
    open_max: u64,
    /// What was too much, in words.
    pub(crate) grew: Vec<String>,
}

impl Judge {
    /// At a standstill.
    pub(crate) fn idle(&mut self, at_s: u64, bytes: u64, warm: bool) {
        self.open_max = 0;
        self.idle = Some(bytes);
        if let Some(base) = self.base {
            self.judged += 1;
            let more = bytes.saturating_sub(base);
            if more > IDLE_SLACK {
                let what = "bytes more than after the warm-up";
                self.grew.push(format!("after {at_s} s, with nothing parked: {more} {what}"));
            }
        } else if warm {
            self.base = Some(bytes);
        }
    }

    /// At any time, with so many open.
    pub(crate) fn live(&mut self, at_s: u64, bytes: u64, open: u64) {
        self.open_max = self.open_max.max(open);
        let Some(base) = self.base else { return };
        let limit = base + self.open_max * PER_OPERATION + LIVE_SLACK;
        if bytes > limit {
            self.grew.push(format!(
                "after {at_s} s: {bytes} bytes, and {} operations were open at most, which allow \
                 for {limit}",
                self.open_max
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let before = live_bytes();
        let kept = vec![0_u8; 10 << 20];
        assert!(live_bytes() >= before + kept.len() as u64 / 2);
    }

    #[test]
    fn idle_memory_stays_what_it_was_when_warm() {
        let mut judge = Judge::default();
        judge.idle(1, 9 << 20, false);
        judge.idle(2, 1 << 20, true);
        judge.idle(3, (1 << 20) + IDLE_SLACK, true);
        assert!(judge.grew.is_empty() && judge.judged == 1);
        judge.idle(4, (1 << 20) + IDLE_SLACK + 1, true);
        assert_eq!(judge.grew.len(), 1);
    }

    #[test]
    fn live_memory_follows_what_is_open() {
        let mut judge = Judge::default();
        judge.live(1, 1 << 40, 0); // not warm yet
        judge.idle(2, 1 << 20, true);
        let limit = (1 << 20) + LIVE_SLACK + 1000 * PER_OPERATION;
        judge.live(3, limit, 1000);
        judge.live(4, limit, 10); // a peak is given back as it goes
        assert!(judge.grew.is_empty());
        judge.live(5, limit + 1, 10);
        judge.idle(6, 1 << 20, true);
        judge.live(7, limit, 10);
        assert_eq!(judge.grew.len(), 2);
    }
}
