// A produce that waits twice, for a place and for its replicas, within one deadline.

use std::time::Duration;

use purgatory::{Monitor, Timeout, WaitError, timer_core::Timer};

pub struct Produces {
    pub timer: Timer,             // a manual one in tests
    pub places: Monitor<(), u32>, // both on this timer
    pub high_watermark: Monitor<(), u64>,
}

impl Produces {
    /// The high watermark once it has come to this offset.
    pub async fn produce(&self, offset: u64, timeout: Duration) -> Result<u64, WaitError> {
        // Any timeout is legal, and one beyond the clock's end is cut.
        let deadline = Timeout::At(self.timer.now() + timeout);

        // First wait: take a place. The value is a guard, so a client that goes before it has seen
        // the value also returns the place.
        let places = self.places.clone();
        let take = move |free: &mut u32| {
            *free = free.checked_sub(1)?;
            Some(Place(places.clone()))
        };
        let _place = self.places.wait(&[()], deadline, take).await?;

        // Second wait: until the same moment. If the moment has passed, this checks once.
        let replicated = move |high_watermark: &mut u64| {
            let reached = *high_watermark;
            Some(reached).filter(|&reached| reached >= offset)
        };
        self.high_watermark.wait(&[()], deadline, replicated).await
    }
}

/// Returned on drop: when the produce has ended, or its client has gone.
struct Place(Monitor<(), u32>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.update_one(&(), |free| *free += 1);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::Purgatory;

    let timer = purgatory::timer_core::ManualTimer::new();
    let waits = |name: &str| Purgatory::builder(name).timer(&timer).build();
    let places = Monitor::over(waits("places")?, 1);
    let high_watermark = Monitor::over(waits("produce")?, 7);
    let produces = Produces {
        timer: timer.clone().into(),
        places,
        high_watermark,
    };
    // One place is free, and the high watermark has passed the record already.
    tokio::runtime::Builder::new_current_thread()
        .build()?
        .block_on(async {
            assert_eq!(produces.produce(7, Duration::from_secs(30)).await, Ok(7));
        });
    Ok(())
}
