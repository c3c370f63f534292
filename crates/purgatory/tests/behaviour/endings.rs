//! Ending many at once: all of a purgatory, and all of a key.

use std::{
    sync::mpsc::{Sender, channel},
    time::Duration,
};

use crate::support::{MS, NEVER, Park, Probe, SECOND, requested, waiting};
use purgatory::{BoxedOperation, DelayedOperation, Outcome, Purgatory, Watches};
use timer_core::ManualTimer;

#[test]
fn cancel_all_ends_all_and_leaves_the_purgatory_open() {
    let (_timer, purgatory) = waiting();
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    let two = |number: usize| [keys[number % 7], keys[number * 3 % 7]];
    let probes: Vec<_> = (0..300)
        .map(|number| Probe::parked(&purgatory, &two(number), NEVER))
        .collect();
    let watermark = Probe::parked(&purgatory, Watches::up_to(&[("a", 5)]), NEVER);
    let parking = Probe::new();
    let parks = purgatory.clone();
    let again = [(); 26].map(|()| Probe::new());
    let inner = again.each_ref().map(Probe::operation);
    let then = move |_| {
        for (at, one) in inner.into_iter().enumerate() {
            parks.park(one, &[&"abcdefghijklmnopqrstuvwxyz"[at..=at]], NEVER);
        }
    };
    let operation = parking.operation().then(then);
    purgatory.park(operation, &["a"], NEVER);

    assert_eq!(purgatory.cancel_all("moved away"), 302);
    let moved = [requested("moved away")];
    assert!(
        probes
            .iter()
            .chain([&watermark, &parking])
            .all(|probe| probe.endings() == moved)
    );
    assert_eq!(
        (purgatory.len(), again.iter().any(Probe::ended)),
        (26, false)
    ); // a callback's
    let stats = purgatory.stats();
    assert_eq!(
        [
            stats.cancelled,
            stats.cancelled_by_shutdown,
            stats.cancelled_by_drop
        ],
        [302, 0, 0]
    );
    assert_eq!([1, 2].map(|_| purgatory.cancel_all("again")), [26, 0]);
}

#[test]
fn complete_for_key_completes_without_a_check() {
    let (timer, purgatory) = waiting();
    let level = [("a", 9), ("b", 9)];
    let watches = [
        Watches::keys(&["a"]),
        Watches::keys(&["b", "a"]),
        Watches::up_to(&level),
    ];
    let probes = watches.map(|watches| Probe::parked(&purgatory, watches, SECOND));
    let other = Probe::parked(&purgatory, &["b"], SECOND);
    assert_eq!([1, 2].map(|_| purgatory.complete_for_key(&"a")), [3, 0]);
    for probe in probes {
        assert_eq!(
            (probe.endings(), probe.checks()),
            (vec![Outcome::Completed], 1)
        );
    }
    assert_eq!(
        (other.ended(), purgatory.len(), purgatory.watched()),
        (false, 1, 1)
    );
    timer.advance(SECOND);
    assert_eq!(
        (other.endings(), purgatory.stats().completed),
        (vec![Outcome::Expired], 3)
    );
}

/// Sends how late it expires, then panics; and sends its end.
struct Late(Sender<(Duration, Option<Outcome>)>);

impl DelayedOperation for Late {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn expiring(&mut self, late: &dyn Fn() -> Duration) {
        self.0.send((late(), None)).unwrap();
        panic!("as it expires");
    }

    fn on_complete(self, outcome: Outcome) {
        self.0.send((Duration::ZERO, Some(outcome))).unwrap();
    }
}

#[test]
fn an_expiry_says_how_late_it_is() {
    let timer = ManualTimer::new();
    let builder = Purgatory::<&str, BoxedOperation>::builder("late").timer(&timer);
    let purgatory = builder.build().unwrap();
    let (send, ends) = channel();
    for _ in 0..2 {
        let operation = BoxedOperation::new(Late(send.clone()));
        purgatory.park(operation, &["k"], 10 * MS);
    }
    timer.pass(50 * MS);
    timer.advance(Duration::ZERO);
    let ends: Vec<_> = ends.try_iter().collect();
    let expired = (Duration::ZERO, Some(Outcome::Expired));
    let late = (40 * MS, None);
    assert_eq!(ends, [late.clone(), expired.clone(), late, expired]);
    assert_eq!(purgatory.stats().panics, 2, "contained");
}
