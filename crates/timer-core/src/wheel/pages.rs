//! `Pages`: slots with stable indices, in pages of up to 64 that come and go with what is live.
//!
//! The one slab of this project: under the wheel's nodes ([`arena`](crate::TimingWheel)) and under
//! the watches of `purgatory`. Pages (not one doubling vector) grow without copying a slot, cost at
//! most a page above what is live while nothing leaves, and let a peak go: every page that empties
//! gives its memory back, but for one. What stays of a peak is a record of 40 bytes a page, until
//! nothing is in use and the owner takes them off; and for slots with generations the page's floor
//! (`floors`).
//!
//! - **Retire**: a slot that has reached [`PageSlot::GENERATIONS`] is never used again, and a page
//!   of such slots has no memory. Its record stays for good, as do those of the pages before it.
//! - **Floor**: what a page's slots must not forget when its memory goes is kept, and handed to the
//!   slots that take their place.
//! - **Listed**: a page is on one list at most: `partial` (it has a free slot, or was freed since)
//!   or `vacant` (it has no memory). A page with a free slot is on `partial`.

use crate::wheel::floors::Floors;

/// A slot of [`Pages`].
pub trait PageSlot {
    /// log2 of the slots in a page; at most 6.
    const PAGE_BITS: u32;
    /// At most so many slots.
    const MAX: u32;
    /// How often a slot is used at most; `u32::MAX` for slots that have no generations.
    const GENERATIONS: u32 = u32::MAX;

    /// A free slot that was used so often.
    fn vacant(generation: u32) -> Self;

    /// How often the slot was used, or more: what the slot that takes its place begins with.
    fn generation(&self) -> u32 {
        0
    }

    /// The slot must not be used again (Retire).
    fn is_used_up(&self) -> bool {
        self.generation() == Self::GENERATIONS
    }
}

/// When nothing is in use, the records (40 bytes each) of so many pages are kept.
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
    /// The next page on the list this one is on.
    next: u32,
    listed: bool,
}

