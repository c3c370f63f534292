//! The timer that a process shares: made when it is first asked for, and made anew where its threads
//! are gone.

use crate::{
    sync::plain::Mutex,
    timers::{BuildError, system::SystemTimer, timer::Timer},
};

/// The shared timer, once it was asked for.
static SHARED: Mutex<Option<Timer>> = Mutex::new(None);

impl Timer {
    /// Returns the timer that this process shares, which the first call makes: a
    /// [`SystemTimer`](crate::SystemTimer) with the default settings, named `shared`. It stays until
    /// the process ends, as two threads that sleep while nothing is due. O(1): a lock and a system
    /// call.
    ///
    /// It has one worker: a task that blocks delays all tasks that expire meanwhile, those of other
    /// libraries, too. Tasks that may be slow want a timer or an executor of their own.
    ///
    /// A [`shutdown`](Self::shutdown) of it ends what any code of the process has on it; leave it to
    /// the end of `main`, if at all. After one, and in a child of `fork`, the next call makes
    /// another timer.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use timer_core::Timer;
    ///
    /// let (send, fired) = mpsc::channel();
    /// Timer::shared()?.schedule(Duration::from_millis(5), move || send.send("five").unwrap())?;
    /// assert_eq!(fired.recv()?, "five");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BuildError::Thread`] when the operating system gives no thread. The next call tries again.
    pub fn shared() -> Result<Timer, BuildError> {
        // Locked while it starts, so that threads that ask at once get the same.
        let mut shared = SHARED.lock();
        if let Some(timer) = shared.as_ref().filter(|timer| timer.is_served()) {
            return Ok(timer.clone());
        }
        let timer = Timer::from(SystemTimer::builder().name("shared").build()?);
        let gone = shared.replace(timer.clone());
        // What it still has is the user's, and dropped with nothing locked.
        drop(shared);
        drop(gone);
        Ok(timer)
    }

    /// Returns true when threads of this process advance its wheels, and until it is shut down.
    pub(super) fn is_served(&self) -> bool {
        !self.driver().is_closed() && !self.driver().is_inherited()
    }
}
