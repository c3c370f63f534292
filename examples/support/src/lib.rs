//! Code that several examples share: serving metrics and the live page, ending threads, reading
//! durations from the command line.

mod metrics;

use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{sync::Arc, thread, time::Duration};

use anyhow::{Context, Result};
use parking_lot::{Condvar, Mutex};
use signal_hook::{consts::SIGUSR1, iterator::Signals};

pub use metrics::serve;

/// Parses a duration with a unit, within bounds that are written the same way.
pub fn between(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |value| {
        let duration = |text| humantime::parse_duration(text).map_err(|error| error.to_string());
        let given = duration(value)?;
        match (duration(least)?..=duration(most)?).contains(&given) {
            true => Ok(given),
            false => Err(format!("must be from {least} to {most}")),
        }
    }
}

/// Writes a text to standard error at each SIGUSR1, from a thread of its own. The examples write
/// snapshots, to show what hangs.
///
/// # Errors
/// When the signal cannot be listened for, or no thread can be had.
pub fn write_on_usr1(text: impl Fn() -> String + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGUSR1]).context("cannot listen for SIGUSR1")?;
    let write = move || {
        for _ in signals.forever() {
            let _ = stderr().write_all(text().as_bytes()); // it may be closed
        }
    };
    thread::Builder::new()
        .name("usr1".to_owned())
        .spawn(write)?;
    Ok(())
}

/// What a shell reports for a program that Ctrl-C ended.
const ABORTED: i32 = 130;

/// A flag that tells threads to end. A thread that pauses on it is woken when it is raised.
#[derive(Debug, Default)]
pub struct Stop {
    raised: AtomicBool,
    lock: Mutex<()>,
    bell: Condvar,
}

impl Stop {
    /// A flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that the first Ctrl-C or SIGTERM raises; the second does not wait for anything.
    ///
    /// # Errors
    /// When the program listens for these already.
    pub fn on_signals() -> Result<Arc<Self>> {
        let stop = Arc::new(Self::new());
        let raise = Arc::clone(&stop);
        let handler = move || {
            if !raise.raise() {
                std::process::exit(ABORTED);
            }
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
        Ok(stop)
    }

    /// Raises the flag; true the first time.
    pub fn raise(&self) -> bool {
        let first = !self.raised.swap(true, Ordering::SeqCst);
        // Taking the lock orders this after the look of a thread that is about to pause: it cannot
        // miss the bell.
        drop(self.lock.lock());
        self.bell.notify_all();
        first
    }

    /// Whether the flag is up.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Waits for the flag, at most `pause`; true if it is up.
    pub fn pause(&self, pause: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_raised() {
            self.bell.wait_for(&mut guard, pause);
        }
        self.is_raised()
    }

    /// Waits for the flag, however long.
    pub fn wait(&self) {
        while !self.pause(Duration::from_secs(3600)) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_ends_a_pause_that_is_as_good_as_endless() {
        let stop = Stop::new();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| stop.wait());
            assert!(stop.raise());
            assert!(!stop.raise());
            assert!(waiter.join().is_ok());
        });
    }
}
