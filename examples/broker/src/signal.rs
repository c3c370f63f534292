//! What the broker's own threads wait on: "stop", and followers that are paused for "go on". No
//! thread sleeps that cannot be woken.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct State {
    stopped: bool,
    followers_paused: bool,
}

#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

impl Signal {
    /// Ends every wait, now and later.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Lets `time` pass; a stop ends it.
    pub(crate) fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.stopped, time);
    }

    /// Takes effect at the followers' next fetch.
    pub(crate) fn pause_followers(&self, paused: bool) {
        self.state.lock().followers_paused = paused;
        self.changed.notify_all();
    }

    pub(crate) fn wait_while_followers_paused(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.followers_paused && !state.stopped);
    }
}
