//! The extras of a key, which few keys have: its watermark watches, its value, and the list of its
//! watches in turn. The watermark watches are a queue of those not met yet, lowest threshold first
//! and, where thresholds are equal, in the order of parking; and the ends of the list of the met
//! ones, which wait for their check.
//!
//! Offsets rise, so nearly every watch comes with a threshold at or above all others. Such a watch
//! goes to the end of a sorted *run*, and an advance of the watermark takes the run's front. The
//! others go into a heap.
//!
//! A key that keeps its value has a list of the *met members*, too, the watches of quorums.
//!
//! - **Left behind**: a watch whose operation has ended is not searched for. It is skipped when its
//!   turn comes, and all such watches go when they are most of the queue.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    mem,
};

use timer_core::TimerHandle;

use super::links::{Ends, NONE};

/// The value that a watermark watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watermark {
    /// Met by a value of at least this.
    pub(crate) threshold: u64,
    pub(crate) kind: WatermarkKind,
}

/// The fate of a watermark watch that is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WatermarkKind {
    /// A threshold watch is taken off its key.
    Threshold,
    /// A checked watch stays, met, until its operation ends.
    Checked,
    /// The watch of a quorum's member stays, met, until the quorum is over or its key is removed.
    /// Only a key that keeps its value has one.
    Member,
}

/// A queue with room for more than this gives a peak back, and keeps at most as many watches that
/// have left, or half of it.
const KEPT: usize = 64;

/// A watermark watch that is not met yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unmet {
    /// The threshold, and a number that counts up with each push: the lowest comes first.
    rank: Reverse<(u64, u64)>,
    pub(super) kind: WatermarkKind,
    pub(super) handle: TimerHandle,
    /// The watch's link.
    pub(super) at: u32,
}

impl Unmet {
    pub(super) fn threshold(&self) -> u64 {
        self.rank.0.0
    }
}

/// The operation of a watermark watch that is not met. The lowest threshold sorts first, then the
/// one that was parked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnmetWaiter {
    rank: (u64, u64),
    pub(crate) handle: TimerHandle,
}

/// The parts of a key's record that few keys have.
#[derive(Debug)]
pub(super) struct KeyExtras {
    // The queue of the watermark watches that are not met.
    run: VecDeque<Unmet>,
    heap: BinaryHeap<Unmet>,
    pushed: u64,
    /// The number of watches in both that have left.
    gone: usize,

    // The watermark watches that are met.
    /// The list of the checked ones, which wait for their check to come true.
    pub(super) met: Ends,
    /// The watches of quorums' members. Left behind, as in the queue.
    met_members: Vec<Unmet>,
    /// The number of met members that have left.
    met_members_gone: usize,

    // The value of a key that keeps one.
    pub(super) value: Option<u64>,
    /// The epoch of the value. Forgotten with it.
    pub(super) epoch: u64,

    /// The list of the watches in turn, which have no watermark.
    pub(super) in_turn: Ends,
}

impl Default for KeyExtras {
    fn default() -> Self {
        KeyExtras {
            run: VecDeque::new(),
            heap: BinaryHeap::new(),
            pushed: 0,
            gone: 0,
            met: Ends::EMPTY,
            met_members: Vec::new(),
            met_members_gone: 0,
            value: None,
            epoch: 0,
            in_turn: Ends::EMPTY,
        }
    }
}

impl KeyExtras {
    /// True for a watch that is added as met: a member's whose threshold the value meets.
    #[inline]
    pub(super) fn is_met_member(&self, watermark: Watermark) -> bool {
        watermark.kind == WatermarkKind::Member && self.value.unwrap_or(0) >= watermark.threshold
    }

    /// Adds a watch. O(1) for a threshold at or above the run's last, otherwise O(log n).
    #[inline]
    pub(super) fn push(&mut self, watermark: Watermark, handle: TimerHandle, at: u32) {
        self.pushed += 1;
        let unmet = Unmet {
            rank: Reverse((watermark.threshold, self.pushed)),
            kind: watermark.kind,
            handle,
            at,
        };
        if self.is_met_member(watermark) {
            self.met_members.push(unmet);
            return;
        }
        // Offsets rise: nearly all go to the run.
        match self.run.back() {
            Some(last) if last.threshold() > watermark.threshold => self.heap.push(unmet),
            _ => self.run.push_back(unmet),
        }
    }

