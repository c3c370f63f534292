//! `Floors`: the generations that the slots of [`Pages`](crate::wheel::pages) must not forget when
//! the memory of their page goes. Pure arithmetic.
//!
//! A slot's *names* are its generations from 0 to a limit: each is given out once, or never. For a
//! page without memory one number is kept, its *floor*, the highest generation of its slots. All
//! of them go on from there, so the names below it that were not given out are lost. That may be
//! most of a page's names, where one slot was hot and the others cold, again and again.
//!
//! - **Half**: of all names at least half are given out, whatever comes and goes. There is *credit*
//!   of a quarter of all names at first, and each two names given out earn one more; a floor is
//!   raised only if the credit covers the names lost by it. So `lost <= names / 4 + given / 2`, and
//!   when none is left `given + lost = names`, hence `given >= names / 2`.
//! - **Apart**: a page whose floor the credit does not cover keeps the generation of each slot, 4
//!   bytes each, and loses none.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Floors {
    /// Below which the generations of a slot lie that are given out.
    limit: u32,
    /// A floor a page; 0 beyond the end.
    floors: Vec<u32>,
    /// The generation of each slot: see Apart.
    apart: BTreeMap<u32, Box<[u32]>>,
    /// How many names may still be lost.
    credit: u64,
    /// One above the last page of which all names are used up.
    used_up_to: u32,
}

impl Floors {
    /// For so many slots of `limit` names each.
    pub(crate) fn new(slots: u32, limit: u32) -> Self {
        let names = u64::from(slots) * u64::from(limit);
        Floors {
            limit,
            floors: Vec::new(),
            apart: BTreeMap::new(),
            credit: names / 4,
            used_up_to: 0,
        }
    }

    /// The memory of `page` goes: remembers the generations of its slots. O(slots of a page).
    pub(crate) fn remember(
        &mut self,
        page: u32,
        generations: impl ExactSizeIterator<Item = u32> + Clone,
    ) {
        let slots = generations.len() as u64;
        let floor = self.floor(page);
        let sum_and_top = |(sum, top): (u64, u32), g: u32| (sum + u64::from(g), top.max(g));
        let (sum, top) = generations.clone().fold((0, floor), sum_and_top);
        let given = sum - slots * u64::from(floor); // since the floor was raised last
        let lost = slots * u64::from(top) - sum;
        let Some(credit) = (self.credit + given / 2).checked_sub(lost) else {
            self.apart.insert(page, generations.collect());
            return;
        };
        self.credit = credit;
        if self.floors.len() <= page as usize {
            self.floors.resize(page as usize + 1, 0);
        }
        self.floors[page as usize] = top;
        if top == self.limit {
            self.used_up_to = self.used_up_to.max(page + 1);
        }
    }

    /// The floor of a page that is not apart.
    pub(crate) fn floor(&self, page: u32) -> u32 {
        self.floors.get(page as usize).copied().unwrap_or(0)
    }

    /// The generations of a page that was apart, which gets memory.
    pub(crate) fn take_apart(&mut self, page: u32) -> Option<Box<[u32]>> {
        self.apart.remove(&page)
    }

    /// All names of this page are used up.
    pub(crate) fn is_used_up(&self, page: u32) -> bool {
        self.floor(page) == self.limit
    }

    /// One above the last page that is used up; 0 if none is.
    pub(crate) fn used_up_to(&self) -> u32 {
        self.used_up_to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Floors {
        pub(crate) fn pages_apart(&self) -> usize {
            self.apart.len()
        }

        pub(crate) fn pages_known(&self) -> usize {
            self.floors.len()
        }
    }

    fn floors() -> Floors {
        Floors::new(16, 100) // 1600 names, a credit of 400
    }

    #[test]
    fn a_floor_is_raised_while_the_credit_covers_what_is_lost() {
        let mut floors = floors();
        floors.remember(3, [40, 0, 0, 0].into_iter()); // 40 given, 120 lost
        assert_eq!((floors.floor(3), floors.credit), (40, 400 + 20 - 120));
        assert_eq!(floors.floor(2), 0);
        floors.remember(0, [0, 0, 99, 1].into_iter()); // 100 given, 296 lost
        assert_eq!((floors.floor(0), floors.credit), (99, 300 + 50 - 296));
        floors.remember(1, [0, 30, 0, 1].into_iter()); // 31 given, 89 lost: not covered
        assert_eq!((floors.floor(1), floors.credit), (0, 54));
        assert_eq!(floors.take_apart(1).as_deref(), Some(&[0, 30, 0, 1][..]));
        assert_eq!(floors.take_apart(1), None);
        floors.remember(1, [20, 30, 20, 25].into_iter()); // 95 given in all, 25 lost
        assert_eq!((floors.floor(1), floors.credit), (30, 54 + 47 - 25));
    }

    #[test]
    fn what_was_given_below_a_floor_is_not_counted_again() {
        let mut floors = floors();
        floors.remember(0, [50, 50, 50, 50].into_iter());
        assert_eq!(floors.credit, 500);
        (0..9).for_each(|_| floors.remember(0, [50, 50, 50, 50].into_iter()));
        assert_eq!(floors.credit, 500);
    }

    #[test]
    fn a_page_is_used_up_when_its_floor_is_the_limit() {
        let mut floors = floors();
        floors.remember(1, [100, 99, 100, 100].into_iter());
        assert_eq!(
            (floors.is_used_up(1), floors.is_used_up(0), floors.used_up_to()),
            (true, false, 2)
        );
        floors.remember(0, [100, 100, 100, 100].into_iter());
        assert_eq!((floors.is_used_up(0), floors.used_up_to()), (true, 2));
    }

    #[test]
    fn a_page_apart_with_a_slot_that_is_used_up_is_not() {
        let mut floors = Floors::new(4, 100);
        floors.remember(0, [100, 0, 0, 0].into_iter()); // 300 to lose, a credit of 100 and 50
        assert_eq!(
            (floors.is_used_up(0), floors.used_up_to(), floors.pages_apart()),
            (false, 0, 1)
        );
    }

    #[test]
    fn half_of_a_wheels_names_last_a_century_at_ten_million_a_second() {
        use crate::wheel::arena::{GENERATIONS, MAX_TASKS};
        let names = u64::from(MAX_TASKS) * u64::from(GENERATIONS);
        assert!(names / 2 / 10_000_000 > 100 * 366 * 24 * 60 * 60);
    }
}
