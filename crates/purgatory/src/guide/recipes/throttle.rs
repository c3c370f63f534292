//! Clients that wait for their turn: a fixed number at once, and no more.

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
    /// A future that is ready when it is the client's turn.
    pub fn turn(&self, max_wait: Duration) -> WaitFuture<()> {
        let permits = self.permits.clone();
        self.waits.wait(&[()], max_wait, move || {
            let taken = permits.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            taken.ok().map(drop)
        })
    }

    /// Lets the next `n` go. Permits that nobody took before are not saved up.
    pub fn release(&self, n: u64) {
        self.permits.store(n, SeqCst);
        for _ in 0..n {
            if self.permits.load(SeqCst) == 0 {
                break; // taken by others that came just now
            }
            self.waits.check_and_complete_one(&());
        }
    }
}