    /// Takes off the lowest watch if its threshold is at most `value`, and drops it if it has left,
    /// which `waits` tells. O(1) from the run, O(log n) from the heap.
    #[inline]
    pub(super) fn pop_up_to(&mut self, value: u64, waits: impl FnOnce(&Unmet) -> bool) -> Lowest {
        let Some(lowest) = self.take_lowest(value) else {
            return Lowest::Above;
        };
        // A peak is given back as it leaves, a part at a time.
        self.shrink();
        if waits(&lowest) {
            return Lowest::Met(lowest);
        }
        self.drop_gone();
        Lowest::Gone
    }

    /// Takes off the lowest watch if its threshold is at most `value`, though it may have left. The
    /// caller says so by [`drop_gone`](Self::drop_gone), and shrinks the queue. O(1) from the run,
    /// O(log n) from the heap.
    #[inline(always)]
    pub(super) fn take_lowest(&mut self, value: u64) -> Option<Unmet> {
        if self.heap_is_lower() {
            let lowest = self.heap.peek()?;
            return if lowest.threshold() <= value {
                self.heap.pop()
            } else {
                None
            };
        }
        if self.run.front()?.threshold() <= value {
            self.run.pop_front()
        } else {
            None
        }
    }

    /// Counts a watch that was taken off the queue and had left: it is kept no more.
    #[inline]
    pub(super) fn drop_gone(&mut self) {
        self.gone -= 1; // Left behind
    }

    /// True when the heap has the lowest watch, or nothing has.
    #[inline]
    fn heap_is_lower(&self) -> bool {
        match (self.run.front(), self.heap.peek()) {
            // The greater of two `Unmet` has the lower rank: it comes first.
            (Some(run), Some(heap)) => heap > run,
            (run, _) => run.is_none(),
        }
    }

    /// True when watermark watches wait, met or not, but for met members. O(1).
    pub(super) fn has_watermarks(&self) -> bool {
        self.run.len() + self.heap.len() != self.gone || self.met.head != NONE
    }

    /// Returns the operations of the watches that are not met, and of the met members, those left
    /// behind included.
    pub(super) fn all(&self) -> impl Iterator<Item = UnmetWaiter> {
        let all = self.run.iter().chain(&self.heap).chain(&self.met_members);
        all.map(|unmet| UnmetWaiter {
            rank: unmet.rank.0,
            handle: unmet.handle,
        })
    }

    /// True when a threshold is at most `value`. O(1).
    #[inline]
    pub(super) fn reaches(&self, value: u64) -> bool {
        let is_met = |lowest: &Unmet| lowest.threshold() <= value;
        self.run.front().is_some_and(is_met) || self.heap.peek().is_some_and(is_met)
    }

    /// Counts a watch that has left, and drops all such watches when they are the most. O(1)
    /// amortised.
    pub(super) fn mark_gone(&mut self, mut waits: impl FnMut(&Unmet) -> bool) {
        self.gone += 1; // Left behind
        if self.gone > KEPT.max((self.run.len() + self.heap.len()) / 2) {
            // Half of the queue goes at least, so this pays for itself.
            self.run.retain(&mut waits);
            self.heap.retain(waits);
            self.gone = 0;
            self.shrink();
        }
    }

    /// Drops what is kept of watches that have left. No other one is in the queue.
    pub(super) fn clear(&mut self) {
        self.run.clear();
        self.heap.clear();
        self.gone = 0;
        self.met_members = Vec::new();
        self.met_members_gone = 0;
        self.shrink();
    }

    /// Keeps a member's watch that is met.
    pub(super) fn push_met_member(&mut self, member: Unmet) {
        self.met_members.push(member);
    }

    /// True when a met member is here, or one that has left.
    pub(super) fn keeps_met_members(&self) -> bool {
        !self.met_members.is_empty()
    }

