//! `Pages`: slots with stable indices, in pages of up to 64 that come and go with what is live.
//!
//! The slab under the nodes of [`TimingWheel`](crate::TimingWheel), and for owners of wheels.
//! Pages (not one doubling vector) grow without copying a slot. While nothing leaves they cost at
//! most a page above what is live. They also let a peak go: every page that empties gives its
//! memory back, but for the first, and one other while something is live. A record of 32 bytes a
//! page stays of a peak, until nothing is in use.
//!
//! - **Listed**: a page is on one list at most: `partial` (it has a free slot, or had one) or
//!   `vacant` (it has no memory). A page with a free slot is on `partial`.

use std::ops::{Index, IndexMut};

/// A slot of [`Pages`].
pub trait PageSlot {
    /// log2 of the slots in a page; at most 6.
    const PAGE_BITS: u32;
    /// The most slots of a page.
    const MAX: u32;

    /// A free slot.
    fn vacant() -> Self;
}

/// Pages whose records are kept when nothing is in use.
const KEPT_PAGES: usize = 64;

/// The end of a list of pages.
const END: u32 = u32::MAX;

#[derive(Debug)]
struct Page<N> {
    /// Empty when the memory was given back.
    slots: Box<[N]>,
    /// A bit for each slot that is not in use; none without memory.
    free: u64,
    /// The next page on the list this one is on.
    next: u32,
    listed: bool,
}

impl<N> Page<N> {
    /// A record without memory.
    fn without_memory() -> Self {
        Page {
            slots: Box::default(),
            free: 0,
            next: END,
            listed: true,
        }
    }

    /// Frees its memory. It stays on the list `partial`.
    fn give_back(&mut self) {
        self.slots = Box::default();
        self.free = 0;
    }
}

/// The records of all pages, by their numbers.
///
/// The first lies here: most owners never need another, whose look-up is one comparison then, and
/// costs one cache line less.
#[derive(Debug)]
struct PageTable<N> {
    first: Page<N>,
    others: Vec<Page<N>>,
}

impl<N> PageTable<N> {
    fn len(&self) -> usize {
        1 + self.others.len()
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&Page<N>> {
        match number.checked_sub(1) {
            None => Some(&self.first),
            Some(other) => self.others.get(other as usize),
        }
    }

    #[inline]
    fn get_mut(&mut self, number: u32) -> Option<&mut Page<N>> {
        match number.checked_sub(1) {
            None => Some(&mut self.first),
            Some(other) => self.others.get_mut(other as usize),
        }
    }
}

impl<N> Index<u32> for PageTable<N> {
    type Output = Page<N>;

    #[inline]
    fn index(&self, number: u32) -> &Page<N> {
        match number.checked_sub(1) {
            None => &self.first,
            Some(other) => &self.others[other as usize],
        }
    }
}

impl<N> IndexMut<u32> for PageTable<N> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Page<N> {
        match number.checked_sub(1) {
            None => &mut self.first,
            Some(other) => &mut self.others[other as usize],
        }
    }
}

/// Slots `N` with stable indices.
#[derive(Debug)]
pub struct Pages<N> {
    pages: PageTable<N>,
    partial: u32,
    vacant: u32,
    len: u32,
    /// A page, not the first, has memory and nothing live.
    spare: bool,
}

impl<N: PageSlot> Pages<N> {
    /// The free slots of a page with nothing live.
    const ALL: u64 = u64::MAX >> (64 - (1u32 << N::PAGE_BITS));

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
    #[inline]
    pub fn claim_slot(&mut self) -> Option<(u32, &mut N)> {
        let number = match self.pages.get(self.partial) {
            Some(page) if page.free != 0 => self.partial,
            _ => self.page_with_room()?,
        };
        let page = &mut self.pages[number];
        // An empty page beyond the first is the spare one, which comes into use.
        if page.free == Self::ALL && number > 0 {
            self.spare = false;
        }
        // Its lowest free slot.
        let offset = page.free.trailing_zeros();
        page.free &= page.free - 1;
        // A full page leaves the list (Listed); it is its head.
        if page.free == 0 {
            page.listed = false;
            self.partial = page.next;
        }
        self.len += 1;
        let slot = page.slots.get_mut(offset as usize)?;
        Some((number << N::PAGE_BITS | offset, slot))
    }

