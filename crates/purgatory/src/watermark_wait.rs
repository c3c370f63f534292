//! The waits of [`Watermarks`](crate::Watermarks), as operations: futures, callbacks and quorums.

use std::{any::Any, mem, task::Waker};

use crate::{
    engine::{
        answer::Yields,
        values::{Judgement, ValueWait},
    },
    error::WaitError,
    operation::{Answering, CancelReason, DelayedOperation, Kind, Outcome, opaque},
    shard::values::Member,
    watermark_value::WatermarkValue,
};

/// A wait for a value, as the operation of a [`Watermarks`](crate::Watermarks)' purgatory. It is
/// opaque: only `Watermarks` makes it and signals its keys.
///
/// The type is named where the purgatory is held apart from its `Watermarks`: a `Purgatory<String,
/// WatermarkWait>` is that of a `Watermarks<String>`.
pub struct WatermarkWait(pub(crate) Wait);

/// A wait, and the way in which its end is reported.
pub(crate) enum Wait {
    /// A future of one key's value waits for it. The waker is that of the last poll.
    Awaited(Option<Waker>),
    /// The answer of such a future, which has not taken it: the rank of the value.
    Answered(Result<u64, WaitError>),
    /// A callback.
    Callback(Callback),
    /// A future of a quorum, which knows its keys.
    Quorum(Box<dyn QuorumWait>),
}

/// The callback of [`Watermarks::park`](crate::Watermarks::park).
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

impl DelayedOperation for WatermarkWait {
    const KIND: Kind = Kind::Value;

    fn try_complete(&mut self) -> bool {
        false // the shard compares
    }

    fn on_complete(self, outcome: Outcome) {
        match self.0 {
            Wait::Callback(then) => then(outcome),
            // Its future was dropped.
            Wait::Awaited(_) | Wait::Answered(_) | Wait::Quorum(_) => {}
        }
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        match &mut self.0 {
            Wait::Awaited(waker) => Some(waker),
            Wait::Quorum(quorum) => quorum.waker(),
            Wait::Answered(_) | Wait::Callback(_) => None,
        }
    }

    fn make_answer(&mut self, outcome: &Outcome) {
        if let Wait::Quorum(quorum) = &mut self.0 {
            quorum.make_answer(outcome);
        }
    }

    fn answer(&mut self, outcome: &Outcome) -> Answering {
        match &mut self.0 {
            // With a value it is answered as it is met.
            Wait::Awaited(_) => self.put(Err(WaitError::of(outcome.clone()))),
            Wait::Quorum(quorum) => quorum.answer(),
            Wait::Answered(_) | Wait::Callback(_) => Answering::NotAwaited,
        }
    }
}

impl WatermarkWait {
    /// Makes the wait of a future of one key's value.
    pub(crate) fn awaited() -> Self {
        WatermarkWait(Wait::Awaited(None))
    }

    /// Returns the callback of a wait that has one.
    pub(crate) fn into_callback(self) -> Callback {
        match self.0 {
            Wait::Callback(then) => then,
            _ => unreachable!("it was a callback"),
        }
    }

    /// Puts the answer of a future of one key's value in the place of its wait.
    #[inline(always)]
    fn put(&mut self, answer: Result<u64, WaitError>) -> Answering {
        match mem::replace(&mut self.0, Wait::Answered(answer)) {
            Wait::Awaited(waker) => Answering::Made(waker),
            _ => unreachable!("a future waits for one key's value"),
        }
    }
}

impl<V: WatermarkValue> Yields<V> for WatermarkWait {
    fn into_answer(self) -> Result<V, WaitError> {
        match self.0 {
            Wait::Answered(answer) => answer.map(V::from_rank),
            _ => unreachable!("it was answered"),
        }
    }
}

impl<K: 'static, V: 'static> Yields<Vec<(K, V)>> for WatermarkWait {
    fn into_answer(self) -> Result<Vec<(K, V)>, WaitError> {
        let mut answer: Option<Result<Vec<(K, V)>, WaitError>> = None;
        if let Wait::Quorum(mut quorum) = self.0 {
            quorum.give_answer(&mut answer);
        }
        answer.expect("it was answered")
    }
}