    /// Takes the last met member, and drops those after it that have left.
    pub(super) fn pop_met_member(&mut self, waits: impl Fn(&Unmet) -> bool) -> Option<Unmet> {
        while let Some(member) = self.met_members.pop() {
            if waits(&member) {
                return Some(member);
            }
            self.met_members_gone -= 1; // Left behind
        }
        None
    }

    /// Puts the met members back whose threshold is above `value`, and returns them; drops those
    /// that have left. O(n log n) for n met members.
    pub(super) fn unmeet_members(
        &mut self,
        value: u64,
        waits: impl Fn(&Unmet) -> bool,
    ) -> Vec<Unmet> {
        let mut back = Vec::new();
        for member in mem::take(&mut self.met_members) {
            if !waits(&member) {
                continue; // Left behind
            }
            if member.threshold() > value {
                self.heap.push(member);
                back.push(member);
            } else {
                self.met_members.push(member);
            }
        }
        self.met_members_gone = 0;
        back
    }

    /// Returns the operations of the watches that wait, in the order they are met in. O(n log n).
    pub(super) fn waiting(&self, waits: impl Fn(&Unmet) -> bool) -> Vec<TimerHandle> {
        let all = self.run.iter().chain(&self.heap);
        let mut unmet: Vec<&Unmet> = all.filter(|unmet| waits(unmet)).collect();
        unmet.sort_by_key(|unmet| Reverse(*unmet));
        unmet.into_iter().map(|unmet| unmet.handle).collect()
    }

    /// Counts a met member that has left, as [`mark_gone`](Self::mark_gone) does.
    pub(super) fn mark_member_gone(&mut self, waits: impl FnMut(&Unmet) -> bool) {
        self.met_members_gone += 1; // Left behind
        if self.met_members_gone > KEPT.max(self.met_members.len() / 2) {
            self.met_members.retain(waits);
            self.met_members_gone = 0;
            if let Some(capacity) =
                shrinks_to(self.met_members.capacity(), self.met_members.len(), KEPT)
            {
                self.met_members.shrink_to(capacity);
            }
        }
    }

    /// Returns the lowest threshold that is not met, and drops watches below it that have left,
    /// which `waits` tells. O(1) amortised, but O(log n) for each that has left the heap.
    pub(super) fn lowest(&mut self, waits: impl Fn(&Unmet) -> bool) -> Option<u64> {
        loop {
            // 1. The lowest one, if it waits.
            let heap_is_lower = self.heap_is_lower();
            let lowest = if heap_is_lower {
                self.heap.peek()?
            } else {
                self.run.front()?
            };
            if waits(lowest) {
                return Some(lowest.threshold());
            }
            // 2. One that has left is dropped.
            if heap_is_lower {
                self.heap.pop();
            } else {
                self.run.pop_front();
            }
            self.drop_gone();
            self.shrink();
        }
    }

    /// Returns the memory of a peak.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.run.capacity() > KEPT || self.heap.capacity() > KEPT {
            self.shrink_peak();
        }
    }

    #[inline(never)]
    fn shrink_peak(&mut self) {
        // Each on its own: offsets that rise leave the heap empty.
        if let Some(capacity) = shrinks_to(self.run.capacity(), self.run.len(), KEPT) {
            self.run.shrink_to(capacity);
        }
        if let Some(capacity) = shrinks_to(self.heap.capacity(), self.heap.len(), KEPT) {
            self.heap.shrink_to(capacity);
        }
    }

    /// Returns the watches that wait, in the order they are met in, and asserts Left behind.
    #[cfg(test)]
    pub(super) fn assert_valid(&self, waits: impl Fn(&Unmet) -> bool) -> Vec<Unmet> {
        assert!(self.run.iter().is_sorted_by_key(|unmet| Reverse(*unmet)));
        let all = self.run.iter().chain(&self.heap);
        let (mut live, gone): (Vec<_>, Vec<_>) = all.partition(|unmet| waits(unmet));
        assert_eq!(gone.len(), self.gone, "Left behind");
        assert!(self.gone <= KEPT.max(live.len() + self.gone));
        live.sort_by_key(|unmet| Reverse(*unmet));
        live
    }

    /// Returns the met members that wait, in the order they were met in.
    #[cfg(test)]
    pub(super) fn assert_valid_met_members(&self, waits: impl Fn(&Unmet) -> bool) -> Vec<Unmet> {
        let (live, gone): (Vec<Unmet>, Vec<Unmet>) =
            self.met_members.iter().partition(|member| waits(member));
        assert_eq!(gone.len(), self.met_members_gone, "Left behind");
        live
    }
}

