//! A wait for the values of several keys: a single wait for each key. All of these waits report to
//! one cell.
//!
//! - **First failure**: the first part that ends without a value ends the whole.
//! - **All values**: otherwise, the last part that is met ends the whole.

use std::{
    mem,
    sync::{Arc, Weak},
    task::{Poll, Waker},
};

use timer_core::TimerHandle;

use crate::{
    error::WaitError,
    operation::{FUTURE_DROPPED, Outcome, Timeout},
    origin::{AnswerOrigin, Pending},
    sync::{Mutex, Share},
    table::{Inside, Table},
    watches::WatchKey,
    watermarks::{
        engine::{Cell, Tells, Values},
        value::WatermarkValue,
    },
};

/// The state that the parts of a wait and its future share.
pub(crate) struct Each<K: WatchKey> {
    table: Share<Arc<Table<Values<K>>>>,
    state: Mutex<State<K>>,
}

struct State<K> {
    keys: Vec<K>,
    /// The parts that are parked.
    parked: Vec<TimerHandle>,
    /// The ranks of the values that met the parts.
    values: Vec<Option<u64>>,
    /// The number of values that are missing; 0 once the result was taken.
    missing: usize,
    /// The first end without a value.
    error: Option<WaitError>,
    waker: Option<Waker>,
}

impl<K> State<K> {
    fn is_over(&self) -> bool {
        self.error.is_some() || self.missing == 0
    }
}

impl<K: WatchKey> Each<K> {
    /// Makes the cell of a wait for these keys.
    pub(crate) fn new(table: Share<Arc<Table<Values<K>>>>, keys: Vec<K>) -> Arc<Self> {
        let state = State {
            parked: Vec::with_capacity(keys.len()),
            values: vec![None; keys.len()],
            missing: keys.len(),
            keys,
            error: None,
            waker: None,
        };
        Arc::new(Each {
            table,
            state: Mutex::new(state),
        })
    }

    /// Returns the receiver of the end of one part.
    pub(crate) fn part(self: &Arc<Self>, number: usize) -> Tells {
        let cell: Weak<Self> = Arc::downgrade(self);
        Tells::Each(cell, number as u32)
    }

    /// Adds a part that was parked. Returns true if the whole has ended.
    pub(crate) fn parked(&self, handle: TimerHandle) -> bool {
        let mut state = self.state.lock();
        state.parked.push(handle);
        state.is_over()
    }

    /// Records the end of a part, which comes once. Returns true if the whole has ended. O(1),
    /// except for the last part.
    pub(crate) fn record(&self, number: usize, result: Result<u64, WaitError>) -> bool {
        let mut state = self.state.lock();
        if state.is_over() {
            return true;
        }
        match result {
            Ok(value) => {
                state.values[number] = Some(value);
                state.missing -= 1;
            }
            Err(error) => state.error = Some(error),
        }
        if !state.is_over() {
            return false;
        }
        let waker = state.waker.take();
        drop(state);
        self.give_up();
        self.table.wake(waker);
        true
    }

    /// Returns the result once the whole has ended, and gives up the other parts.
    pub(crate) fn take<V: WatermarkValue>(&self) -> Option<Result<Vec<(K, V)>, WaitError>> {
        let mut state = self.state.lock();
        if !state.is_over() {
            return None;
        }
        let keys = mem::take(&mut state.keys);
        let values = mem::take(&mut state.values);
        state.missing = 0;
        let error = state.error.take();
        drop(state);
        self.give_up();
        if let Some(error) = error {
            self.table.drop_each(&self.table.frame.enter(), keys);
            return Some(Err(error));
        }
        let mut reached = Vec::with_capacity(keys.len());
        for (key, rank) in keys.into_iter().zip(values) {
            reached.extend(rank.map(|rank| (key, V::from_rank(rank))));
        }
        Some(Ok(reached))
    }

    /// Removes the parts that still wait from the table.
    fn give_up(&self) {
        let parked = mem::take(&mut self.state.lock().parked);
        for handle in parked {
            Table::abandon(&self.table, handle, &FUTURE_DROPPED);
        }
    }
}

/// Runs when the last owner is gone, even by a panic of a key while the next part is made.
impl<K: WatchKey> Drop for Each<K> {
    fn drop(&mut self) {
        if !failpoint!(DroppedFutureLeavesOperation) {
            self.give_up();
        }
    }
}

impl<K: WatchKey> Cell for Each<K> {
    fn ended(&self, number: u32, outcome: Outcome, value: u64) {
        let result = match outcome {
            Outcome::Completed => Ok(value),
            other => Err(WaitError::of(other)),
        };
        self.record(number as usize, result);
    }
}

impl<K: WatchKey, V: WatermarkValue> AnswerOrigin<Vec<(K, V)>> for Each<K> {
    fn poll_first(
        &self,
        pending: &mut Pending,
        waker: &Waker,
    ) -> Poll<Result<Vec<(K, V)>, WaitError>> {
        // A waker is cloned and dropped with nothing locked.
        let mut unused = Some(waker.clone());
        let mut state = self.state.lock();
        if !state.is_over() {
            mem::swap(&mut state.waker, &mut unused);
        }
        drop(state);
        self.table.frame.call(|| drop(unused));
        let Some(result) = self.take() else {
            return Poll::Pending;
        };
        pending.finish();
        Poll::Ready(result)
    }

    fn abandon(&self, _: TimerHandle, _: &Outcome) {
        // The user's values are dropped in turn, as for any wait: they may own the next future.
        let call = self.table.frame.enter();
        let mut state = self.state.lock();
        let waker = state.waker.take();
        let keys = mem::take(&mut state.keys);
        let error = state.error.take();
        drop(state);
        self.give_up();
        self.table.call_in_turn(&call, || drop(waker));
        self.table.drop_each(&call, keys);
        self.table.call_in_turn(&call, || drop(error));
    }

    fn reschedule(&self, _: TimerHandle, timeout: Timeout) -> bool {
        let parked = self.state.lock().parked.clone();
        let mut is_rescheduled = false;
        for handle in parked {
            is_rescheduled |= Values::reschedule(&self.table, handle, timeout);
        }
        is_rescheduled
    }

    fn must_not_block(&self) -> bool {
        AnswerOrigin::<u64>::must_not_block(&*self.table)
    }
}
