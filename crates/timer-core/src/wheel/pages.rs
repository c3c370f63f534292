//! `Pages`: slots with stable indices, in pages of up to 64 that come and go with the slots in use.
//!
//! The slab under the nodes of [`TimingWheel`](crate::TimingWheel), and for owners of wheels. The
//! first page begins small and grows, by half or more, to a whole page, so an owner that holds
//! little uses little. Growing moves its slots. Further pages (not one doubling vector) are added
//! without copying a slot. While no slot is freed they cost at most a page above the slots in use.
//! They also give the memory of a peak back: each page that empties frees its memory, but for the
//! first (unless the peak was large), and one other while a slot is in use. A record of 24 bytes a
//! page is left of a peak, until no slot is in use. Pages that freed their memory may lie before
//! others that have room: for each eight that a claim passes, one is made anew.
//!
//! - **Listed**: a page is on one list at most: `partial` (it has a free slot, or had one) or
//!   `vacant` (it has no memory). A page with a free slot is on `partial`.

use std::{iter, mem};

/// A slot of [`Pages`].
pub trait PageSlot {
    /// The most slots of all pages together.
    const MAX: u32;

    /// Returns a free slot.
    fn vacant() -> Self;
}

/// The most pages whose records are kept when nothing is in use.
const KEPT_PAGES: usize = 64;

/// The most pages without a free slot that a claim takes off `partial`.
const WALK: usize = 8;

/// The reason why a look-up finds a page: only a page with no slot in use frees its memory.
const IN_USE: &str = "the page of a slot in use has memory";

/// The end of a list of pages.
const END: u32 = u32::MAX;

/// The slots of a page; `None` without memory.
type Slots<N, const SIZE: usize> = Option<Box<[N; SIZE]>>;

/// The bookkeeping of a page.
#[derive(Clone, Copy, Debug)]
struct PageRecord {
    /// A bit for each slot that is not in use; none without memory.
    free: u64,
    /// The next page on the list this one is on.
    next: u32,
    listed: bool,
    /// In the first page's record, which has room for it: the number of other pages that have
    /// memory and no slot in use.
    spare: u8,
}

impl PageRecord {
    const WITHOUT_MEMORY: PageRecord = PageRecord {
        free: 0,
        next: END,
        listed: true,
        spare: 0,
    };
}

/// Pages in a group.
const GROUP: usize = 8;

/// A group of pages. A look-up reads one cache line for all of them; their bookkeeping, which only
/// claims and releases read, lies behind it.
#[derive(Debug)]
#[repr(C, align(64))]
struct PageGroup<N, const SIZE: usize> {
    slots: [Slots<N, SIZE>; GROUP],
    records: [PageRecord; GROUP],
}

/// All pages, by their numbers.
///
/// The first page lies here: most owners never need another, so their look-up is one comparison,
/// and costs one cache line less. Its place in the first group is not used. Until it has grown, its
/// record has a free bit only for the slots that are there.
#[derive(Debug)]
struct PageTable<N, const SIZE: usize> {
    first: Box<[N]>,
    first_record: PageRecord,
    groups: Vec<PageGroup<N, SIZE>>,
}

impl<N, const SIZE: usize> PageTable<N, SIZE> {
    /// Returns the number of slots for which a page has memory.
    fn made(&self, number: u32) -> usize {
        if number == 0 {
            return self.first.len();
        }
        match self.groups.get(group_of(number)) {
            Some(group) if group.slots[place_of(number)].is_some() => SIZE,
            _ => 0,
        }
    }

    /// Returns a slot for which there is memory, with its page's record.
    #[inline]
    fn slot_and_record(&mut self, index: u32) -> Option<(&mut N, &mut PageRecord)> {
        if (index as usize) < self.first.len() {
            return Some((&mut self.first[index as usize], &mut self.first_record));
        }
        let number = index / SIZE as u32;
        let group = self.groups.get_mut(group_of(number))?;
        let place = place_of(number);
        let slots = group.slots[place].as_deref_mut()?;
        Some((
            &mut slots[offset_of::<SIZE>(index)],
            &mut group.records[place],
        ))
    }

    #[inline]
    fn record(&self, number: u32) -> Option<&PageRecord> {
        match number {
            0 => Some(&self.first_record),
            _ => Some(&self.groups.get(group_of(number))?.records[place_of(number)]),
        }
    }