/// Records of pages that are gone.
#[derive(Debug)]
pub struct Records<N>(#[expect(dead_code, reason = "to be dropped")] Vec<Page<N>>);

/// Slots `N` with stable indices.
#[derive(Debug)]
pub struct Pages<N> {
    pages: Vec<Page<N>>,
    partial: u32,
    vacant: u32,
    len: u32,
    /// Pages that have memory and nothing live: at most one.
    empty: u32,
    /// Made when the first page of slots with generations gives its memory back.
    floors: Option<Box<Floors>>,
}

impl<N: PageSlot> Pages<N> {
    /// No page yet.
    pub fn new() -> Self {
        Pages { pages: Vec::new(), partial: END, vacant: END, len: 0, empty: 0, floors: None }
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a free slot into use; `None` when all [`PageSlot::MAX`] are, or are used up. O(1), but
    /// for the making of a page.
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
            if self.floors.as_ref().is_some_and(|floors| floors.is_used_up(number)) {
                page.listed = false; // Retire: the last of its names are lost
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
            self.pages.push(Page { slots, live: 0, free: 0, next: END, listed: true });
            number
        } else {
            let number = self.vacant;
            self.vacant = self.pages[number as usize].next;
            number
        };
        self.give_memory(number);
        let page = &mut self.pages[number as usize];
        page.next = self.partial;
        self.partial = number;
        self.empty += 1;
        Some(number)
    }

    /// New slots for a page, above what it had (Floor).
    fn give_memory(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        let apart = self.floors.as_mut().and_then(|floors| floors.take_apart(number));
        if let Some(generations) = apart {
            page.slots = generations.iter().map(|&generation| N::vacant(generation)).collect();
            page.free = (0..)
                .zip(&*page.slots)
                .filter(|(_, slot)| !slot.is_used_up())
                .fold(0, |free, (offset, _)| free | 1 << offset);
            return;
        }
        let floor = self.floors.as_ref().map_or(0, |floors| floors.floor(number));
        let slots = std::iter::repeat_with(|| N::vacant(floor));
        page.slots = slots.take(1 << N::PAGE_BITS).collect();
        page.free = u64::MAX >> (64 - page.slots.len());
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

    /// Gives a slot that is in use back; for good at [`PageSlot::GENERATIONS`]. O(1), but for the
    /// freeing of an emptied page.
    #[inline]
    pub fn release(&mut self, index: u32) {
        let number = index >> N::PAGE_BITS;
        let page = &mut self.pages[number as usize];
        let bit = 1 << offset::<N>(index);
        debug_assert!(page.live & bit != 0, "only a slot in use is released");
        page.live &= !bit;
        self.len -= 1;
        if !page.slots[offset::<N>(index)].is_used_up() {
            page.free |= bit;
        }
        if page.free != 0 && !page.listed {
            page.listed = true;
            page.next = self.partial;
            self.partial = number;
        }
        if page.live == 0 {
            if self.empty == 0 && page.free != 0 {
                self.empty = 1;
            } else {
                self.give_back(number);
            }
        }
    }

    /// True when [`take_records`](Self::take_records) may find some. O(1).
    #[inline]
    pub fn is_untidy(&self) -> bool {
        self.len == 0 && self.pages.len() > KEPT_PAGES
    }

    /// Gives the pages' records back, if nothing is in use. O(1), or O(slots of the peak).
    #[inline]
    pub fn tidy(&mut self) {
        if self.is_untidy() {
            drop(self.forget_pages());
        }
    }

    /// As [`tidy`](Self::tidy), for an owner who drops them when nobody waits for it: they are one
    /// large block, and an allocator may take a long time to free it.
    #[inline]
    pub fn take_records(&mut self) -> Option<Records<N>> {
        self.is_untidy().then(|| Records(self.forget_pages()))
    }

    /// Gives the memory of a page back in which nothing is live.
    #[cold]
    fn give_back(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        if N::GENERATIONS < u32::MAX {
            let new = || Box::new(Floors::new(N::MAX, N::GENERATIONS));
            let generations = page.slots.iter().map(N::generation);
            self.floors.get_or_insert_with(new).remember(number, generations);
        }
        page.slots = Box::default();
        page.free = 0;
    }

    /// Nothing is in use: gives the pages' own records back too, but for those that Retire needs.
    /// Does nothing when these are nearly all, so that it takes O(1) a page that was made.
    #[cold]
    fn forget_pages(&mut self) -> Vec<Page<N>> {
        if self.pages.len() <= KEPT_PAGES + 2 * self.retired_records() {
            return Vec::new();
        }
        let with_memory = self.pages.iter().position(|page| !page.slots.is_empty());
        with_memory.into_iter().for_each(|number| self.give_back(number as u32));
        let kept = self.retired_records(); // that page's may be one of them now
        let mut gone = std::mem::take(&mut self.pages);
        self.pages = gone.drain(..kept).collect();
        (self.partial, self.vacant, self.empty) = (END, END, 0);
        for number in (0..kept as u32).rev() {
            let page = &mut self.pages[number as usize];
            page.listed = self.floors.as_ref().is_some_and(|floors| !floors.is_used_up(number));
            if page.listed {
                page.next = self.vacant;
                self.vacant = number;
            }
        }
        gone
    }

    /// How many records are kept for good: up to that of the last page that is used up.
    fn retired_records(&self) -> usize {
        self.floors.as_ref().map_or(0, |floors| floors.used_up_to() as usize)
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

impl<N: PageSlot> Default for Pages<N> {
    fn default() -> Self {
        Pages::new()
    }
}

fn offset<N: PageSlot>(index: u32) -> usize {
    (index & ((1 << N::PAGE_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A slot that counts how often it was released.
    #[derive(Debug)]
    struct Uses(u32);

    impl PageSlot for Uses {
        const PAGE_BITS: u32 = 4;
        const MAX: u32 = 1 << 12;
        const GENERATIONS: u32 = 1 << 20;

        fn vacant(generation: u32) -> Self {
            Uses(generation)
        }

        fn generation(&self) -> u32 {
            self.0
        }
    }

    /// One of few that soon are used up: 512 slots of 64 names in 128 pages.
    #[derive(Debug)]
    struct Few(u32);

    impl PageSlot for Few {
        const PAGE_BITS: u32 = 2;
        const MAX: u32 = 1 << 9;
        const GENERATIONS: u32 = 1 << 6;

        fn vacant(generation: u32) -> Self {
            Few(generation)
        }

        fn generation(&self) -> u32 {
            self.0
        }
    }

    fn release(pages: &mut Pages<Uses>, index: u32) {
        pages.at_mut(index).0 += 1;
        pages.release(index);
    }

    fn apart<N>(pages: &Pages<N>) -> usize {
        pages.floors.as_ref().map_or(0, |floors| floors.pages_apart())
    }

    #[test]
    fn a_peak_is_given_back_but_for_one_page() {
        let mut pages = Pages::<Uses>::new();
        let indices: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert_eq!(pages.pages_with_memory(), 250);
        // In an order unlike that of claiming.
        (0..4000).for_each(|step| release(&mut pages, indices[step * 1009 % 4000]));
        assert_eq!((pages.len(), pages.pages_with_memory(), pages.pages.len()), (0, 1, 250));
        assert!(pages.is_untidy());
        pages.tidy();
        assert!(!pages.is_untidy());
        assert_eq!((pages.len(), pages.pages_with_memory(), pages.pages.capacity()), (0, 0, 0));
        assert!(pages.is_empty());
        let again: Vec<_> = (0..4000).map(|_| pages.claim().unwrap()).collect();
        assert!(again.iter().all(|&index| pages.at(index).0 >= 1), "a floor was forgotten");
        assert!(!pages.is_empty());
    }

    #[test]
    fn of_slots_without_generations_there_stays_no_floor() {
        #[derive(Debug)]
        struct Nameless;

        impl PageSlot for Nameless {
            const PAGE_BITS: u32 = 4;
            const MAX: u32 = 1 << 12;

            fn vacant(_: u32) -> Self {
                Nameless
            }
        }

        let mut pages = Pages::<Nameless>::new();
        let indices: Vec<_> = (0..400).map(|_| pages.claim().unwrap()).collect();
        indices.iter().for_each(|&index| pages.release(index));
        assert!(pages.pages_with_memory() == 1 && pages.floors.is_none());
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
            pages.at_mut(index).0 = Uses::GENERATIONS;
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
        pages.at_mut(0).0 = Uses::GENERATIONS - 1;
        all[..16].iter().for_each(|&index| release(&mut pages, index));
        let again: Vec<_> = (0..64).map(|_| pages.claim().unwrap()).collect();
        assert!(again.iter().all(|&index| !pages.at(index).is_used_up()), "{again:?}");
    }

    #[test]
    fn records_are_kept_up_to_the_last_page_that_is_used_up() {
        let mut pages = Pages::<Uses>::new();
        for round in 1..4 {
            let all: Vec<_> = (0..2000).map(|_| pages.claim().unwrap()).collect();
            assert!(all.iter().all(|index| round == 1 || !(32..48).contains(index)), "Retire");
            let known = all.iter().filter(|&&index| index < 2000);
            assert!(known.clone().all(|&index| pages.at(index).0 == round - 1), "Floor");
            assert!(known.count() >= 2000 - 16);
            if round == 1 {
                pages.at_mut(37).0 = Uses::GENERATIONS - 1; // its page goes with it
            }
            all.iter().for_each(|&index| release(&mut pages, index));
            pages.tidy();
            assert_eq!((pages.pages.len(), pages.pages_with_memory(), apart(&pages)), (3, 0, 0));
        }
    }

    #[test]
    fn the_last_page_may_be_used_up_just_when_the_records_are_forgotten() {
        let mut pages = Pages::<Uses>::new();
        let all: Vec<_> = (0..2000).map(|_| pages.claim().unwrap()).collect();
        pages.at_mut(35).0 = Uses::GENERATIONS - 1;
        // Page 2 empties first, and keeps its memory until nothing is in use.
        all[32..48].iter().for_each(|&index| release(&mut pages, index));
        all[..32].iter().chain(&all[48..]).for_each(|&index| release(&mut pages, index));
        pages.tidy();
        assert_eq!((pages.pages.len(), pages.pages_with_memory()), (3, 0));
        assert!((0..2000).all(|_| pages.claim().unwrap() >> 4 != 2), "Retire");
    }

    #[test]
    fn of_a_million_there_stays_a_floor_a_page() {
        #[derive(Debug)]
        struct Task(u32);

        impl PageSlot for Task {
            const PAGE_BITS: u32 = 6;
            const MAX: u32 = 1 << 26;
            const GENERATIONS: u32 = (1 << 30) - 1;

            fn vacant(generation: u32) -> Self {
                Task(generation)
            }

            fn generation(&self) -> u32 {
                self.0
            }
        }

        let mut pages = Pages::<Task>::new();
        let mut random = Random(1);
        for _ in 0..3 {
            let mut indices: Vec<_> = (0..1 << 20).map(|_| pages.claim().unwrap()).collect();
            pages.at_mut(indices[0]).0 += 300_000_000; // one was hot
            for _ in 0..1 << 18 {
                let at = random.below(indices.len()); // and some come and go
                pages.at_mut(indices[at]).0 += 1;
                pages.release(indices[at]);
                indices[at] = pages.claim().unwrap();
            }
            for index in indices {
                pages.at_mut(index).0 += 1;
                pages.release(index);
            }
            pages.tidy();
            assert_eq!((pages.pages.capacity(), pages.pages_with_memory()), (0, 0));
            let floors = pages.floors.as_ref().unwrap();
            assert_eq!((floors.pages_known(), floors.pages_apart()), ((1 << 20) / 64, 0));
        }
    }

    #[test]
    fn a_page_costs_40_bytes() {
        assert_eq!(size_of::<Page<Uses>>(), 40);
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % bound
        }
    }

    /// Slots of which every name is noted.
    #[derive(Default)]
    struct Named {
        pages: Pages<Few>,
        live: Vec<u32>,
        given: HashSet<(u32, u32)>,
        most_apart: usize,
        forgot: usize,
        retired: HashSet<u32>,
    }

    impl Named {
        /// False when there is none to claim.
        fn claim(&mut self) -> bool {
            let Some(index) = self.pages.claim() else { return false };
            let generation = self.pages.at(index).0;
            assert!(index < Few::MAX && generation < Few::GENERATIONS, "{index}v{generation}");
            assert!(!self.retired.contains(&index), "Retire: {index}");
            assert!(self.given.insert((index, generation)), "given twice: {index}v{generation}");
            self.live.push(index);
            true
        }

        fn release(&mut self, at: usize) {
            let index = self.live.swap_remove(at);
            let slot = self.pages.at_mut(index);
            slot.0 += 1;
            if slot.is_used_up() {
                self.retired.insert(index);
            }
            let records = self.pages.pages.len();
            self.pages.release(index);
            if !self.given.len().is_multiple_of(4) {
                self.pages.tidy(); // or later, or never
            }
            self.forgot += usize::from(self.pages.pages.len() < records);
            self.most_apart = self.most_apart.max(apart(&self.pages));
        }

        fn assert_given_back(&self) {
            assert_eq!(self.pages.len(), self.live.len());
            let in_use: HashSet<_> =
                self.live.iter().map(|index| index >> Few::PAGE_BITS).collect();
            assert!(self.pages.pages_with_memory() <= in_use.len() + 1, "a peak is given back");
        }

        /// All names there are were given out or lost, and at least half of them were given out.
        fn assert_half(&self) {
            assert!(self.live.is_empty());
            let names = (Few::MAX * Few::GENERATIONS) as usize;
            assert!(self.given.len() >= names / 2, "{} of {names}", self.given.len());
        }
    }

    #[test]
    fn at_least_half_of_all_names_are_given_out_and_none_twice() {
        let (mut apart, mut forgot) = (0, 0);
        for seed in 0..8 {
            let (mut named, mut random) = (Named::default(), Random(seed));
            while named.claim() || !named.live.is_empty() {
                // One is hot before others come; or any leave and others take their places.
                let hot = random.below(8) < seed as usize;
                let most = [3, 20, 512][random.below(3)];
                let peak = if hot { 8 } else { 1 + random.below(most) };
                let mut turns = random.below(60);
                while named.live.len() < peak || turns > 0 {
                    if turns > 0 && (hot || named.live.len() >= peak) {
                        turns -= 1;
                        let last = named.live.len() - 1;
                        named.release(if hot { last } else { random.below(last + 1) });
                    }
                    if !named.claim() {
                        break;
                    }
                }
                let left = if hot || random.below(2) == 0 { 0 } else { random.below(8) };
                while named.live.len() > left {
                    let last = named.live.len() - 1;
                    named.release(if hot { last } else { random.below(last + 1) });
                }
                named.assert_given_back();
            }
            named.assert_half();
            apart = apart.max(named.most_apart);
            forgot += named.forgot;
        }
        assert!(apart > 0 && forgot > 0, "the rare paths: {apart} apart, forgot {forgot} times");
    }

    #[test]
    fn the_worst_history_loses_no_more_than_half() {
        let mut named = Named::default();
        while named.claim() {
            for _ in 0..16 {
                named.release(0); // one task at a time: a slot that is hot
                if !named.claim() {
                    break;
                }
            }
            while named.live.len() < 8 && named.claim() {}
            (0..named.live.len()).rev().for_each(|at| named.release(at)); // its page goes last
            named.assert_given_back();
        }
        named.assert_half();
        assert!(named.most_apart > 0);
    }

    #[test]
    fn slot_after_slot_is_used_up_then_page_after_page_then_there_is_none() {
        let mut named = Named::default();
        while named.claim() {
            named.release(0);
            named.assert_given_back();
        }
        let names = (Few::MAX * Few::GENERATIONS) as usize;
        assert_eq!((named.given.len(), named.retired.len()), (names, Few::MAX as usize));
        assert_eq!((named.pages.pages_with_memory(), apart(&named.pages)), (0, 0));
        assert_eq!(named.pages.claim(), None);
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
