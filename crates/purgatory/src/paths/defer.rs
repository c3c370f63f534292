//! Events left for later: to the executor, or to whoever runs them first.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use timer_core::{Job, driver::contain};

use super::{
    callbacks::drop_key,
    core::Core,
    trampoline::{execute_deferring, is_deferring},
};
use crate::words::{operation::DelayedOperation, watches::WatchKey};

/// Deferred events that one job of the executor raises; the rest goes behind what else waits there.
const DEFERRED_BUDGET: usize = 1024;

impl<K, O> Core<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    /// Leaves an event, or a rise to `value`, to the executor, or to whoever calls `run_deferred`
    /// first; unless it is left to them already.
    pub(crate) fn defer(self: &Arc<Self>, key: K, value: Option<u64>) {
        let hash = self.versions.hash(&key);
        let mut deferred = self.deferred.lock();
        if deferred.has(&key, hash, value) {
            drop(deferred);
            drop_key(Some(key));
        } else {
            deferred.push(key, hash, value);
            drop(deferred);
        }
        self.have_deferred_run();
    }

    /// Hands what is deferred to the executor, unless a job for that is on its way.
    fn have_deferred_run(self: &Arc<Self>) {
        if self.offload.is_here() {
            return;
        }
        let mut deferred = self.deferred.lock();
        if deferred.len() == 0 || std::mem::replace(&mut deferred.job, true) {
            return;
        }
        drop(deferred);
        let core = self.clone();
        let job = Job::new(move || {
            core.deferred.lock().job = false;
            if is_deferring() {
                return; // dropped by the executor, on a thread that may hold locks: left for later
            }
            let mut left = DEFERRED_BUDGET;
            while let Err(panicked) = contain(|| _ = core.raise_deferred(&mut left)) {
                // Of a key's Hash or Eq: its event is gone, the next one's turn.
                core.report(&panicked);
            }
            core.have_deferred_run(); // the rest, behind what else waits for the executor
        });
        execute_deferring(&self.offload, job);
    }

    /// Raises what was deferred; returns how many operations that completed. When a key's `Hash` or
    /// `Eq` panics, what is behind it goes to the executor.
    pub(crate) fn run_deferred(self: &Arc<Self>) -> usize {
        let all = &mut { usize::MAX };
        catch_unwind(AssertUnwindSafe(|| self.raise_deferred(all))).unwrap_or_else(|panic| {
            self.have_deferred_run();
            resume_unwind(panic)
        })
    }

    /// Raises up to `left` events, and counts them off it.
    fn raise_deferred(self: &Arc<Self>, left: &mut usize) -> usize {
        let mut completed = 0;
        while *left > 0
            && let Some((key, value)) = { self.deferred.lock().next() }
        {
            *left -= 1;
            completed += match value {
                None => self.check_and_complete(&key),
                Some(value) => self.complete_up_to(&key, value),
            };
        }
        completed
    }
}
