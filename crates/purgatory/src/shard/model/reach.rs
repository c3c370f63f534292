//! Steps that reach an operation: it is taken out, or shown where it lies.

use super::{
    super::{Then, reach::InPlace},
    futures::same,
    reference::Answered,
    *,
};
use crate::operation::ReachResult;

/// An operation as it was found.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    /// `None` while it is held.
    payload: Option<u64>,
    /// `None` once that watch was taken.
    first_key: Option<Number>,
}

impl Model {
    pub(super) fn reach(&mut self) {
        let parked = self.reference.all.iter().map(|parked| parked.id);
        let answered = self.reference.answered.iter().map(|answered| answered.id);
        let ids: Vec<_> = parked.chain(answered).collect();
        let Some(id) = self.random.choice(ids) else {
            return;
        };
        match self.random.u8(..4) {
            0 => self.take(id),
            1 => self.look(id),
            _ => self.show(id),
        }
    }

    /// Returns the state of an operation, as a call that reaches it says.
    fn reached(&mut self, id: TimerHandle) -> ReachResult<u64> {
        match self.reference.get(id) {
            None => ReachResult::Gone,
            Some(parked) if parked.held => ReachResult::UnderCheck,
            Some(parked) => ReachResult::Parked(parked.payload),
        }
    }

    /// Takes an operation out. One that a future waits for is answered elsewhere.
    fn take(&mut self, id: TimerHandle) {
        let expected = self.reached(id);
        let ended = match (self.shards[id.shard()].take(id), expected) {
            (ReachResult::Parked(ended), ReachResult::Parked(_)) => ended,
            (ReachResult::UnderCheck, ReachResult::UnderCheck)
            | (ReachResult::Gone, ReachResult::Gone) => return,
            (found, expected) => panic!("{found:?}, and expected {expected:?}"),
        };
        let new_head = self.reference.new_head(id);
        let (parked, left) = self.reference.remove(id);
        self.reference.homes[id.shard()].taken += 1;
        let released = ended.to_release;
        assert_eq!(released.new_head, new_head);
        assert_eq!(released.weight, Some(parked.payload)); // with its number as its weight
        assert_eq!(released.last_secondary, parked.tickets.last().copied());
        assert_eq!(released.emptied_key.map(|key| key.number), left);
        self.reference
            .count_if(parked.awaited, "a future's operation taken out");
        match ended.then {
            Then::CallBack { payload, .. } => {
                assert_eq!((payload.number, parked.awaited), (parked.payload, false));
            }
            Then::Answer { payload, handle } => {
                assert!(parked.awaited);
                assert_eq!((payload.number, handle), (parked.payload, id));
                self.unmade.push((id, payload));
                self.reference.answered.push(Answered {
                    id,
                    payload: parked.payload,
                    outcome: None,
                    has_no_turn: true,
                    waker: parked.waker,
                });
            }
            Then::Wake(_) => panic!("it has no answer yet"),
        }
    }

    fn look(&mut self, id: TimerHandle) {
        let mut number = None;
        let found = self.shards[id.shard()].reach(id, |payload| number = Some(payload.number));
        let found = match found {
            ReachResult::Parked(replaced) => {
                assert!(replaced.is_none(), "it stays in its place");
                ReachResult::Parked(number.expect("it was shown"))
            }
            ReachResult::UnderCheck => ReachResult::UnderCheck,
            ReachResult::Gone => ReachResult::Gone,
        };
        assert_eq!(found, self.reached(id));
    }

    /// Shows an operation, and puts another in its place or not: that one has no future.
    fn show(&mut self, id: TimerHandle) {
        let replaces = self.random.bool();
        let mut shown = None;
        let look = |it: InPlace<'_, Key, Operation>| {
            let first_key = it.first_key.map(|key| key.number);
            let payload = it.payload.map(|payload| {
                let number = payload.number;
                if replaces {
                    *payload = Operation::new(number, false);
                }
                number
            });
            shown = Some(Shown { payload, first_key });
        };
        let replaced = self.shards[id.shard()].show(id, look);

        let first_key = self.reference.key_of(id.shard(), Linked::first(id));
        let expected = self.reference.get(id).map(|parked| {
            let payload = if parked.held {
                None
            } else {
                Some(parked.payload)
            };
            Shown { payload, first_key }
        });
        assert_eq!(shown, expected);
        let Some(parked) = self.reference.get(id) else {
            assert!(replaced.is_none());
            return;
        };
        let mut last = None;
        if replaces && !parked.held {
            last = parked.waker.take();
            let awaited = std::mem::take(&mut parked.awaited);
            self.reference
                .count_if(awaited, "a future's operation replaced");
        }
        assert!(same(replaced.as_ref(), last.as_ref()), "the last waker");
    }
}
