//! Keys are looked up by any borrowed form, as in a `HashMap`; and what an event does that is
//! raised inside a check or callback.
#![cfg(not(loom))]

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::support::{Op, Park, Probe, by_hand};
use purgatory::{Outcome, Purgatory, Timeout};

/// A key whose clones are counted, looked up by its number.
#[derive(Debug)]
struct Counted {
    number: u32,
    clones: Arc<AtomicUsize>,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, SeqCst);
        Counted { number: self.number, clones: self.clones.clone() }
    }
}

impl Borrow<u32> for Counted {
    fn borrow(&self) -> &u32 {
        &self.number
    }
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Counted {}

#[test]
fn only_awaited_events_in_callbacks_clone_a_key() {
    let clones = Arc::new(AtomicUsize::new(0));
    let key = |number| Counted { number, clones: clones.clone() };
    let (_timer, purgatory): (_, Purgatory<Counted, Op>) = by_hand();
    let (first, second) = (Probe::new(), Probe::new());
    let inside = purgatory.clone();
    let raise = move |_| {
        for number in [1, 2, 3] {
            assert_eq!(
                (inside.check_and_complete(&number), inside.complete_up_to(&number, 1)),
                (0, 0)
            );
        }
    };
    purgatory.park(first.operation().then(raise), &[key(0)], Timeout::Never);
    purgatory.park(second.operation(), &[key(2)], Timeout::Never);
    assert_eq!(clones.load(SeqCst), 2); // what is stored
    first.make_ready();
    second.make_ready();
    assert_eq!(purgatory.check_and_complete(&0), 1);
    assert_eq!((second.endings(), purgatory.len()), (vec![Outcome::Completed], 0));
    assert_eq!(clones.load(SeqCst), 4); // an event and a rise of 2
    assert_eq!(purgatory.stats().events, 7); // each once
}
