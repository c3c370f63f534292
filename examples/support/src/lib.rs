//! Code that several examples share: parsing arguments within bounds, serving metrics and the live
//! page, ending threads.

mod args;
mod metrics;

use std::fmt::Display;
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{sync::Arc, thread, time::Duration};

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use signal_hook::{consts::SIGUSR1, iterator::Signals};

pub use args::{assert_parsed, between, number};
pub use metrics::serve;

/// Writes a line to standard error. If that is closed the program goes on, where `eprintln` would
/// panic.
pub fn say(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Writes a text to standard error at each SIGUSR1, from a thread of its own. The examples write
/// snapshots, to show what hangs.
///
/// # Errors
/// When the program cannot listen for the signal, or cannot start a thread.
pub fn write_on_usr1(text: impl Fn() -> String + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGUSR1]).context("cannot listen for SIGUSR1")?;
    let write = move || {
        for _ in signals.forever() {
            // Standard error may be closed; the next snapshot is tried all the same.
            let _ = stderr().write_all(text().as_bytes());
        }
    };
    let thread = thread::Builder::new().name("usr1".to_owned());
    thread.spawn(write).context("no thread for SIGUSR1")?;
    Ok(())
}

/// The exit code that a shell reports for a program that Ctrl-C ended.
const ABORTED: i32 = 130;

/// A flag that tells threads to end. Raising it wakes the threads that pause on it.
#[derive(Debug, Default)]
pub struct Stop {
    raised: AtomicBool,
    /// Held by a thread between its look at the flag and its sleep.
    lock: Mutex<()>,
    wake_up: Condvar,
}

impl Stop {
    /// Makes a flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a flag that the first Ctrl-C or SIGTERM raises. The second one ends the program at
    /// once, with exit code 130.
    ///
    /// # Errors
    /// When the program already listens for these signals.
    pub fn on_signals() -> Result<Arc<Self>> {
        let stop = Arc::new(Self::new());
        let raise = Arc::clone(&stop);
        let handler = move || {
            let first = raise.raise();
            if !first {
                std::process::exit(ABORTED);
            }
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
        Ok(stop)
    }

    /// Raises the flag; returns true the first time.
    pub fn raise(&self) -> bool {
        let first = !self.raised.swap(true, Ordering::SeqCst);
        // A thread that has read the flag and does not sleep yet holds the lock: once the lock was
        // taken here, each thread either sees the flag or is woken.
        drop(self.lock.lock());
        self.wake_up.notify_all();
        first
    }

    /// Returns true if the flag is raised.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Waits for the flag, at most `pause`; returns true if it is raised. [`Duration::MAX`] waits
    /// however long it takes.
    pub fn pause(&self, pause: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_raised() {
            self.wake_up.wait_for(&mut guard, pause);
        }
        self.is_raised()
    }

    /// Waits for the flag, however long.
    pub fn wait(&self) {
        while !self.pause(Duration::MAX) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_ends_an_endless_pause() {
        let stop = Stop::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| stop.wait());
            assert!(stop.raise());
            assert!(!stop.raise());
            assert!(waiter.join().is_ok());
        });
    }
}
