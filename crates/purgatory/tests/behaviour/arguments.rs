//! Events with an argument: it reaches the checks of the event's key. Events that meet an operation
//! under check are merged into one check without an argument.
#![cfg(not(loom))]

use std::any::Any;

use crate::support::*;

/// The checks of a [`Recorder`]: each one's argument, `None` for a check without one.
type Checks = Arc<Mutex<Vec<Option<u32>>>>;

/// An operation that waits for a number and records its checks.
struct Recorder {
    wanted: u32,
    checks: Checks,
    inside: Box<dyn FnMut(Option<u32>) + Send>,
}

impl Recorder {
    fn check(&mut self, argument: Option<u32>) -> bool {
        self.checks.lock().unwrap().push(argument);
        (self.inside)(argument);
        argument == Some(self.wanted)
    }
}

impl DelayedOperation for Recorder {
    fn try_complete(&mut self) -> bool {
        self.check(None)
    }

    fn try_complete_with(&mut self, event: &dyn Any) -> bool {
        self.check(event.downcast_ref().copied())
    }

    fn on_complete(self, _: Outcome) {}
}

fn recorder(wanted: u32, inside: impl FnMut(Option<u32>) + Send + 'static) -> (Checks, Recorder) {
    let checks = Checks::default();
    let recorder = Recorder {
        wanted,
        checks: checks.clone(),
        inside: Box::new(inside),
    };
    (checks, recorder)
}

/// Operations of their own type and boxed ones get it, under one key and several, alone and in a
/// crowd.
#[test]
fn an_argument_reaches_each_check_of_its_key() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand();
    let mut all = Vec::new();
    for wanted in 0..40 {
        let (checks, operation) = recorder(wanted, |_| ());
        let keys = &[1, wanted + 10][..1 + wanted as usize % 2];
        waits.park(BoxedOperation::new(operation), keys, NEVER);
        all.push(checks);
    }
    assert_eq!(waits.check_and_complete_with(&1, &7_u32), 1);
    for (wanted, checks) in all.iter().enumerate() {
        assert_eq!(*checks.lock().unwrap(), [None, Some(7)], "{wanted}");
    }
    assert_eq!(waits.check_and_complete_with(&2, &7_u32), 0);
    assert_eq!(waits.len(), 39);
    assert_eq!(waits.check_and_complete_with(&1, &8_u32), 1);
    assert_eq!(*all[7].lock().unwrap(), [None, Some(7)], "it has ended");
    assert_eq!((waits.stats().events, waits.cancel_all("over")), (3, 38));
    assert_empty(&waits);
}

/// `when`, waits, and operations without the method ignore the argument.
#[test]
fn an_argument_is_a_plain_event_by_default() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let mut checks = 0;
    let second = move || {
        checks += 1;
        checks == 2
    };
    waits.park(when(second, drop), &["a"], NEVER);
    assert_eq!(waits.check_and_complete_with(&"a", &()), 1);

    let (_timer, waits): (_, Waiting) = waiting();
    let probe = Probe::parked(&waits, &["a"], NEVER);
    assert_eq!(waits.check_and_complete_with(&"a", &1_u8), 0);
    probe.make_ready();
    assert_eq!(waits.check_and_complete_with(&"a", &1_u8), 1);
}

/// Events from the checking thread and from another, one or several, lead to one check without an
/// argument.
#[test]
fn events_during_a_check_are_merged() {
    let (_timer, waits) = by_hand();
    let raised: Purgatory<&str, Recorder> = waits.clone();
    let (checks, operation) = recorder(9, move |argument| {
        if argument == Some(1) {
            for event in [2_u32, 9] {
                let meets = || assert_eq!(raised.check_and_complete_with(&"a", &event), 0);
                on_another_thread(meets);
            }
        }
    });
    waits.park(operation, &["a"], MINUTE);
    assert_eq!(waits.check_and_complete_with(&"a", &1_u32), 0);
    assert_eq!(*checks.lock().unwrap(), [None, Some(1), None]); // merged from several
    assert_eq!(waits.check_and_complete_with(&"a", &9_u32), 1);
    assert_empty(&waits);
}

/// An event during a park may come before the key is watched, so its argument is lost.
#[test]
fn an_event_as_it_is_parked_has_no_argument() {
    let (_timer, waits) = by_hand();
    let raised: Purgatory<&str, Recorder> = waits.clone();
    let mut is_first = true;
    let (checks, operation) = recorder(9, move |_| {
        if std::mem::take(&mut is_first) {
            let meets = || assert_eq!(raised.check_and_complete_with(&"a", &9_u32), 0);
            on_another_thread(meets);
        }
    });
    waits.park(operation, &["a"], MINUTE);
    assert_eq!(*checks.lock().unwrap(), [None, None]);
}

#[test]
fn an_event_inside_a_callback_has_no_argument() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let inside = waits.clone();
    let nested = move |_| assert_eq!(inside.check_and_complete_with(&"b", &9_u32), 0);
    let first = waits.park(when(|| false, nested), &["a"], NEVER);
    let (checks, operation) = recorder(9, |_| ());
    waits.park(BoxedOperation::new(operation), &["b"], NEVER);
    waits.complete(first);
    assert_eq!(*checks.lock().unwrap(), [None, None]);
}

#[test]
fn a_panic_with_an_argument_is_contained() {
    struct Panics(Arc<Mutex<Vec<Outcome>>>);
    impl DelayedOperation for Panics {
        fn try_complete(&mut self) -> bool {
            false
        }
        fn try_complete_with(&mut self, _: &dyn Any) -> bool {
            panic!("a check with an argument")
        }
        fn on_complete(self, outcome: Outcome) {
            self.0.lock().unwrap().push(outcome);
        }
    }
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let endings = Arc::default();
    for _ in 0..2 {
        let operation = BoxedOperation::new(Panics(Arc::clone(&endings)));
        waits.park(operation, &["a"], NEVER);
    }
    assert_eq!(waits.check_and_complete_with(&"a", &()), 0);
    assert_eq!(*endings.lock().unwrap(), [PANICKED, PANICKED]);
    assert_eq!(waits.stats().panics, 2);
}