    /// Takes a slot of the first page into use: `None` if it is in use already. O(1).
    #[inline]
    pub fn claim_near(&mut self, index: u32) -> Option<&mut N> {
        // Before its first slot is claimed no page has memory, and the first is made first.
        if self.pages.first.slots.is_empty() {
            self.page_with_room();
        }
        let page = &mut self.pages.first;
        let bit = 1 << index;
        // An early return, not `len += u32::from(is_free)`: with that form an optimised build of
        // rustc 1.95 lost the count on x86-64 (the models' release tests notice).
        if page.free & bit == 0 {
            return None;
        }
        page.free ^= bit;
        self.len += 1;
        page.slots.get_mut(index as usize)
    }

    /// The page at the head of `partial`, made if need be.
    #[cold]
    fn page_with_room(&mut self) -> Option<u32> {
        // `claim_near` and `give_back` leave pages on the list that have no free slot any more:
        // those at its head go to where they belong (Listed).
        while let Some(page) = self.pages.get_mut(self.partial) {
            if page.free != 0 {
                return Some(self.partial);
            }
            let next = page.next;
            if page.slots.is_empty() {
                page.next = self.vacant;
                self.vacant = self.partial;
            } else {
                page.listed = false; // full
            }
            self.partial = next;
        }
        // A record without memory is used again before another one is added.
        let number = if self.vacant == END {
            self.pages.len() as u32
        } else {
            self.vacant
        };
        if number >= N::MAX >> N::PAGE_BITS {
            return None;
        }
        // All of its slots are made at once, in one block.
        let slots = std::iter::repeat_with(N::vacant)
            .take(1 << N::PAGE_BITS)
            .collect();
        let page = Page {
            slots,
            free: Self::ALL,
            next: END,
            listed: true,
        };
        // The new page takes the place of its record, or adds one.
        match self.pages.get_mut(number) {
            Some(vacant) => self.vacant = std::mem::replace(vacant, page).next,
            None => self.pages.others.push(page),
        }
        self.partial = number; // nothing else was on it
        Some(number)
    }

    /// Returns the slot at `index`, in use or not, unless its page has no memory.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&N> {
        let page = self.pages.get(index >> N::PAGE_BITS)?;
        page.slots.get(offset::<N>(index))
    }

    /// See [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut N> {
        let page = self.pages.get_mut(index >> N::PAGE_BITS)?;
        page.slots.get_mut(offset::<N>(index))
    }

    /// Returns the slot at an index that is in use.
    #[inline]
    pub fn at(&self, index: u32) -> &N {
        &self.pages[index >> N::PAGE_BITS].slots[offset::<N>(index)]
    }

    /// See [`at`](Self::at).
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> &mut N {
        &mut self.pages[index >> N::PAGE_BITS].slots[offset::<N>(index)]
    }

    /// Frees a slot that is in use. O(1), but for the freeing of an emptied page, and with the
    /// last slot of a peak of its pages' records.
    #[inline]
    pub fn release(&mut self, index: u32) {
        self.release_if(index, |_| true);
    }

    /// Looks a slot up, and frees it if `is_over` returns true, as it may for one in use: see
    /// [`release`](Self::release). Does nothing for an index whose page has no memory.
    #[inline(always)]
    pub fn release_if(&mut self, index: u32, is_over: impl FnOnce(&mut N) -> bool) {
        let number = index >> N::PAGE_BITS;
        let Some(page) = self.pages.get_mut(number) else {
            return;
        };
        let Some(slot) = page.slots.get_mut(offset::<N>(index)) else {
            return;
        };
        if !is_over(slot) {
            return;
        }
        debug_assert!(
            page.free & 1 << offset::<N>(index) == 0,
            "only a slot in use is released"
        );
        // The slot is free for the next claim.
        page.free |= 1 << offset::<N>(index);
        self.len -= 1;
        // It was full, and now has a free slot (Listed).
        if !page.listed {
            page.listed = true;
            page.next = self.partial;
            self.partial = number;
        }
        // As long as it is the only one, the first page keeps its memory.
        if page.free == Self::ALL && self.pages.len() > 1 {
            self.emptied(number);
        }
    }

    /// Frees the memory of a page in which nothing is live, except the first page's and, while
    /// something is live, one other's.
    fn emptied(&mut self, number: u32) {
        if self.len == 0 && self.pages.len() > KEPT_PAGES {
            // After a peak even the records go.
            *self = Pages::default();
        } else if self.len == 0 {
            for page in &mut self.pages.others {
                page.give_back();
            }
            self.spare = false;
        } else if number > 0 && std::mem::replace(&mut self.spare, true) {
            self.pages[number].give_back();
        }
    }

    /// Returns the first index in use at or after `index`.
    pub fn first_from(&self, index: u32) -> Option<u32> {
        let first = index >> N::PAGE_BITS;
        for number in first..self.pages.len() as u32 {
            let page = &self.pages[number];
            // Without memory a page has no free bits either, and nothing live.
            let mut live = if page.slots.is_empty() {
                0
            } else {
                !page.free & Self::ALL
            };
            if number == first {
                // Without the slots before `index`.
                live &= u64::MAX << offset::<N>(index);
            }
            if live != 0 {
                return Some(number << N::PAGE_BITS | live.trailing_zeros());
            }
        }
        None
    }

    /// Returns the number of pages that have memory, for tests.
    pub fn pages_with_memory(&self) -> usize {
        let has_memory = |page: &&Page<N>| !page.slots.is_empty();
        let others = self.pages.others.iter().filter(has_memory).count();
        others + usize::from(has_memory(&&self.pages.first))
    }
}

