//! Tours of all entries of all shards, in bounded steps.

use smallvec::SmallVec;
use timer_core::{
    TimerHandle,
    driver::{ShardGuard, ShardState, Shards},
};

use crate::table::{BUDGET, Common, under_lock::must_be_unlocked};

/// The entries visited in one lock hold.
pub(crate) type Handles = SmallVec<[TimerHandle; BUDGET]>;

/// The position of a tour of all shards: a shard, and the index in it from which to go on.
#[derive(Debug, Default)]
pub(crate) struct Tour {
    shard: usize,
    index: u32,
}

impl Tour {
    /// Returns the next entries, a bounded number, with their shard, locked. `None` ends the tour.
    pub(crate) fn next<'a, S: ShardState>(
        &mut self,
        shards: &'a Shards<S, Common>,
    ) -> Option<(ShardGuard<'a, S>, Handles)> {
        must_be_unlocked();
        while let Some(number) = shards.made_from(self.shard) {
            self.shard = number;
            let mut shard = shards.lock(number);
            let mut handles = Handles::new();
            while handles.len() < BUDGET {
                let Some(id) = shard.wheel().first_from(self.index) else {
                    break;
                };
                self.index = id.index() + 1;
                handles.push(shard.handle(id));
            }
            if !handles.is_empty() {
                return Some((shard, handles));
            }
            self.shard += 1;
            self.index = 0;
        }
        None
    }
}