/// The lowest watch that is not met, beside a value.
pub(super) enum Lowest {
    /// The value meets it.
    Met(Unmet),
    /// It had left.
    Gone,
    /// The value is below it, or there is none.
    Above,
}

/// Returns the capacity that a collection with `len` items is to shrink to. One for more than
/// `kept` items shrinks when more than three quarters of it are empty, to twice its items.
#[inline]
pub(super) fn shrinks_to(capacity: usize, len: usize, kept: usize) -> Option<usize> {
    if capacity > kept && len < capacity / 4 {
        return Some(len * 2);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use timer_core::TaskId;

    use super::*;

    /// The watches beside a sorted list of (threshold, link).
    #[derive(Default)]
    struct Checked {
        extras: KeyExtras,
        live: Vec<(u64, u32)>,
        at: u32,
    }

    impl Checked {
        fn push(&mut self, threshold: u64) {
            self.at += 1;
            let handle = TimerHandle::new(0, TaskId::from_parts(self.at, 0));
            self.extras.push(
                Watermark {
                    threshold,
                    kind: WatermarkKind::Threshold,
                },
                handle,
                self.at,
            );
            let place = self.live.partition_point(|&(other, _)| other <= threshold);
            self.live.insert(place, (threshold, self.at));
        }

        fn waiting(&self) -> HashSet<u32> {
            self.live.iter().map(|&(_, at)| at).collect()
        }

        fn remove(&mut self, nth: usize) {
            self.live.remove(nth);
            let live = self.waiting();
            self.extras.mark_gone(|unmet| live.contains(&unmet.at));
        }

        fn pop_all_up_to(&mut self, value: u64) {
            loop {
                let live = self.waiting();
                let met = self
                    .live
                    .first()
                    .filter(|(threshold, _)| *threshold <= value)
                    .copied();
                match self
                    .extras
                    .pop_up_to(value, |unmet| live.contains(&unmet.at))
                {
                    Lowest::Met(unmet) => {
                        assert_eq!(Some((unmet.threshold(), unmet.at)), met);
                        self.live.remove(0);
                    }
                    Lowest::Gone => {}
                    Lowest::Above => return assert_eq!(met, None),
                }
            }
        }

        fn assert_same(&self) {
            let waiting = self.waiting();
            let live = self
                .extras
                .assert_valid(|unmet| waiting.contains(&unmet.at));
            assert!(
                live.iter()
                    .map(|of| (of.threshold(), of.at))
                    .eq(self.live.clone())
            );
            let kept = self.kept();
            assert!(kept <= 9 * self.live.len() + 9 * KEPT, "room for {kept}");
        }

        fn kept(&self) -> usize {
            self.extras.run.capacity() + self.extras.heap.capacity()
        }
    }

    #[test]
    fn any_order_of_steps_agrees_with_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut checked = Checked::default();
        for step in 0..6000 {
            let pushes = if step < 3000 { 8 } else { 1 };
            match random.u8(..10) {
                of if of < pushes => checked.push(step / 10 + random.u64(..20)),
                1..9 if !checked.live.is_empty() => {
                    let nth = random.usize(..checked.live.len());
                    checked.remove(nth);
                }
                _ => checked.pop_all_up_to((step / 20).saturating_sub(random.u64(..10))),
            }
            checked.assert_same();
        }
        checked.pop_all_up_to(u64::MAX);
        checked.assert_same();
        assert!(checked.kept() <= 2 * KEPT, "a peak is given back");
    }
}
