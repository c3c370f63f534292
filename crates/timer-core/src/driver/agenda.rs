//! [`Agenda`]: when each shard on a manual timer next has work.
//!
//! Nothing wakes a manual timer: it is asked for its next work, again and again while a test
//! settles. So it keeps the answers, and asks a shard only after that was locked:
//!
//! - **Marked**: each hold of a shard's lock on a manual timer ends with the shard's signal, which
//!   sets the shard's bit, and if that is the first of its word, lists the signal in [`Marks`]. So
//!   an answer that is kept holds as long as its bit is not set, and all of them as long as nothing
//!   is listed. Bits that were set before the owner was attached are taken as it is taken in.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Bound::{Excluded, Included},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    driver::{
        reaper::{Attached, Shared},
        shards::{Hear, ShardLook, WakeSignal, WheelOwner},
    },
    sync::plain::Mutex,
};

/// The signals of a manual timer's shards that were sent since they were last heard.
#[derive(Default)]
pub(crate) struct Marks {
    /// Weak: a signal refers to these marks. One may be there more than once.
    listed: Mutex<Vec<Weak<WakeSignal>>>,
    /// How often a signal was listed, or an owner attached.
    count: AtomicU64,
}

impl Hear for Marks {
    fn wake(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    fn hear(&self, signal: &Arc<WakeSignal>, is_first: bool) {
        // If it is not the first, its bit is taken with that one's.
        if is_first {
            self.listed.lock().push(Arc::downgrade(signal));
            self.wake();
        }
    }
}

/// The answers of a manual timer's shards, which it keeps.
#[derive(Default)]
pub(crate) struct Agenda {
    marks: Arc<Marks>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By number, which is the order in which they were attached.
    owners: BTreeMap<u64, Owner>,
    /// The number of each owner, by the address of its signal, which the owner here keeps alive.
    numbers: BTreeMap<usize, u64>,
    /// The number of the owner attached last.
    last: u64,
    /// The count of marks when all that were listed had been asked.
    marks_seen: u64,
    /// How often a shard was found changed, or an owner gone.
    changes: u64,
}

/// An owner of wheels, and the answers of its shards.
struct Owner {
    attached: Attached,
    shards: Vec<ShardLook>,
    /// The earliest of their next ticks.
    next_due: Option<u64>,
}

/// Owners that were upgraded under the lock: the last reference may be here, and is dropped with
/// nothing locked.
type Upgraded = Vec<Arc<dyn WheelOwner>>;

/// An owner with shards that are due.
pub(crate) struct DueOwner {
    pub(crate) number: u64,
    pub(crate) wheels: Arc<dyn WheelOwner>,
    pub(crate) shards: Vec<usize>,
}

impl Agenda {
    /// Returns the marks, which the shards' signals set.
    pub(crate) fn marks(&self) -> Arc<Marks> {
        self.marks.clone()
    }

    /// Returns the tick at which any shard next has work. O(owners), and the marked shards.
    pub(crate) fn next_due(&self, shared: &Shared) -> Option<u64> {
        self.up_to_date(shared, |known| {
            let dues = known.owners.values().filter_map(|owner| owner.next_due);
            dues.min()
        })
    }

    /// Returns a number that has changed if any task was scheduled or cancelled since the last
    /// call, or any shard has work at another tick. O(1), and the marked shards.
    pub(crate) fn changes(&self, shared: &Shared) -> u64 {
        self.up_to_date(shared, |known| known.changes)
    }

    /// Returns the number of the owner attached last. They are counted from 1.
    pub(crate) fn last_owner(&self, shared: &Shared) -> u64 {
        self.up_to_date(shared, |known| known.last)
    }

    /// Returns the first owner after number `after`, up to number `last`, that has shards due at
    /// `now_tick`.
    pub(crate) fn next_due_owner(
        &self,
        shared: &Shared,
        after: u64,
        last: u64,
        now_tick: u64,
    ) -> Option<DueOwner> {
        self.up_to_date(shared, |known| {
            let mut later = known.owners.range((Excluded(after), Included(last)));
            later.find_map(|(&number, owner)| owner.due_at(number, now_tick))
        })
    }

