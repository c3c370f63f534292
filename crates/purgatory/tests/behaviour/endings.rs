//! Ending many at once: all of a purgatory, and all of a key.

use crate::support::{NEVER, Park, Probe, SECOND, requested, waiting};
use purgatory::{Outcome, Watches};

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
