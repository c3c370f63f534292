//! What the broker's own threads wait on: "something was appended" and "stop". No thread sleeps
//! that cannot be woken.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    generation: u64,
    stopped: bool,
}

#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

impl Signal {
    /// Wakes every thread in [`Signal::wait_past`].
    pub(crate) fn notify(&self) {
        self.state.lock().generation += 1;
        self.changed.notify_all();
    }

    /// Ends every wait, now and later.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Read before looking at the state that [`Signal::wait_past`] shall wait for.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    /// Returns on a notification later than `seen`, on a stop, or after `timeout`.
    pub(crate) fn wait_past(&self, seen: u64, timeout: Duration) {
        let mut state = self.state.lock();
        let waiting = |state: &mut State| state.generation == seen && !state.stopped;
        self.changed.wait_while_for(&mut state, waiting, timeout);
    }

    /// Lets `time` pass, whatever is notified; a stop ends it.
    pub(crate) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.stopped, time);
    }
}