    /// Asks the shards that were marked, and reads what is known then.
    fn up_to_date<T>(&self, shared: &Shared, read: impl FnOnce(&Known) -> T) -> T {
        let mut upgraded = Upgraded::new();
        let mut known = self.known.lock();
        // 1. The count is read first: a signal that is listed from here on counts again.
        let marks = self.marks.count.load(Ordering::Acquire);
        if marks != known.marks_seen {
            known.marks_seen = marks;
            let listed = std::mem::take(&mut *self.marks.listed.lock());
            for attached in shared.take_arrivals() {
                known.take_in(attached, &mut upgraded);
            }
            for signal in listed.iter().filter_map(Weak::upgrade) {
                known.ask_marked(&signal, &mut upgraded);
            }
        }
        // 2. All answers hold.
        let answer = read(&known);
        drop(known);
        drop(upgraded);
        answer
    }
}

impl Known {
    /// Takes in a new owner, and asks all its shards.
    fn take_in(&mut self, attached: Attached, upgraded: &mut Upgraded) {
        let Some(wheels) = attached.wheels.upgrade() else {
            return; // gone already
        };
        let mut owner = Owner {
            shards: vec![ShardLook::default(); attached.shard_count],
            next_due: None,
            attached,
        };
        self.changes += owner.ask(&*wheels, u64::MAX);
        upgraded.push(wheels);
        self.last += 1;
        let address = address(&owner.attached.signal);
        self.numbers.insert(address, self.last);
        self.owners.insert(self.last, owner);
    }

    /// Asks the marked shards of one owner, or lets it go if it was dropped.
    fn ask_marked(&mut self, signal: &Arc<WakeSignal>, upgraded: &mut Upgraded) {
        let Some(&number) = self.numbers.get(&address(signal)) else {
            return; // never attached, or gone
        };
        let Some(owner) = self.owners.get_mut(&number) else {
            return;
        };
        let Some(wheels) = owner.attached.wheels.upgrade() else {
            self.numbers.remove(&address(signal));
            self.owners.remove(&number);
            self.changes += 1;
            return;
        };
        self.changes += owner.ask(&*wheels, 0);
        upgraded.push(wheels);
    }
}

impl Owner {
    /// Asks the shards that were marked, and of each 64 those of `besides`; returns how many have
    /// changed.
    fn ask(&mut self, wheels: &dyn WheelOwner, besides: u64) -> u64 {
        // The bits are taken before the shards are asked (Marked).
        let mut changed = 0;
        for (word, shards) in self.shards.chunks_mut(64).enumerate() {
            let mut marked = self.attached.signal.take(word) | besides;
            while let Some(known) = shards.get_mut(marked.trailing_zeros() as usize) {
                let look = wheels.look(64 * word + marked.trailing_zeros() as usize);
                changed += u64::from(look != *known);
                *known = look;
                marked &= marked - 1; // its lowest bit
            }
        }
        if changed > 0 {
            let dues = self.shards.iter().filter_map(|look| look.next_due);
            self.next_due = dues.min();
        }
        changed
    }

    /// Returns the owner with its shards that are due; `None` without one, or if it was dropped.
    fn due_at(&self, number: u64, now_tick: u64) -> Option<DueOwner> {
        let is_due = |next_due: Option<u64>| next_due.is_some_and(|due| due <= now_tick);
        if !is_due(self.next_due) {
            return None;
        }
        let shards = 0..self.shards.len();
        Some(DueOwner {
            number,
            wheels: self.attached.wheels.upgrade()?,
            shards: shards
                .filter(|&shard| is_due(self.shards[shard].next_due))
                .collect(),
        })
    }
}

fn address(signal: &Arc<WakeSignal>) -> usize {
    Arc::as_ptr(signal).addr()
}

impl fmt::Debug for Agenda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agenda").finish_non_exhaustive()
    }
}