    fn record_mut(&mut self, number: u32) -> Option<&mut PageRecord> {
        match number {
            0 => Some(&mut self.first_record),
            _ => Some(&mut self.groups.get_mut(group_of(number))?.records[place_of(number)]),
        }
    }
}

fn group_of(page: u32) -> usize {
    page as usize / GROUP
}

fn place_of(page: u32) -> usize {
    page as usize % GROUP
}

/// Slots `N` with stable indices, in pages of `SIZE` slots: a power of two, at most 64.
#[derive(Debug)]
pub struct Pages<N, const SIZE: usize> {
    pages: PageTable<N, SIZE>,
    /// The number of pages, with memory or without.
    page_count: u32,
    partial: u32,
    vacant: u32,
    len: u32,
}

impl<N: PageSlot, const SIZE: usize> Pages<N, SIZE> {
    /// log2 of the slots in a page.
    const BITS: u32 = SIZE.trailing_zeros();
    /// The free bits of a page with no slot in use.
    const ALL: u64 = u64::MAX >> (64 - SIZE);

    /// Returns the bits of the first `slots` slots of a page.
    const fn below(slots: usize) -> u64 {
        match slots {
            0 => 0,
            _ => u64::MAX >> (64 - slots),
        }
    }

    /// Returns the number of slots in use.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true when no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a free slot into use; `None` when all [`PageSlot::MAX`] are. O(1), but for the making
    /// of a page.
    #[inline]
    pub fn claim(&mut self) -> Option<u32> {
        let (index, _) = self.claim_slot()?;
        Some(index)
    }

    /// Takes a free slot into use, as [`claim`](Self::claim) does, and returns it with its index.
    #[inline(always)] // a call costs 20 instructions
    pub fn claim_slot(&mut self) -> Option<(u32, &mut N)> {
        // The first page serves most claims.
        if self.partial == 0 && self.pages.first_record.free != 0 {
            return Some(self.claim_first());
        }
        self.claim_elsewhere()
    }

    /// Takes a free slot into use when the page at the head of `partial` is not the first, or is
    /// full.
    fn claim_elsewhere(&mut self) -> Option<(u32, &mut N)> {
        let mut number = self.partial;
        if self.pages.record(number).is_none_or(|page| page.free == 0) {
            number = self.page_with_room()?;
        }
        if number == 0 {
            return Some(self.claim_first());
        }
        self.len += 1;
        let group = &mut self.pages.groups[group_of(number)];
        let page = &mut group.records[place_of(number)];
        // An empty page beyond the first is a spare one, which comes into use.
        if page.free == Self::ALL {
            self.pages.first_record.spare -= 1;
        }
        let index = number << Self::BITS | take_lowest(page, &mut self.partial);
        let slots = group.slots[place_of(number)].as_deref_mut()?;
        Some((index, &mut slots[offset_of::<SIZE>(index)]))
    }

    /// Takes the lowest free slot of the first page, which is at the head of `partial`, into use.
    #[inline(always)] // as `claim_slot`
    fn claim_first(&mut self) -> (u32, &mut N) {
        self.len += 1;
        let index = take_lowest(&mut self.pages.first_record, &mut self.partial);
        (index, &mut self.pages.first[index as usize])
    }

    /// Takes a slot of the first page into use: `None` if it is in use already, or not made. O(1).
    pub fn claim_near(&mut self, index: u32) -> Option<&mut N> {
        let slot = self.pages.first.get_mut(index as usize)?;
        let page = &mut self.pages.first_record;
        let bit = 1 << index;
        // An early return, not `len += u32::from(is_free)`: with that form an optimised build of
        // rustc 1.95 lost the count on x86-64 (the models' release tests notice).
        if page.free & bit == 0 {
            return None;
        }
        page.free ^= bit;
        self.len += 1;
        Some(slot)
    }

    /// Returns the number of slots of the first page that are made.
    pub fn first_len(&self) -> usize {
        self.pages.first.len()
    }

    /// Grows the first page, which is not whole, by half, and by one slot at least.
    fn grow_first(&mut self) {
        let before = self.pages.first.len();
        let mut len = before + (before / 2).max(1);
        if len + len / 4 > SIZE {
            len = SIZE;
        }
        self.grow_first_to(len);
    }

