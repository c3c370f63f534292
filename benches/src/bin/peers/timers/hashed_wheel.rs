//! `hierarchical_hash_wheel_timer`'s `TimerWithThread`, to which requests go over a channel, so
//! that a measured loop ends when the thread has done them all. A cancel gives no answer: that the
//! loop settled and that nothing fired is the check. The state is our own type, which saves it a
//! box.

use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use hierarchical_hash_wheel_timer::{
    OneshotState, PeriodicClosureState, Timer as _,
    thread_timer::{TimerRef, TimerWithThread},
};

use super::timer::Timer;
use crate::sink::Sink;

pub(crate) struct HashedWheel {
    timer: Option<TimerWithThread<u64, State, PeriodicClosureState<u64>>>,
    ids: AtomicU64,
    sink: &'static Sink,
}

#[derive(Debug)]
struct State {
    id: u64,
    then: Then,
}

#[derive(Debug)]
enum Then {
    Fire(&'static Sink, u64),
    Settle(mpsc::Sender<()>),
}

impl OneshotState for State {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }

    fn trigger(self) {
        match self.then {
            Then::Fire(sink, due_ns) => sink.fired(due_ns),
            Then::Settle(done) => _ = done.send(()),
        }
    }
}

pub(crate) struct Local {
    timer: TimerRef<u64, State, PeriodicClosureState<u64>>,
    next: u64,
    sink: &'static Sink,
}

impl Local {
    fn add(&mut self, delay: Duration, then: Then) -> u64 {
        self.next += 1;
        self.timer.schedule_once(delay, State { id: self.next, then });
        self.next
    }
}

impl Timer for HashedWheel {
    const NAME: &'static str = "hashed-wheel";
    type Handle = u64;
    type Local<'a> = Local;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(HashedWheel { timer: Some(TimerWithThread::new()?), ids: AtomicU64::new(0), sink })
    }

    fn local(&self) -> Local {
        let timer = self.timer.as_ref().expect("until dropped").timer_ref();
        Local { timer, next: self.ids.fetch_add(1 << 40, Ordering::Relaxed), sink: self.sink }
    }

    fn schedule_firing(local: &mut Local, delay: Duration, due_ns: u64) -> u64 {
        let then = Then::Fire(local.sink, due_ns);
        local.add(delay, then)
    }

    fn cancel(local: &mut Local, handle: u64) -> bool {
        local.timer.cancel(&handle);
        true
    }

    fn settle(local: &mut Local) {
        let (done, settled) = mpsc::channel();
        local.add(Duration::ZERO, Then::Settle(done));
        settled.recv().expect("the timer's thread");
    }
}

impl Drop for HashedWheel {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.shutdown().expect("the timer's thread");
        }
    }
}
