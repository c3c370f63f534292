//! A sweep: the hand-written way to end waits at their timeouts without a timer for each.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

/// The time between two sweeps. A wait ends up to this much late.
const EACH: Duration = Duration::from_millis(100);

/// Starts a task of the current runtime that calls `sweep` again and again, until `of` is dropped.
pub(crate) fn start<T: Send + Sync + 'static>(of: &Arc<T>, sweep: fn(&T)) {
    let of = Arc::downgrade(of);
    tokio::spawn(async move {
        let mut ticks = interval(EACH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match of.upgrade() {
                Some(of) => sweep(&of),
                None => return,
            }
        }
    });
}