    /// Grows the first page, which has fewer than `len` slots, to `len`, at most a whole page. The
    /// page is on `partial` afterwards.
    pub fn grow_first_to(&mut self, len: usize) {
        // 1. More slots, in one block; those that are there are moved.
        let before = self.pages.first.len();
        let mut slots = mem::take(&mut self.pages.first).into_vec();
        slots.reserve_exact(len - before);
        slots.resize_with(len, N::vacant);
        self.pages.first = slots.into_boxed_slice();
        // 2. They are free.
        let page = &mut self.pages.first_record;
        page.free |= Self::below(len) & !Self::below(before);
        // 3. Listed: the page was made on no list, or left its list because it was full.
        if before == 0 || !page.listed {
            page.listed = true;
            page.next = mem::replace(&mut self.partial, 0);
        }
    }

    /// Returns the page at the head of `partial`, made if need be. O(1), but for the making.
    #[cold]
    #[inline(never)] // a copy for each type, not for each crate
    fn page_with_room(&mut self) -> Option<u32> {
        // `claim_near` and `give_back` leave pages on the list that have no free slot any more. All
        // pages of a peak may be there: take a few of them off now, more with the next page.
        for _ in 0..WALK {
            if !self.unlist_full_head() {
                break;
            }
        }
        if self
            .pages
            .record(self.partial)
            .is_some_and(|head| head.free != 0)
        {
            return Some(self.partial);
        }
        // The first page grows before another one is made.
        if self.pages.first.len() < SIZE {
            self.grow_first();
            return Some(0);
        }
        self.make_page()
    }

    /// Moves the page at the head of `partial` to where it belongs (Listed), if it has no free
    /// slot. Returns true if it did.
    #[inline(never)] // the walk would be unrolled
    fn unlist_full_head(&mut self) -> bool {
        let number = self.partial;
        let is_made = self.pages.made(number) > 0;
        let Some(page) = self.pages.record_mut(number) else {
            return false;
        };
        if page.free != 0 {
            return false;
        }
        self.partial = page.next;
        if is_made {
            page.listed = false; // full
        } else {
            page.next = mem::replace(&mut self.vacant, number);
        }
        true
    }

    /// Makes a page beyond the first, the new head of `partial`. `None` when all are in use.
    fn make_page(&mut self) -> Option<u32> {
        // A page without memory is used again before another one is added.
        let number = if self.vacant == END {
            self.page_count
        } else {
            self.vacant
        };
        if number >= N::MAX >> Self::BITS {
            return None;
        }
        if self.vacant == END {
            self.page_count += 1;
            if number as usize >= self.pages.groups.len() * GROUP {
                self.pages.groups.push(PageGroup {
                    slots: [const { None }; GROUP],
                    records: [PageRecord::WITHOUT_MEMORY; GROUP],
                });
            }
        }
        // All of its slots are made at once, in one block.
        let made: Box<[N]> = iter::repeat_with(N::vacant).take(SIZE).collect();
        let group = self.pages.groups.get_mut(group_of(number))?;
        group.slots[place_of(number)] = made.try_into().ok();
        let page = &mut group.records[place_of(number)];
        page.free = Self::ALL;
        self.pages.first_record.spare += 1; // until the claim takes a slot of it
        // It moves from `vacant`, if it was there, to `partial`.
        self.vacant = mem::replace(&mut page.next, self.partial);
        self.partial = number;
        Some(number)
    }

    /// Returns the slot at `index`, in use or not, unless its page has no memory.
    pub fn get(&self, index: u32) -> Option<&N> {
        let pages = &self.pages;
        if let Some(slot) = pages.first.get(index as usize) {
            return Some(slot);
        }
        let number = index / SIZE as u32;
        let group = pages.groups.get(group_of(number))?;
        let slots = group.slots[place_of(number)].as_deref()?;
        Some(&slots[offset_of::<SIZE>(index)])
    }

