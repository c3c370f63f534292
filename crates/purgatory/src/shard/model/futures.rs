//! Steps of futures: they poll, take answers and are dropped; and answers that come with a value.

use std::{
    sync::Arc,
    task::{Wake, Waker},
};

use super::{
    super::{
        NoAnswer, Payload,
        answer::{AbandonedOperation, Completed},
    },
    reference::Answered,
    *,
};
use crate::operation::{Answering, CancelReason, DelayedOperation, Kind, Outcome};

/// The payload of an operation.
#[derive(Debug)]
pub(in crate::shard) struct Operation {
    pub(super) number: u64,
    stage: Stage,
}

/// The state of an operation's future.
#[derive(Debug)]
enum Stage {
    /// No future waits for it.
    Plain,
    Awaited(Option<Waker>),
    Answered(Outcome),
}

/// A task that waits. Each holds one of the model's counted references.
struct Task {
    _alive: Arc<()>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

impl Operation {
    pub(super) fn new(number: u64, awaited: bool) -> Self {
        let stage = if awaited {
            Stage::Awaited(None)
        } else {
            Stage::Plain
        };
        Operation { number, stage }
    }

    /// True if its answer takes user code, and so is put in after it has ended.
    pub(super) fn is_slow(number: u64) -> bool {
        number % 3 == 0
    }

    /// Answers it, and returns the waker.
    fn complete(&mut self, outcome: Outcome) -> Option<Waker> {
        match std::mem::replace(&mut self.stage, Stage::Answered(outcome)) {
            Stage::Awaited(waker) => waker,
            other => panic!("{other:?} is answered"),
        }
    }
}

impl DelayedOperation for Operation {
    const KIND: Kind = Kind::Boxed;

    fn try_complete(&mut self) -> bool {
        unreachable!("the model has verdicts of its own")
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        match &mut self.stage {
            Stage::Awaited(waker) => Some(waker),
            _ => None,
        }
    }

    fn answer(&mut self, outcome: &Outcome) -> Answering {
        if !matches!(self.stage, Stage::Awaited(_)) {
            return Answering::NotAwaited;
        }
        if Operation::is_slow(self.number) {
            return Answering::Unmade;
        }
        Answering::Made(self.complete(outcome.clone()))
    }

    fn on_complete(self, _: Outcome) {}
}

/// True if both are the waker of one task, or none.
pub(super) fn same(waker: Option<&Waker>, other: Option<&Waker>) -> bool {
    match (waker, other) {
        (Some(waker), Some(other)) => waker.will_wake(other),
        (None, None) => true,
        _ => false,
    }
}

impl Model {
    /// A future polls: with a waker of its own or, if it has polled before, with the same.
    pub(super) fn poll(&mut self, id: TimerHandle) {
        let last = self
            .reference
            .polled(id)
            .expect("a future waits for it")
            .clone();
        let task = Task {
            _alive: self.tasks.clone(),
        };
        let mut waker = Waker::from(Arc::new(task));
        let mut clone = None;
        match &last {
            None => clone = Some(waker.clone()),
            Some(last) if self.random.bool() => waker = last.clone(),
            Some(_) => {}
        }
        // The last waker cannot be compared while it is out with the payload.
        let is_held = self.reference.get(id).is_some_and(|parked| parked.held);
        let is_out = is_held || self.unmade.iter().any(|(of, _)| *of == id);
        // A waker that is not the last one is cloned, with nothing locked.
        let shard = &mut self.shards[id.shard()];
        let mut polled = shard.poll(id, &waker, &mut clone);
        if let Err(NoAnswer::NewTask) = polled {
            assert!(is_out || !same(Some(&waker), last.as_ref()));
            clone = Some(waker.clone());
            polled = shard.poll(id, &waker, &mut clone);
        }
        match (polled, self.reference.take_answer(id)) {
            (Ok(found), Some(expected)) => self.answered(found, expected),
            (Err(NoAnswer::Pending), None) => {
                self.reference.count_if(is_held, "a poll found it held");
                *self.reference.polled(id).unwrap() = Some(waker);
            }
            (found, expected) => panic!("{found:?}, and expected {expected:?}"),
        }
    }

    fn answered(&mut self, found: super::super::awaited::Answered<Operation>, expected: Answered) {
        assert_eq!(found.has_no_turn, expected.has_no_turn);
        let Some(payload) = found.payload else {
            assert_eq!(expected.outcome, None, "its answer is made elsewhere");
            return;
        };
        assert_eq!(payload.number, expected.payload);
        match payload.stage {
            Stage::Answered(outcome) => assert_eq!(Some(outcome), expected.outcome),
            Stage::Awaited(_) => assert_eq!(expected.outcome, None, "a value is being made"),
            other => panic!("{other:?} in an entry"),
        }
    }

