//! A timer whose clock moves as it is read, as the machine's clock does between two reads. The
//! timer is on a one-threaded tokio runtime with a paused clock, so every run is the same.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its part"
)]

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use timer_core::{Clock, SystemTimer, SystemTimerBuilder};
use tokio::{
    runtime::{Builder, Handle},
    time::Instant,
};

/// The time of tokio's paused clock, and a lead that grows with each read as the test says.
#[derive(Clone, Debug)]
pub struct SteppedClock {
    origin: Instant,
    steps: Arc<Steps>,
    /// The longest time for which a sleep of the runtime may miss a step.
    pub sleep_max: Option<Duration>,
}

#[derive(Debug, Default)]
struct Steps {
    lead_ns: AtomicU64,
    /// The steps before the next reads.
    next_ns: Mutex<VecDeque<u64>>,
}

impl SteppedClock {
    pub fn new() -> Self {
        SteppedClock {
            origin: Instant::now(),
            steps: Arc::default(),
            sleep_max: None,
        }
    }

    /// Makes a timer with this clock, a task of the present runtime.
    pub fn timer(
        &self,
        configure: impl FnOnce(SystemTimerBuilder) -> SystemTimerBuilder,
    ) -> SystemTimer {
        let builder = SystemTimer::builder().tokio(Handle::current());
        configure(builder.clock(self.clone())).build().unwrap()
    }

    /// Makes the clock move by one of these steps before each of the next reads.
    pub fn step(&self, steps: &[Duration]) {
        let mut next_ns = self.steps.next_ns.lock().unwrap();
        next_ns.clear();
        for step in steps {
            next_ns.push_back(step.as_nanos() as u64);
        }
    }

    /// Returns the present, without a step.
    pub fn peek_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64 + self.steps.lead_ns.load(SeqCst)
    }
}

impl Clock for SteppedClock {
    fn now_ns(&self) -> u64 {
        let step_ns = self.steps.next_ns.lock().unwrap().pop_front();
        self.steps.lead_ns.fetch_add(step_ns.unwrap_or(0), SeqCst);
        self.peek_ns()
    }

    fn sleep_max(&self) -> Option<Duration> {
        self.sleep_max
    }
}

/// Runs a test on one thread, whose tokio clock advances when all tasks wait for it.
pub fn on_paused_time(test: impl Future<Output = ()>) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test);
}
