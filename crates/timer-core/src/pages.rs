//! `Pages`: slots with stable indices, in pages of up to 64 that come and go with what is live.
//!
//! The one slab of this project: under the wheel's nodes ([`arena`](crate::TimingWheel)) and under
//! the watches of `purgatory`. Pages (not one doubling vector) grow without copying a slot, cost at
//! most a page above what is live while nothing leaves, and let a peak go: every page that empties
//! gives its memory back, but for one. What stays of a peak is a record of 48 bytes a page, until
//! nothing is in use.
//!
//! - **Floor**: what a page's slots must not forget when its memory goes (the highest generation
//!   used) is kept with the page, and handed to the slots that take their place.
//! - **Listed**: a page is on one list at most: `partial` (it has a free slot, or was freed since)
//!   or `vacant` (it has no memory).

/// A slot of [`Pages`].
pub trait Slot {
    /// log2 of the slots in a page; at most 6.
    const PAGE_BITS: u32;
    /// At most so many slots.
    const MAX: u32;

    /// A free slot in a page with this floor.
    fn vacant(floor: u32) -> Self;

    /// What the page's floor must be at least when this slot's memory goes; `u32::MAX` for a
    /// slot, and so a page, that must not be used again.
    fn floor(&self) -> u32;
}

/// Of so many pages the records (48 bytes each) are kept when nothing is in use.
const KEPT_PAGES: usize = 64;

/// The end of a list of pages.
const END: u32 = u32::MAX;

#[derive(Debug)]
struct Page<N> {
    /// Empty when the memory was given back.
    slots: Box<[N]>,
    live: u64,
    /// Slots that can be used: neither live nor retired.
    free: u64,
    floor: u32,
    /// The next page on the list this one is on.
    next: u32,
    listed: bool,
}

/// Slots `N` with stable indices.
#[derive(Debug)]
pub struct Pages<N> {
    pages: Vec<Page<N>>,
    partial: u32,
    vacant: u32,
    len: u32,
    /// Pages that have memory and nothing live: at most one.
    empty: u32,
    /// Floor of the pages to be made.
    base: u32,
    /// A slot was used up: its page must be remembered for good.
    worn: bool,
}

impl<N: Slot> Pages<N> {
    /// No page yet.
    pub fn new() -> Self {
        Pages {
            pages: Vec::new(),
            partial: END,
            vacant: END,
            len: 0,
            empty: 0,
            base: 0,
            worn: false,
        }
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a free slot into use; `None` when all [`Slot::MAX`] are. O(1).
    #[inline]
    pub fn claim(&mut self) -> Option<u32> {
        let number = match self.pages.get(self.partial as usize) {
            Some(page) if !page.slots.is_empty() => self.partial,
            _ => self.page_with_room()?,
        };
        let page = &mut self.pages[number as usize];
        if page.live == 0 {
            self.empty -= 1;
        }
        let offset = page.free.trailing_zeros();
        page.free &= !(1 << offset);
        page.live |= 1 << offset;
        if page.free == 0 {
            page.listed = false;
            self.partial = page.next;
        }
        self.len += 1;
        Some(number << N::PAGE_BITS | offset)
    }

    /// The page at the head of `partial`, made if need be.
    #[cold]
    fn page_with_room(&mut self) -> Option<u32> {
        while self.partial != END {
            let number = self.partial;
            let page = &mut self.pages[number as usize];
            if !page.slots.is_empty() {
                return Some(number);
            }
            self.partial = page.next;
            if page.floor == u32::MAX {
                page.listed = false; // Retire: a slot was used up after the page was listed
                continue;
            }
            page.next = self.vacant;
            self.vacant = number;
        }
        let number = if self.vacant == END {
            let number = self.pages.len() as u32;
            if number >= N::MAX >> N::PAGE_BITS {
                return None;
            }
            let slots = Box::default();
            let floor = self.base;
            self.pages.push(Page { slots, live: 0, free: 0, floor, next: END, listed: true });
            number
        } else {
            let number = self.vacant;
            self.vacant = self.pages[number as usize].next;
            number
        };
        let page = &mut self.pages[number as usize];
        let floor = page.floor;
        page.slots = std::iter::repeat_with(|| N::vacant(floor)).take(1 << N::PAGE_BITS).collect();
        page.free = all::<N>();
        page.next = self.partial;
        self.partial = number;
        self.empty += 1;
        Some(number)
    }

    /// The slot at `index`, in use or not, unless its page has no memory.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&N> {
        let page = self.pages.get((index >> N::PAGE_BITS) as usize)?;
        page.slots.get(offset::<N>(index))
    }

