//! Clients that are let in at a fixed rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{BoxedOperation, Purgatory, WaitFuture};

#[derive(Clone)]
pub struct Throttle {
    pub permits: Arc<AtomicU64>,
    pub waits: Purgatory<(), BoxedOperation>,
}

impl Throttle {
    /// A future that is ready when the client has a permit. Dropped after that, it has used it.
    pub fn admit(&self, max_wait: Duration) -> WaitFuture<()> {
        let permits = self.permits.clone();
        let take = move || {
            permits
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok()
        };
        self.waits.wait(&[()], max_wait, take)
    }

    /// Lets `n` clients in. Permits that nobody took before are not saved up.
    pub fn release(&self, n: u64) {
        self.permits.store(n, SeqCst);
        for _ in 0..n {
            if self.permits.load(SeqCst) == 0 {
                break; // clients that came just now have taken the rest
            }
            self.waits.check_and_complete_one(&());
        }
    }
}
