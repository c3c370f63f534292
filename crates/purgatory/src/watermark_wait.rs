//! The waits of [`Watermarks`](crate::Watermarks), as operations: futures, callbacks and quorums.

use std::{mem, task::Waker};

use crate::{
    engine::{
        answer::Yields,
        values::{Judgement, ValueWait},
    },
    error::WaitError,
    operation::{DelayedOperation, Outcome, opaque},
    shard::values::Member,
    wait::Unfilled,
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
    /// A future of one key's value waits for it.
    Awaited {
        /// That of the last poll.
        waker: Option<Waker>,
        /// The rank of the value that met the threshold.
        value: u64,
    },
    /// The answer of such a future, which has not taken it: the rank of the value.
    Answered(Result<u64, WaitError>),
    /// The part that is called back then.
    WakeUp(Option<Waker>),
    /// A callback.
    Callback(Callback),
    /// A future of a quorum, which knows its keys.
    Quorum(Box<dyn QuorumWait>),
}

/// The callback of [`Watermarks::park`](crate::Watermarks::park).
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

impl DelayedOperation for WatermarkWait {
    const CHECKED: bool = false;
    const HAS_EVENTS: bool = true;
    const SIGNALLED_BY_CALLERS: bool = false;
    const AWAITED: bool = true;

    fn try_complete(&mut self) -> bool {
        false // the shard compares
    }

    fn on_complete(self, outcome: Outcome) {
        match self.0 {
            Wait::Callback(then) => then(outcome),
            Wait::Quorum(quorum) => quorum.ended(outcome),
            Wait::WakeUp(Some(waker)) => waker.wake(),
            // A future that was dropped, or no task to wake.
            Wait::Awaited { .. } | Wait::Answered(_) | Wait::WakeUp(None) => {}
        }
    }

    fn waker(&mut self) -> Option<&mut Option<Waker>> {
        match &mut self.0 {
            Wait::Awaited { waker, .. } => Some(waker),
            _ => None,
        }
    }

    fn answer(&mut self, outcome: &Outcome) -> Self {
        let answer = Wait::Answered(self.result(outcome.clone()));
        match mem::replace(&mut self.0, answer) {
            Wait::Awaited { waker, .. } => WatermarkWait(Wait::WakeUp(waker)),
            _ => unreachable!("a future waits for it"),
        }
    }
}

impl WatermarkWait {
    /// Makes the wait of a future of one key's value.
    pub(crate) fn awaited() -> Self {
        WatermarkWait(Wait::Awaited {
            waker: None,
            value: 0,
        })
    }

    /// Returns what a future of one key's value yields after this outcome, as a rank.
    pub(crate) fn result(&self, outcome: Outcome) -> Result<u64, WaitError> {
        match (&self.0, outcome) {
            (Wait::Awaited { value, .. }, Outcome::Completed) => Ok(*value),
            (_, outcome) => Err(WaitError::of(outcome)),
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

impl ValueWait for WatermarkWait {
    fn met(&mut self, value: u64) {
        if let Wait::Awaited { value: answer, .. } = &mut self.0 {
            *answer = value;
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
    fn ended(self: Box<Self>, outcome: Outcome);
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
    pub(crate) answer: Unfilled<Vec<(K, V)>>,
}

impl<K: Send, V: WatermarkValue> QuorumWait for QuorumOf<K, V> {
    fn judge(&mut self, members: &[Member]) -> Judgement {
        // 1. Count the keys that are left, and those that are met.
        let mut left = 0;
        let mut met = 0;
        for ((member, (_, threshold)), value) in
            members.iter().zip(&self.watermarks).zip(&mut self.met)
        {
            *value = match member {
                Member::Reached(present) if present >= threshold => Some(*present),
                _ => None,
            };
            left += usize::from(*member != Member::Removed);
            met += usize::from(value.is_some());
        }
        // 2. Enough, or too few?
        let needed = match self.needed {
            Needed::AtLeast(k) => k,
            Needed::All => left.max(1),
        };
        if left < needed {
            Judgement::Lost { left, needed }
        } else if met >= needed {
            Judgement::Met
        } else {
            Judgement::Waits
        }
    }

    fn ended(self: Box<Self>, outcome: Outcome) {
        let QuorumOf {
            watermarks,
            met,
            mut answer,
            ..
        } = *self;
        if outcome != Outcome::Completed {
            drop(watermarks); // before the task runs
            return answer.fill(Err(WaitError::of(outcome)));
        }
        let mut reached = Vec::new();
        for ((key, _), rank) in watermarks.into_iter().zip(met) {
            if let Some(rank) = rank {
                reached.push((key, V::from_rank(rank)));
            }
        }
        answer.fill(Ok(reached));
    }
}