impl<N> Default for Pages<N> {
    /// No page has memory yet.
    fn default() -> Self {
        let pages = PageTable {
            first: Page::without_memory(),
            others: Vec::new(),
        };
        Pages {
            pages,
            partial: END,
            vacant: 0,
            len: 0,
            spare: false,
        }
    }
}

fn offset<N: PageSlot>(index: u32) -> usize {
    (index & ((1 << N::PAGE_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Slot;

    impl PageSlot for Slot {
        const PAGE_BITS: u32 = 4;
        const MAX: u32 = 1 << 12;

        fn vacant() -> Self {
            Slot
        }
    }

    #[test]
    fn a_peak_is_given_back_but_for_one_page() {
        let mut pages = Pages::<Slot>::default();
        let indices: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert_eq!(pages.pages_with_memory(), 250);
        // In an order unlike that of claiming.
        for step in 1..4000 {
            pages.release(indices[step * 1009 % 4000]);
        }
        assert_eq!(
            (pages.len(), pages.pages_with_memory(), pages.pages.len()),
            (1, 2, 250)
        );
        pages.release(indices[0]);
        assert_eq!(
            (
                pages.len(),
                pages.pages_with_memory(),
                pages.pages.others.capacity()
            ),
            (0, 0, 0)
        );
        let again: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert!(!pages.is_empty() && again == indices);
    }

    #[test]
    fn a_page_costs_32_bytes() {
        assert_eq!(size_of::<Page<Slot>>(), 32);
    }

    #[test]
    fn the_first_page_and_one_other_stay() {
        let mut pages = Pages::<Slot>::default();
        for _ in 0..96 {
            pages.claim();
        }
        for index in (16..64).chain(0..16) {
            pages.release(index);
        }
        assert_eq!(pages.pages_with_memory(), 4, "two are in use");
        pages.release(79);
        assert_eq!((pages.claim(), pages.claim()), (Some(79), Some(0)));
        for index in 80..96 {
            pages.release(index);
        }
        assert_eq!(pages.pages_with_memory(), 3, "the other is there already");
        assert_eq!((0..16).filter_map(|_| pages.claim()).last(), Some(16));
        pages.release(16);
        assert_eq!(pages.pages_with_memory(), 3, "the other again");
    }

    #[test]
    fn a_near_slot_is_claimed_once() {
        let mut pages = Pages::<Slot>::default();
        let mut claims = |index| pages.claim_near(index).is_some();
        assert!(claims(5) && !claims(5) && claims(6));
        let others: Vec<_> = (0..14).map(|_| pages.claim().unwrap()).collect();
        assert!(pages.len() == 16 && others.iter().all(|&at| at < 16 && at != 5 && at != 6));
        pages.release(5);
        assert!(pages.claim_near(5).is_some());
    }

    #[test]
    fn when_all_are_in_use_there_is_none_to_claim() {
        let mut pages = Pages::<Slot>::default();
        for _ in 0..Slot::MAX {
            assert!(pages.claim().is_some());
        }
        assert_eq!(pages.claim(), None);
        pages.release(77);
        assert_eq!(pages.claim(), Some(77));
    }
}
