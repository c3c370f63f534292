//! The timer that a process shares: made on first use, and made anew once its threads are gone.

use std::{mem, sync::Arc};

use crate::{
    driver::driver::Driver,
    sync::plain::Mutex,
    timers::{BuildError, system::SystemTimer, timer::Timer},
};

/// The inside of the shared timer, once a caller has asked for it.
static DRIVER: Mutex<Option<Arc<Driver>>> = Mutex::new(None);

/// The shared timer, once a caller has asked for it. For owners of wheels alone it is not made.
static TIMER: Mutex<Option<Timer>> = Mutex::new(None);

impl Timer {
    /// Returns the timer that this process shares, made by the first call: a
    /// [`SystemTimer`](crate::SystemTimer) with the default settings, named `shared`. It stays
    /// until the process ends, as two threads that sleep while nothing is due. O(1): a lock and a
    /// system call.
    ///
    /// The timer has one worker, so a task that blocks delays all tasks that expire meanwhile,
    /// those of other libraries included. Run tasks that may be slow on a timer or an executor of
    /// their own.
    ///
    /// A [`shutdown`](Self::shutdown) of the shared timer ends what any code of the process has on
    /// it; leave it to the end of `main`, if at all. After a shutdown, and in a child of `fork`,
    /// the next call makes another timer. Tasks that were pending at the fork are left to the
    /// parent.
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
    /// [`BuildError::Thread`] when the operating system does not start a thread. The next call
    /// tries again.
    pub fn shared() -> Result<Timer, BuildError> {
        // Locked while the timer starts, so that threads that ask at the same time get the same
        // one.
        let mut shared = TIMER.lock();
        let is_served = |timer: &&Timer| timer.inner().driver.is_served();
        if let Some(timer) = shared.as_ref().filter(is_served) {
            return Ok(timer.clone());
        }
        let timer = Timer::shared_driver()?.timer();
        let gone = shared.replace(timer.clone());
        // The old timer's tasks and wakers are the user's: drop them with nothing locked.
        drop(shared);
        if let Some(gone) = gone {
            gone.let_go();
        }
        Ok(timer)
    }

    /// Returns the inside of the timer that this process [shares](Self::shared), for owners of
    /// wheels. The first call starts it. O(1): a lock and a system call. The binary of a program
    /// that has no tasks and sleeps of its own on that timer contains no code for them.
    ///
    /// # Errors
    /// Returns an error as [`shared`](Self::shared) does.
    pub fn shared_driver() -> Result<Arc<Driver>, BuildError> {
        let mut shared = DRIVER.lock();
        if let Some(driver) = shared.as_ref().filter(|driver| driver.is_served()) {
            return Ok(driver.clone());
        }
        let driver = Arc::new(SystemTimer::builder().name("shared").start()?);
        // The old driver holds nothing of the user's, so it may be dropped under a lock. For a
        // driver of the parent process see `let_go`.
        let gone = shared.replace(driver.clone());
        mem::forget(gone.filter(|gone| gone.is_inherited()));
        Ok(driver)
    }
}
