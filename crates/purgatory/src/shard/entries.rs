//! The entries of a shard, which are the tasks of its wheel: how they come and go.

use timer_core::{TimerHandle, TimingWheel};

use super::{
    entry::{Cause, CheckedOut, Entry, ParkOptions, Waiter},
    links::Link,
};

/// The entries of a shard, on its wheel, and the shard's number.
#[derive(Debug)]
pub(crate) struct Entries<O> {
    pub(super) wheel: TimingWheel<Entry<O>>,
    pub(super) shard: u8,
    /// Set before the entries leave for good, tested before one is put in.
    pub(super) closed: bool,
}

/// A new entry, and when it first needs the wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inserted {
    pub(crate) handle: TimerHandle,
    /// The tick at which the wheel has work for it; `u64::MAX` for never.
    pub(crate) due: u64,
}

impl<O> Entries<O> {
    /// Returns the entry of an operation that has not ended.
    #[inline]
    pub(super) fn get_mut(&mut self, handle: TimerHandle) -> Option<&mut Entry<O>> {
        self.wheel.get_mut(handle.id())
    }

    /// Names the operation whose entry lies at `index`.
    pub(super) fn handle_at(&self, index: u32) -> TimerHandle {
        TimerHandle::new(self.shard as usize, self.wheel.id_at(index))
    }

    /// Checks the operation of the entry at `index` out for an event. If it is held, its holder is
    /// left a request.
    #[inline(always)]
    pub(crate) fn check_out(&mut self, index: u32) -> Option<CheckedOut<O>> {
        let (id, entry) = self.wheel.named_at_mut(index);
        let payload = entry.check_out()?;
        let handle = TimerHandle::new(self.shard as usize, id);
        Some(CheckedOut::new(handle, payload, Cause::Event))
    }

    /// Puts an entry on the wheel, which is not full. One that never falls due is kept off its
    /// buckets.
    #[inline(always)]
    pub(super) fn insert(
        &mut self,
        options: &ParkOptions,
        follows: Option<u64>,
        payload: Option<O>,
        link: Link,
    ) -> Inserted {
        // 1. Tell the wheel what the parker knows: the tick, and the order.
        let wheel = &mut self.wheel;
        wheel.catch_up(options.now_tick);
        if let Some(sequence) = follows {
            wheel.follow(sequence);
        }
        // 2. Put it in.
        let (inserted, place) = wheel.insert_place(options.deadline_tick);
        *place = Some(Entry::new(payload, options, link));
        let handle = TimerHandle::new(self.shard as usize, inserted.id);
        Inserted {
            handle,
            due: inserted.due,
        }
    }
}

impl Waiter {
    /// Names the operation.
    pub(crate) fn handle<O>(self, entries: &Entries<O>) -> TimerHandle {
        match self {
            Waiter::Here(index) => entries.handle_at(index),
            Waiter::Foreign(handle) => handle,
        }
    }
}
