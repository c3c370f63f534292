//! Clients that are let in at a fixed rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{Purgatory, WaitFuture};

#[derive(Clone)]
pub struct Throttle {
    pub permits: Arc<AtomicU64>,
    pub waits: Purgatory<()>,
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

    /// Admits `n` clients. Permits that no client took before are not saved up.
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::timer_core::{ManualTimer, Timer};

    let timer = ManualTimer::new();
    let waits = Purgatory::builder("throttled").timer(&timer).build()?;
    let throttle = Throttle {
        permits: Arc::default(),
        waits,
    };
    let clients = [(); 5].map(|()| throttle.admit(Duration::from_secs(30)));
    // Two of the five clients are let in each 100 ms.
    let every = Duration::from_millis(100);
    let released = throttle.clone();
    let releasing = timer.schedule_at_fixed_rate(every, every, move || released.release(2))?;
    timer.advance(Duration::from_millis(250));
    assert_eq!(throttle.waits.len(), 1);
    timer.advance(Duration::from_millis(50));
    assert!(
        clients
            .into_iter()
            .all(|client| client.wait_blocking().is_ok())
    );
    releasing.cancel();
    Ok(())
}