    /// A future is dropped.
    pub(super) fn abandon(&mut self, id: TimerHandle) {
        let dropped = Outcome::Cancelled(CancelReason::FutureDropped);
        let abandoned = self.shards[id.shard()].abandon(id, None);
        let operation = abandoned.operation;
        // 1. One that has ended: its answer goes.
        if let Some(at) = self.reference.answered.iter().position(|of| of.id == id) {
            let expected = self.reference.answered.swap_remove(at);
            let unmade = expected.outcome.is_none();
            self.reference
                .count_if(unmade, "a future goes while its value is made");
            if let Some(at) = self.unmade.iter().position(|(of, _)| *of == id) {
                let (_, payload) = self.unmade.swap_remove(at);
                let late = self.shards[id.shard()].put_answer(id, payload);
                assert_eq!(late.unwrap_err().number, expected.payload);
            }
            let AbandonedOperation::HadEnded(answered) = operation else {
                panic!("{operation:?}")
            };
            return self.answered(answered, expected);
        }
        // 2. Any other is cancelled, and not kept.
        let parked = self.reference.get(id).unwrap();
        parked.awaited = false;
        let held = parked.held;
        parked.abandoned = held;
        self.reference
            .count_if(held, "a future goes while it is held");
        let is_claimed = self.reference.claim(id, &dropped);
        match operation {
            AbandonedOperation::Cancelled(ended) if is_claimed => {
                self.departed(ended, &dropped);
            }
            AbandonedOperation::LeftAlone if !is_claimed => {}
            other => panic!("{other:?}"),
        }
    }

    /// A value comes for an operation: at once, or it is made later.
    pub(super) fn complete_in_place(&mut self, id: TimerHandle) {
        let at_once = self.random.bool();
        let shard = &mut self.shards[id.shard()];
        let held = self.reference.get(id).unwrap().held;
        let completed = shard.complete_at(id.id().index(), None, |payload| {
            let answer = at_once.then_some(Outcome::Completed)?;
            payload.complete(answer)
        });
        assert_eq!(completed.is_none(), held);
        let Some(Completed { to_release, waker }) = completed else {
            return;
        };
        let new_head = self.reference.new_head(id);
        let expected = self.reference.get(id).unwrap().waker.clone();
        if at_once {
            assert!(same(waker.as_ref(), expected.as_ref()), "the last waker");
        }
        let (parked, left) = self.reference.remove_ended(id, &Outcome::Completed);
        assert_eq!(to_release.new_head, new_head);
        assert_eq!(to_release.weight, Some(parked.payload));
        assert_eq!(to_release.last_secondary, parked.tickets.last().copied());
        assert_eq!(to_release.emptied_key.map(|key| key.number), left);
        self.reference.count_if(!at_once, "a value is made later");
        self.reference.answered.push(Answered {
            id,
            payload: parked.payload,
            outcome: at_once.then_some(Outcome::Completed),
            has_no_turn: false,
            waker: if at_once { None } else { expected },
        });
    }

    /// A value is there for an operation that has ended.
    pub(super) fn answer_ended(&mut self) {
        let mut unmade = self.reference.answered.iter_mut();
        let Some(answered) = unmade.find(|answered| answered.outcome.is_none()) else {
            return;
        };
        let id = answered.id;
        let shard = &mut self.shards[id.shard()];
        let waker = match self.unmade.iter().position(|(of, _)| *of == id) {
            // It was ended with its payload out.
            Some(at) => {
                let (_, mut payload) = self.unmade.swap_remove(at);
                let before = payload.complete(Outcome::Completed);
                shard.put_answer(id, payload).unwrap().or(before)
            }
            None => {
                let complete = |payload: &mut Operation| payload.complete(Outcome::Completed);
                shard.answer_ended(id, complete).unwrap()
            }
        };
        let last = answered.waker.take();
        assert!(same(waker.as_ref(), last.as_ref()), "the last waker");
        answered.outcome = Some(Outcome::Completed);
    }

    /// Makes the payload with which an operation comes to its shard.
    pub(super) fn payload_of(payload: u64, awaited: bool, at_once: bool) -> Payload<Operation> {
        if at_once {
            Payload::Here(Operation::new(payload, awaited))
        } else {
            Payload::Out
        }
    }
}
