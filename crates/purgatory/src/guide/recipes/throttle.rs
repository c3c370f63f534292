// Clients that are let in at a fixed rate, first come, first served.

use std::time::Duration;

use purgatory::{Permit, Permits, WaitFuture};

#[derive(Clone)]
pub struct Throttle {
    pub permits: Permits,
}

impl Throttle {
    /// A future that is ready when the client may pass. The client then uses its permit up, with
    /// `forget`. If the client drops the permit instead, the next client gets it.
    pub fn admit(&self, max_wait: Duration) -> WaitFuture<Permit> {
        self.permits.acquire(1, max_wait)
    }

    /// Admits `n` clients. Permits that no client took before are not saved up.
    pub fn release(&self, n: u64) {
        self.permits.refill(n);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::timer_core::ManualTimer;

    let timer = ManualTimer::new();
    let builder = Permits::builder("throttled").timer(&timer);
    let throttle = Throttle {
        permits: builder.limit(0).build()?,
    };
    let clients = [(); 5].map(|()| throttle.admit(Duration::from_secs(30)));
    // Two of the five clients are let in each 100 ms.
    let every = Duration::from_millis(100);
    let released = throttle.clone();
    let releasing = timer.schedule_at_fixed_rate(every, every, move || released.release(2))?;
    timer.advance(Duration::from_millis(250));
    assert_eq!(throttle.permits.waits().len(), 1);
    timer.advance(Duration::from_millis(50));
    for client in clients {
        client.wait_blocking()?.forget();
    }
    releasing.cancel();
    Ok(())
}
