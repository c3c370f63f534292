//! The self-checks checked: a timer that does none of what it should is found out by every row.

use std::time::Duration;

use super::{
    advance, bytes,
    expire::{Expire, expire},
    idle,
    schedule::{Hire, Work, crew},
};
use crate::{
    sink::{Noted, Sink},
    timers::{Core, Timer},
};

/// Cancels nothing, and fires twice, at once.
struct Broken(&'static Sink);

impl Timer for Broken {
    const NAME: &'static str = "broken";
    type Handle = ();
    type Local<'a> = &'static Sink;

    fn start(sink: &'static Sink) -> anyhow::Result<Self> {
        Ok(Broken(sink))
    }

    fn local(&self) -> &'static Sink {
        self.0
    }

    fn schedule(_: &mut &'static Sink, _: Duration) {}

    fn schedule_firing(sink: &mut &'static Sink, _: Duration, due_ns: u64) {
        sink.fired(due_ns);
        sink.fired(due_ns);
    }

    fn cancel(_: &mut &'static Sink, (): ()) -> bool {
        false
    }
}

/// Loses the first timer.
#[derive(Default)]
struct Forgetful(Vec<u64>);

impl Core for Forgetful {
    const NAME: &'static str = "forgetful";

    fn insert(&mut self, _: u64, id: u64) {
        self.0.extend((id > 0).then_some(id));
    }

    fn advance(&mut self, _: u64, sink: impl FnMut(u64)) {
        self.0.drain(..).for_each(sink);
    }
}

fn hire(pending: usize, work: Work) -> Hire {
    Hire { threads: 1, pending, work }
}

#[test]
fn a_timeout_that_was_not_cancelled_is_noticed() {
    assert!(crew::<Broken>(hire(0, Work::ScheduleCancel)).unwrap().work(1).is_err());
    assert!(crew::<Broken>(hire(1, Work::Replace)).unwrap().work(1).is_err());
}

#[test]
fn a_pending_timer_that_has_gone_is_noticed() {
    assert!(crew::<Broken>(hire(1, Work::ScheduleCancel)).unwrap().go_home().is_err());
    assert!(bytes::pending::<Broken>(1).is_err());
    assert!(idle::watch::<Broken>(Duration::from_millis(1)).is_err());
}

#[test]
fn a_timer_that_fires_twice_is_noticed() {
    let (window, lead, noted) = (Duration::ZERO, Duration::from_secs(1), Noted::Ends);
    assert!(
        expire::<Broken>(Expire { timers: 8, threads: 8, window: Some(window), lead, noted })
            .is_err()
    );
}

#[test]
fn a_timer_that_does_not_fire_is_noticed() {
    assert!(advance::turn::<Forgetful>((2, 1)).is_err());
}