    /// See [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut N> {
        let (slot, _) = self.pages.slot_and_record(index)?;
        Some(slot)
    }

    /// Returns the slot at an index that is in use.
    ///
    /// # Panics
    /// When its page has no memory.
    #[inline]
    pub fn at(&self, index: u32) -> &N {
        self.get(index).expect(IN_USE)
    }

    /// See [`at`](Self::at).
    ///
    /// # Panics
    /// When its page has no memory.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> &mut N {
        self.get_mut(index).expect(IN_USE)
    }

    /// Frees a slot that is in use. O(1), but for the freeing of an emptied page and, with the last
    /// slot of a peak, of the records of its pages.
    #[inline]
    pub fn release(&mut self, index: u32) {
        self.release_if(index, |_| true);
    }

    /// Looks a slot up, and frees it as [`release`](Self::release) does if `is_over` returns true,
    /// which it may only for a slot in use. Does nothing for an index whose page has no memory.
    #[inline(always)]
    pub fn release_if(&mut self, index: u32, is_over: impl FnOnce(&mut N) -> bool) {
        let Some((slot, page)) = self.pages.slot_and_record(index) else {
            return;
        };
        if !is_over(slot) {
            return;
        }
        let number = index >> Self::BITS;
        debug_assert!(
            page.free & 1 << offset_of::<SIZE>(index) == 0,
            "only a slot in use is released"
        );
        // The slot is free for the next claim.
        page.free |= 1 << offset_of::<SIZE>(index);
        self.len -= 1;
        // The page was full, and now has a free slot (Listed).
        if !page.listed {
            page.listed = true;
            page.next = self.partial;
            self.partial = number;
        }
        // While the first page is the only one, it keeps its memory.
        if page.free == Self::ALL && self.page_count > 1 {
            self.emptied(number);
        }
    }

    /// Frees the memory of a page with no slot in use, except the first page's and, while any slot
    /// is in use, one other's.
    fn emptied(&mut self, number: u32) {
        if self.len == 0 && self.page_count as usize > KEPT_PAGES {
            // After a peak even the records go.
            *self = Pages::default();
        } else if self.len == 0 {
            for number in 1..self.page_count {
                self.give_back(number);
            }
            self.pages.first_record.spare = 0;
        } else if number > 0 && self.pages.first_record.spare > 0 {
            self.give_back(number);
        } else if number > 0 {
            self.pages.first_record.spare = 1;
        }
    }

    /// Frees a page's memory. It stays on the list `partial`.
    fn give_back(&mut self, number: u32) {
        if let Some(group) = self.pages.groups.get_mut(group_of(number)) {
            group.slots[place_of(number)] = None;
            group.records[place_of(number)].free = 0;
        }
    }

    /// Returns the first index in use at or after `index`.
    pub fn first_from(&self, index: u32) -> Option<u32> {
        let first = index >> Self::BITS;
        for number in first..self.page_count {
            let page = self.pages.record(number)?;
            // A page without memory has no free bits, and no slot in use.
            let mut live = !page.free & Self::below(self.pages.made(number));
            if number == first {
                // Leave out the slots before `index`.
                live &= u64::MAX << offset_of::<SIZE>(index);
            }
            if live != 0 {
                return Some(number << Self::BITS | live.trailing_zeros());
            }
        }
        None
    }

    /// Returns the number of pages that have memory, for tests.
    pub fn pages_with_memory(&self) -> usize {
        let has_memory = |&number: &u32| self.pages.made(number) > 0;
        (0..self.page_count).filter(has_memory).count()
    }
}

impl<N, const SIZE: usize> Default for Pages<N, SIZE> {
    /// Makes pages without memory.
    fn default() -> Self {
        let pages = PageTable {
            first: Box::default(),
            first_record: PageRecord::WITHOUT_MEMORY,
            groups: Vec::new(),
        };
        Pages {
            pages,
            page_count: 1,
            partial: END,
            vacant: END,
            len: 0,
        }
    }
}

/// Takes the lowest free slot of the page at the head of `partial` into use; returns its place.
fn take_lowest(page: &mut PageRecord, partial: &mut u32) -> u32 {
    let place = page.free.trailing_zeros();
    page.free &= page.free - 1;
    // A full page leaves the list (Listed).
    if page.free == 0 {
        page.listed = false;
        *partial = page.next;
    }
    place
}

