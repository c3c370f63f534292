//! A produce that waits twice, for a place and for its replicas, within one deadline.

use std::time::Duration;

use purgatory::{Monitor, Timeout, WaitError, timer_core::Timer};

pub struct Produces<T> {
    pub timer: T,
    pub places: Monitor<(), u32>, // both on this timer
    pub high_watermark: Monitor<(), u64>,
}

impl<T: Timer> Produces<T> {
    /// The high watermark once it has come to this offset.
    pub async fn produce(&self, offset: u64, timeout: Duration) -> Result<u64, WaitError> {
        let deadline = Timeout::At(self.timer.now_ns() + timeout.as_nanos() as u64);
        // First wait: take a place.
        let take = |free: &mut u32| {
            *free = free.checked_sub(1)?;
            Some(())
        };
        self.places.wait(&[()], deadline, take).await?;
        let _place = Place(&self.places);
        // Second wait: until the same moment. If that has passed, this checks once.
        let replicated = move |high_watermark: &mut u64| {
            let reached = *high_watermark;
            Some(reached).filter(|&reached| reached >= offset)
        };
        self.high_watermark.wait(&[()], deadline, replicated).await
    }
}

/// Returned when the produce has ended, or its client has gone.
struct Place<'a>(&'a Monitor<(), u32>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.update_one(&(), |free| *free += 1);
    }
}