impl ValueWait for WatermarkWait {
    #[inline]
    fn meet(&mut self, value: u64) -> Answering {
        match self.0 {
            Wait::Awaited(_) => self.put(Ok(value)),
            _ => Answering::NotAwaited,
        }
    }

    fn needs_value(&self) -> bool {
        !matches!(self.0, Wait::Callback(_))
    }

    fn is_quorum(&self) -> bool {
        matches!(self.0, Wait::Quorum(_))
    }

    fn judge(&mut self, members: &[Member]) -> Judgement {
        match &mut self.0 {
            Wait::Quorum(quorum) => quorum.judge(members),
            _ => Judgement::Waits,
        }
    }
}

opaque!([] WatermarkWait);

/// A quorum, whatever its keys.
pub(crate) trait QuorumWait: Send {
    fn judge(&mut self, members: &[Member]) -> Judgement;
    fn waker(&mut self) -> Option<&mut Option<Waker>>;
    fn make_answer(&mut self, outcome: &Outcome);
    fn answer(&mut self) -> Answering;
    fn give_answer(&mut self, to: &mut dyn Any);
}

/// The number of keys of a quorum that have to reach their thresholds.
#[derive(Clone, Copy)]
pub(crate) enum Needed {
    AtLeast(usize),
    /// All that are left.
    All,
}

/// A quorum of these keys.
pub(crate) struct QuorumOf<K, V> {
    pub(crate) needed: Needed,
    /// The keys, with the ranks of their thresholds: it is judged under a lock, where no code of a
    /// value's type runs.
    pub(crate) watermarks: Box<[(K, u64)]>,
    /// The ranks of the values that met it: a place for each key.
    pub(crate) met: Box<[Option<u64>]>,
    /// That of the last poll, until it is answered.
    pub(crate) waker: Option<Option<Waker>>,
    /// Made once it has ended.
    pub(crate) answer: Option<Result<Vec<(K, V)>, WaitError>>,
}

impl<K: Send + 'static, V: WatermarkValue> QuorumWait for QuorumOf<K, V> {
    fn judge(&mut self, members: &[Member]) -> Judgement {
        // 1. Count the keys that remain, and those that are met.
        let mut remaining = 0;
        let mut met = 0;
        for ((member, (_, threshold)), value) in
            members.iter().zip(&self.watermarks).zip(&mut self.met)
        {
            *value = match member {
                Member::Met(present) if present >= threshold => Some(*present),
                _ => None,
            };
            remaining += usize::from(*member != Member::Removed);
            met += usize::from(value.is_some());
        }
        // 2. Enough, or too few?
        let needed = match self.needed {
            Needed::AtLeast(k) => k,
            Needed::All => remaining.max(1),
        };
        if remaining < needed {
            Judgement::Lost { remaining, needed }
        } else if met >= needed {
            Judgement::Met
        } else {
            Judgement::Waits
        }
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        self.waker.as_mut()
    }

    fn make_answer(&mut self, outcome: &Outcome) {
        // It stays at that if the type of the values panics.
        self.answer = Some(Err(WaitError::Cancelled(CancelReason::Panicked)));
        let watermarks = mem::take(&mut self.watermarks);
        if *outcome != Outcome::Completed {
            self.answer = Some(Err(WaitError::of(outcome.clone())));
            return; // the keys go before the task runs
        }
        let mut reached = Vec::new();
        for ((key, _), rank) in watermarks.into_iter().zip(&self.met) {
            if let Some(rank) = rank {
                reached.push((key, V::from_rank(*rank)));
            }
        }
        self.answer = Some(Ok(reached));
    }

    fn answer(&mut self) -> Answering {
        if self.answer.is_none() {
            return Answering::Unmade;
        }
        match self.waker.take() {
            Some(waker) => Answering::Made(waker),
            None => Answering::NotAwaited,
        }
    }

    fn give_answer(&mut self, to: &mut dyn Any) {
        if let Some(to) = to.downcast_mut() {
            *to = self.answer.take();
        }
    }
}