/// Returns the place of a slot in its page.
fn offset_of<const SIZE: usize>(index: u32) -> usize {
    index as usize & (SIZE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<N: PageSlot, const SIZE: usize> Pages<N, SIZE> {
        /// Makes no page from here on, as if all had been made.
        pub(crate) fn make_no_page(&mut self) {
            self.page_count = N::MAX >> Self::BITS;
        }
    }

    #[derive(Debug)]
    struct Slot;

    impl PageSlot for Slot {
        const MAX: u32 = 1 << 12;

        fn vacant() -> Self {
            Slot
        }
    }

    #[test]
    fn a_peak_is_given_back_but_for_one_page() {
        let mut pages = Pages::<Slot, 16>::default();
        let indices: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert_eq!(pages.pages_with_memory(), 250);
        // In an order unlike that of claiming.
        for step in 1..4000 {
            pages.release(indices[step * 1009 % 4000]);
        }
        assert_eq!(pages.len(), 1);
        assert_eq!(pages.pages_with_memory(), 2);
        assert_eq!(pages.page_count, 250);
        pages.release(indices[0]);
        assert_eq!(pages.len(), 0);
        assert_eq!(pages.pages_with_memory(), 0);
        assert_eq!(pages.pages.groups.capacity(), 0);
        let again: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert!(!pages.is_empty() && again == indices);
    }

    #[test]
    fn a_claim_after_a_peak_passes_few_pages() {
        let mut pages = Pages::<Slot, 16>::default();
        let peak: Vec<_> = (0..Slot::MAX).map(|_| pages.claim().unwrap()).collect();
        for &index in &peak[1..] {
            pages.release(index);
        }
        let vacant = |pages: &Pages<Slot, 16>| {
            let next = |&number: &u32| Some(pages.pages.record(number)?.next);
            let list = iter::successors(Some(pages.vacant), next);
            list.take_while(|&number| number != END).count()
        };
        // The spare page is behind those that gave their memory back, and still the only one.
        for _ in 0..3 {
            let again: Vec<_> = (0..300).map(|_| pages.claim().unwrap()).collect();
            again
                .into_iter()
                .rev()
                .for_each(|index| pages.release(index));
            assert_eq!(pages.pages_with_memory(), 2);
        }
        for _ in &peak[1..] {
            let before = vacant(&pages);
            assert!(pages.claim().is_some());
            assert!(vacant(&pages) <= before + WALK);
        }
        // None was lost on the way.
        assert_eq!((pages.len(), pages.claim()), (peak.len(), None));
    }

    #[test]
    fn the_first_page_grows_with_what_it_holds() {
        let mut pages = Pages::<Slot, 64>::default();
        assert_eq!(pages.pages.first.len(), 0);
        for count in 1..=64 {
            assert_eq!(pages.claim(), Some(count - 1), "the lowest free slot");
            let made = pages.pages.first.len();
            assert!(
                made <= (count as usize * 3 / 2).clamp(count as usize, 64),
                "{made} for {count}"
            );
        }
        assert_eq!((pages.pages_with_memory(), pages.claim()), (1, Some(64)));
        assert_eq!(pages.pages_with_memory(), 2);
    }

    #[test]
    fn a_first_page_that_grows_keeps_what_is_in_use() {
        // Filled from both ends, so that it is grown while it is on the list and while it is not.
        let mut pages = Pages::<Slot, 16>::default();
        pages.grow_first_to(4);
        assert!(pages.claim_near(0).is_some() && pages.claim_near(3).is_some());
        assert_eq!((pages.claim(), pages.claim()), (Some(1), Some(2)));
        assert!(pages.claim_near(6).is_none());
        pages.grow_first_to(9);
        assert!(pages.claim_near(6).is_some());
        let others: Vec<_> = (0..12).map(|_| pages.claim().unwrap()).collect();
        assert_eq!(others, [4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        let in_use = |pages: &Pages<Slot, 16>, from| pages.first_from(from);
        assert_eq!((in_use(&pages, 0), in_use(&pages, 16)), (Some(0), Some(16)));
        for index in 0..17 {
            pages.release(index);
        }
        assert!(pages.is_empty() && in_use(&pages, 0).is_none());
    }

    #[test]
    fn eight_pages_cost_192_bytes() {
        assert_eq!(size_of::<PageGroup<Slot, 16>>(), 8 * 24);
    }
}
