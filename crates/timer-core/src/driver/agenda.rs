//! [`Agenda`]: when each shard on a manual timer next has work.
//!
//! Nothing wakes a manual timer: a test that settles asks it for its next work again and again. So
//! it keeps its shards' answers, and asks a shard only after that shard was locked:
//!
//! - **Marked**: each hold of a shard's lock on a manual timer ends with the shard's signal, which
//!   sets the shard's bit. So a kept answer holds as long as the bit is not set. A shard that was
//!   never locked has nothing, and that is the answer kept for it from the beginning.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    driver::{
        owner::{ShardLook, WheelOwner},
        owners::{Attached, Shared},
    },
    observe::opaque,
    sync::{is_late, plain::Mutex},
};

/// The answers of a manual timer's shards, which it keeps.
#[derive(Default)]
pub(crate) struct Agenda(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// In the order in which they were attached.
    owners: Vec<Owner>,
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

/// Owners that were upgraded under the lock. Each may be the last reference, so they are dropped
/// with nothing locked.
type Upgraded = Vec<Arc<dyn WheelOwner>>;

/// An owner with shards that are due.
pub(crate) struct DueOwner {
    pub(crate) wheels: Arc<dyn WheelOwner>,
    pub(crate) shards: Vec<usize>,
}

impl Agenda {
    /// Returns the tick at which any shard next has work. O(owners), and the marked shards.
    pub(crate) fn next_due(&self, shared: &Shared) -> Option<u64> {
        self.up_to_date(shared, |known| {
            let dues = known.owners.iter().filter_map(|owner| owner.next_due);
            dues.min()
        })
    }

    /// Returns a number that has changed if any task was scheduled or cancelled since the last
    /// call, any shard has work at another tick, or a future of the timer has yielded with more to
    /// do. O(owners), and the marked shards.
    pub(crate) fn changes(&self, shared: &Shared) -> u64 {
        let yields = shared.yields.load(Ordering::Relaxed);
        self.up_to_date(shared, |known| known.changes + yields)
    }

    /// Returns the first owner that has shards due at `now_tick`. O(owners), and the marked shards.
    pub(crate) fn first_due(&self, shared: &Shared, now_tick: u64) -> Option<DueOwner> {
        self.up_to_date(shared, |known| {
            let mut owners = known.owners.iter();
            owners.find_map(|owner| owner.due_at(now_tick))
        })
    }

    /// Asks the shards that were marked, and then reads the answers.
    fn up_to_date<T>(&self, shared: &Shared, read: impl FnOnce(&Known) -> T) -> T {
        let mut upgraded = Upgraded::new();
        let mut known = self.0.lock();
        // 1. Add new owners: any tasks of theirs lie on shards that were marked.
        for attached in shared.take_arrivals() {
            known.owners.push(Owner {
                shards: vec![ShardLook::default(); attached.shard_count],
                next_due: None,
                attached,
            });
        }
        // 2. Ask the marked shards of each owner, and remove owners that were dropped.
        let Known { owners, changes } = &mut *known;
        owners.retain_mut(|owner| {
            let is_alive = owner.attached.is_alive();
            *changes += match is_alive {
                true => owner.ask_marked(&mut upgraded),
                false => 1,
            };
            is_alive
        });
        // 3. All answers hold.
        let answer = read(&known);
        drop(known);
        drop(upgraded);
        answer
    }
}

impl Owner {
    /// Asks the shards that were marked; returns how many have changed, 0 for an owner that was
    /// dropped.
    fn ask_marked(&mut self, upgraded: &mut Upgraded) -> u64 {
        // The bits are taken before the shards are asked (Marked).
        let mut changed = 0;
        for (word, shards) in self.shards.chunks_mut(64).enumerate() {
            let mut marked = self.attached.signal.take(word);
            if !is_late() {
                marked = u64::MAX; // most models mark nothing
            }
            if marked == 0 {
                continue;
            }
            let Some(wheels) = self.attached.wheels.upgrade() else {
                return 0;
            };
            while let Some(known) = shards.get_mut(marked.trailing_zeros() as usize) {
                let look = wheels.look(64 * word + marked.trailing_zeros() as usize);
                changed += u64::from(look != *known);
                *known = look;
                marked &= marked - 1; // its lowest bit
            }
            upgraded.push(wheels);
        }
        if changed > 0 {
            let dues = self.shards.iter().filter_map(|look| look.next_due);
            self.next_due = dues.min();
        }
        changed
    }

    /// Returns the owner with its shards that are due; `None` if none are, or the owner was
    /// dropped.
    fn due_at(&self, now_tick: u64) -> Option<DueOwner> {
        let is_due = |next_due: Option<u64>| next_due.is_some_and(|due| due <= now_tick);
        if !is_due(self.next_due) {
            return None;
        }
        let shards = 0..self.shards.len();
        Some(DueOwner {
            wheels: self.attached.wheels.upgrade()?,
            shards: shards
                .filter(|&shard| is_due(self.shards[shard].next_due))
                .collect(),
        })
    }
}

opaque!([] Agenda);