    /// See [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut N> {
        let page = self.pages.get_mut((index >> N::PAGE_BITS) as usize)?;
        page.slots.get_mut(offset::<N>(index))
    }

    /// The slot at an index that is in use.
    #[inline]
    pub fn at(&self, index: u32) -> &N {
        &self.pages[(index >> N::PAGE_BITS) as usize].slots[offset::<N>(index)]
    }

    /// See [`at`](Self::at).
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> &mut N {
        &mut self.pages[(index >> N::PAGE_BITS) as usize].slots[offset::<N>(index)]
    }

    /// Gives a slot that is in use back; for good if its floor is `u32::MAX`. O(1), but for the
    /// freeing of an emptied page.
    #[inline]
    pub fn release(&mut self, index: u32) {
        let number = index >> N::PAGE_BITS;
        let page = &mut self.pages[number as usize];
        let bit = 1 << offset::<N>(index);
        debug_assert!(page.live & bit != 0, "only a slot in use is released");
        page.live &= !bit;
        self.len -= 1;
        if page.slots[offset::<N>(index)].floor() == u32::MAX {
            self.worn = true;
        } else {
            page.free |= bit;
        }
        if page.live == 0 {
            if self.empty == 0 && page.free != 0 {
                self.empty = 1;
            } else {
                page.floor = page.slots.iter().map(N::floor).max().unwrap_or(page.floor);
                page.slots = Box::default();
                page.free = 0;
            }
        }
        let usable = page.free != 0 || (page.live == 0 && page.floor != u32::MAX);
        if usable && !page.listed {
            page.listed = true;
            page.next = self.partial;
            self.partial = number;
        }
        if self.len == 0 && self.pages.len() > KEPT_PAGES && !self.worn {
            self.forget_pages();
        }
    }

    /// Nothing is in use: gives the pages' own records back too. One floor stands for all.
    fn forget_pages(&mut self) {
        let slots = self.pages.iter().flat_map(|page| page.slots.iter().map(N::floor));
        let floors = self.pages.iter().map(|page| page.floor);
        let base = slots.chain(floors).fold(self.base, u32::max);
        *self = Pages { base, ..Pages::new() };
    }

    /// The first index in use at or after `index`.
    pub fn first_from(&self, index: u32) -> Option<u32> {
        let first = index >> N::PAGE_BITS;
        for number in first..self.pages.len() as u32 {
            let mut live = self.pages[number as usize].live;
            if number == first {
                live &= u64::MAX << offset::<N>(index);
            }
            if live != 0 {
                return Some(number << N::PAGE_BITS | live.trailing_zeros());
            }
        }
        None
    }

    /// Pages that have memory, for tests.
    pub fn pages_with_memory(&self) -> usize {
        self.pages.iter().filter(|page| !page.slots.is_empty()).count()
    }
}

impl<N: Slot> Default for Pages<N> {
    fn default() -> Self {
        Pages::new()
    }
}

fn offset<N: Slot>(index: u32) -> usize {
    (index & ((1 << N::PAGE_BITS) - 1)) as usize
}

