//! Fair ends: an event that comes after a deadline but before the reaper, and an event for one
//! (`check_and_complete_one`), which takes waiters in the order of parking.
#![cfg(not(loom))]

use crate::support::*;

/// A turn that one holder has at a time: a wait takes it, and its guard passes it on when dropped.
#[derive(Clone)]
struct Turns {
    free: Arc<Mutex<bool>>,
    waits: Purgatory<&'static str, BoxedOperation>,
}

struct Turn(Turns);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap() = true;
        self.0.waits.check_and_complete_one(&"turn");
    }
}

/// Holds a future where its own check can drop it.
type Slot = Arc<Mutex<Option<WaitFuture<Turn>>>>;

impl Turns {
    /// Waits for a turn. `act` runs at the start of each check, and returns whether the check may
    /// take the turn.
    fn wait_with(&self, mut act: impl FnMut() -> bool + Send + 'static) -> WaitFuture<Turn> {
        let turns = self.clone();
        self.waits.wait(&["turn", "other"], SECOND, move || {
            let took = act() && std::mem::replace(&mut *turns.free.lock().unwrap(), false);
            if took {
                Some(Turn(turns.clone()))
            } else {
                None
            }
        })
    }

    fn wait(&self) -> WaitFuture<Turn> {
        self.wait_with(|| true)
    }
}

fn drop_head(slot: &Slot) {
    let future = slot.lock().unwrap().take();
    drop(future);
}

/// The check is on its own thread or another, and is true or false. (In `recipes/one_at_a_time` a
/// head is dropped with its turn.)
#[test]
fn a_head_dropped_in_its_check_passes_its_turn_on() {
    for (takes, elsewhere) in [(true, false), (true, true), (false, false), (false, true)] {
        let turns = Turns {
            free: Arc::new(Mutex::new(true)),
            waits: by_hand().1,
        };
        let out = over(&mut turns.wait()).unwrap();
        let head = Slot::default();
        let mut checks = 0;
        let slot = head.clone();
        let wait = turns.wait_with(move || {
            checks += 1;
            match checks {
                2 if elsewhere => on_another_thread(|| drop_head(&slot)),
                2 => drop_head(&slot),
                _ => {}
            }
            checks != 2 || takes
        });
        *head.lock().unwrap() = Some(wait);
        let mut next = turns.wait();
        let mut last = turns.wait();
        drop(out);
        assert!(head.lock().unwrap().is_none(), "the head was dropped");
        let turn = over(&mut next).unwrap();
        assert!(poll(&mut last).is_pending());
        drop(turn);
        drop(over(&mut last).unwrap());
        assert!(*turns.free.lock().unwrap());
        assert_empty(&turns.waits);
    }
}
