//! The timers of tokio runtimes, one for each, made on first use.

use std::{future::pending, mem};

use tokio::runtime::{Handle, Id};

use crate::{
    sync::plain::Mutex,
    timers::{BuildError, system::SystemTimer, timer::Timer},
};

/// The timers of the runtimes that asked for one, each until its runtime is dropped.
static OF_RUNTIMES: Mutex<Vec<(Id, Timer)>> = Mutex::new(Vec::new());

impl Timer {
    /// (Feature `tokio`.) Returns the timer of the tokio runtime that the caller runs in, made by
    /// the first call: without a thread, and on the runtime's clock. So a test with a paused clock
    /// runs the lines of the program. The timer is shut down when the runtime is dropped; its pending
    /// tasks are dropped with the timer's last handle.
    /// [`SystemTimerBuilder::tokio`](crate::SystemTimerBuilder::tokio) makes a timer with other
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
        // 1. Return the timer that was made before.
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let id = runtime.id();
        if let Some(timer) = find(&OF_RUNTIMES.lock(), id) {
            return Ok(timer);
        }
        // 2. Make one with nothing locked, as a panic hook may run. Another task may come first.
        let made = SystemTimer::builder().name("tokio").tokio(runtime.clone());
        let timer = Timer::from(made.build()?);
        let mut timers = OF_RUNTIMES.lock();
        if let Some(first) = find(&timers, id) {
            return Ok(first);
        }
        // 3. It takes the place of a timer that was shut down, or that this process inherited by
        //    `fork`; that one is let go after unlocking.
        if let Some((_, place)) = timers.iter_mut().find(|(of, _)| *of == id) {
            let gone = mem::replace(place, timer.clone());
            drop(timers);
            gone.let_go();
            return Ok(timer);
        }
        // 4. Or it is the runtime's first. A task of the runtime takes it out as the runtime is
        //    dropped.
        timers.push((id, timer.clone()));
        drop(timers);
        drop(runtime.spawn(TakenOut(id).at_the_end()));
        Ok(timer)
    }
}

/// Takes the timer of a runtime out when this is dropped.
struct TakenOut(Id);

impl TakenOut {
    /// Waits until it is dropped with the runtime that it is spawned on.
    async fn at_the_end(self) {
        pending::<()>().await;
    }
}

impl Drop for TakenOut {
    fn drop(&mut self) {
        let mut timers = OF_RUNTIMES.lock();
        let place = timers.iter().position(|(of, _)| *of == self.0);
        let gone = place.map(|place| timers.swap_remove(place));
        // The timer's tasks are the user's: drop them with nothing locked.
        drop(timers);
        drop(gone);
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