fn all<N: Slot>() -> u64 {
    u64::MAX >> (64 - (1u32 << N::PAGE_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot that counts how often it was released.
    #[derive(Debug)]
    struct Uses(u32);

    impl Slot for Uses {
        const PAGE_BITS: u32 = 4;
        const MAX: u32 = 1 << 12;

        fn vacant(floor: u32) -> Self {
            Uses(floor)
        }

        fn floor(&self) -> u32 {
            self.0
        }
    }

    fn release(pages: &mut Pages<Uses>, index: u32) {
        pages.at_mut(index).0 += 1;
        pages.release(index);
    }

    #[test]
    fn a_peak_is_given_back_but_for_one_page() {
        let mut pages = Pages::<Uses>::new();
        let indices: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert_eq!(pages.pages_with_memory(), 250);
        // In an order unlike that of claiming.
        (0..4000).for_each(|step| release(&mut pages, indices[step * 1009 % 4000]));
        assert_eq!((pages.len(), pages.pages_with_memory(), pages.pages.capacity()), (0, 0, 0));
        let again: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert!(again.iter().all(|&index| pages.at(index).0 >= 1), "a floor was forgotten");
    }

    #[test]
    fn of_the_pages_that_empty_one_keeps_its_memory() {
        let mut pages = Pages::<Uses>::new();
        let indices: Vec<_> = (0..400).map(|_| pages.claim().unwrap()).collect();
        indices.iter().for_each(|&index| release(&mut pages, index));
        assert_eq!((pages.len(), pages.pages_with_memory()), (0, 1));
    }

    #[test]
    fn a_freed_page_comes_back_with_its_floor() {
        let mut pages = Pages::<Uses>::new();
        let indices: Vec<_> = (0..64).map(|_| pages.claim().unwrap()).collect();
        pages.at_mut(indices[20]).0 = 99; // in the second page
        indices.iter().for_each(|&index| release(&mut pages, index));
        let again: Vec<_> = (0..64).map(|_| pages.claim().unwrap()).collect();
        assert!(again.iter().filter(|&index| index >> 4 == 1).all(|&i| pages.at(i).0 >= 100));
        assert_eq!(again.iter().max(), indices.iter().max());
    }

    #[test]
    fn a_slot_and_a_page_that_are_used_up_are_not_used_again() {
        let mut pages = Pages::<Uses>::new();
        for _ in 0..16 {
            let index = pages.claim().unwrap();
            assert!(index < 16);
            pages.at_mut(index).0 = u32::MAX;
            pages.release(index);
        }
        assert_eq!(pages.pages_with_memory(), 0);
        assert_eq!(pages.claim(), Some(16));
    }

    #[test]
    fn a_page_that_empties_with_a_slot_used_up_is_not_handed_out_again() {
        let mut pages = Pages::<Uses>::new();
        let all: Vec<_> = (0..32).map(|_| pages.claim().unwrap()).collect();
        all[16..].iter().for_each(|&index| release(&mut pages, index)); // the empty page kept
        pages.at_mut(0).0 = u32::MAX - 1;
        all[..16].iter().for_each(|&index| release(&mut pages, index));
        let again: Vec<_> = (0..64).map(|_| pages.claim().unwrap()).collect();
        assert!(again.iter().all(|&index| pages.at(index).0 != u32::MAX), "{again:?}");
    }

    #[test]
    fn records_of_pages_with_a_slot_used_up_are_kept() {
        let mut pages = Pages::<Uses>::new();
        let all: Vec<_> = (0..2000).map(|_| pages.claim().unwrap()).collect();
        pages.at_mut(7).0 = u32::MAX - 1;
        all.iter().for_each(|&index| release(&mut pages, index));
        assert!((0..2000).all(|_| pages.claim().unwrap() != 7));
    }

    #[test]
    fn when_all_are_in_use_there_is_none_to_claim() {
        let mut pages = Pages::<Uses>::new();
        (0..Uses::MAX).for_each(|_| assert!(pages.claim().is_some()));
        assert_eq!(pages.claim(), None);
        release(&mut pages, 77);
        assert_eq!(pages.claim(), Some(77));
    }

    #[test]
    fn slots_in_use_are_walked_in_order() {
        let mut pages = Pages::<Uses>::new();
        (0..200).for_each(|_| _ = pages.claim());
        (0..200).step_by(3).for_each(|index| release(&mut pages, index));
        let next = |from: &u32| pages.first_from(from + 1);
        let seen: Vec<_> = std::iter::successors(pages.first_from(0), next).collect();
        assert_eq!(seen, (0..200).filter(|index| index % 3 != 0).collect::<Vec<_>>());
    }
}
