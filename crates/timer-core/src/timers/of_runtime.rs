//! The timers of tokio runtimes, one each: made when they are first asked for.

use tokio::runtime::{Handle, Id};

use crate::{
    sync::plain::Mutex,
    timers::{BuildError, system::SystemTimer, timer::Timer},
};

/// The timers of the runtimes that asked. Those of runtimes that were dropped are closed, and leave
/// when the next one is made.
static OF_RUNTIMES: Mutex<Vec<(Id, Timer)>> = Mutex::new(Vec::new());

impl Timer {
    /// (Feature `tokio`.) Returns the timer of the tokio runtime that this is called in, which the
    /// first call makes: without a thread, and on the runtime's clock. So a test with a paused clock
    /// runs the lines of the program. It goes with the runtime; see
    /// [`SystemTimerBuilder::tokio`](crate::SystemTimerBuilder::tokio), which makes one with other
    /// settings. O(runtimes).
    ///
    /// ```
    /// use std::time::Duration;
    /// use timer_core::{DelayQueue, Timer};
    ///
    /// // In a test: #[tokio::test(start_paused = true)].
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut sessions = DelayQueue::new(&Timer::tokio()?);
    ///     sessions.insert("session", Duration::from_secs(3600))?;
    ///     let expired = sessions.next().await.transpose()?; // at once
    ///     assert_eq!(expired.map(|expired| expired.value), Some("session"));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`BuildError::NoRuntime`] outside a runtime, [`BuildError::NoTime`] in one without time,
    /// [`BuildError::Closed`] in one that has been shut down.
    pub fn tokio() -> Result<Timer, BuildError> {
        // 1. The one that was made before.
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let id = runtime.id();
        if let Some(timer) = find(&OF_RUNTIMES.lock(), id) {
            return Ok(timer);
        }
        // 2. Made with nothing locked: a panic hook may run. Another task may come first.
        let made = SystemTimer::builder().name("tokio").tokio(runtime).build();
        let timer = Timer::from(made?);
        let mut timers = OF_RUNTIMES.lock();
        if let Some(first) = find(&timers, id) {
            return Ok(first);
        }
        // 3. It takes the place of those that are closed, which are dropped after unlocking.
        let all = std::mem::take(&mut *timers).into_iter();
        let (served, closed): (Vec<_>, Vec<_>) =
            all.partition(|(_, timer)| timer.inner().driver.is_served());
        *timers = served;
        timers.push((id, timer.clone()));
        drop(timers);
        drop(closed);
        Ok(timer)
    }
}

/// Returns the timer of a runtime, unless it was shut down.
fn find(timers: &[(Id, Timer)], runtime: Id) -> Option<Timer> {
    let of_runtime =
        |(id, timer): &&(Id, Timer)| *id == runtime && timer.inner().driver.is_served();
    timers
        .iter()
        .find(of_runtime)
        .map(|(_, timer)| timer.clone())
}
