//! The timer that a process shares: made when it is first asked for, and made anew where its threads
//! are gone.

use std::{mem, sync::Arc};

use crate::{
    driver::driver::Driver,
    sync::plain::Mutex,
    timers::{BuildError, system::SystemTimer, timer::Timer},
};

/// The inside of the shared timer, once it was asked for.
static DRIVER: Mutex<Option<Arc<Driver>>> = Mutex::new(None);

/// The shared timer, once it was asked for: a program that has wheels on it alone does without.
static TIMER: Mutex<Option<Timer>> = Mutex::new(None);

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
    /// another timer. Tasks that were pending at the fork are left to the parent.
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
        let mut shared = TIMER.lock();
        let is_served = |timer: &&Timer| timer.inner().driver.is_served();
        if let Some(timer) = shared.as_ref().filter(is_served) {
            return Ok(timer.clone());
        }
        let timer = Timer::shared_driver()?.timer();
        let gone = shared.replace(timer.clone());
        // Its tasks and wakers are the user's: dropped with nothing locked.
        drop(shared);
        if let Some(gone) = gone {
            gone.let_go();
        }
        Ok(timer)
    }

    /// Returns the inside of the timer that this process [shares](Self::shared), for owners of
    /// wheels, which the first call starts. O(1): a lock and a system call. A program that has no
    /// tasks and sleeps of its own on that timer has nothing of them in its binary.
    ///
    /// # Errors
    /// As [`shared`](Self::shared).
    pub fn shared_driver() -> Result<Arc<Driver>, BuildError> {
        let mut shared = DRIVER.lock();
        if let Some(driver) = shared.as_ref().filter(|driver| driver.is_served()) {
            return Ok(driver.clone());
        }
        let driver = Arc::new(SystemTimer::builder().name("shared").start()?);
        // Nothing of the one that is gone is the user's: it may be dropped under a lock. For one of
        // the parent process see `let_go`.
        let gone = shared.replace(driver.clone());
        mem::forget(gone.filter(|gone| gone.is_inherited()));
        Ok(driver)
    }
}
