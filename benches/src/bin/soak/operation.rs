//! The operations that are parked without a future, and what they do besides ending.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use purgatory::{BoxedOperation, DelayedOperation, Outcome, Timeout};

use crate::{
    books::{Ending, Kind, Opened, Record},
    key::without_fuse,
    world::{CHAIN, World},
};

/// What an operation waits for.
pub(crate) enum Until {
    Flag(Arc<AtomicBool>),
    /// Its turn at a hot key.
    Turn(Weak<World>, usize, u64),
    /// All of these levels: keys and values.
    Levels(Weak<World>, Vec<(u64, u64)>),
    /// The second look.
    Looked(bool),
}

impl Until {
    fn holds(&mut self) -> bool {
        match self {
            Until::Flag(flag) => flag.load(SeqCst),
            Until::Turn(world, key, turn) => {
                world.upgrade().is_some_and(|world| world.hot[*key].come.load(SeqCst) > *turn)
            }
            Until::Levels(world, levels) => {
                let Some(world) = world.upgrade() else { return false };
                let reached =
                    |&(key, value): &(u64, u64)| world.levels[key as usize].load(SeqCst) >= value;
                levels.iter().all(reached)
            }
            Until::Looked(looked) => std::mem::replace(looked, true),
        }
    }
}

/// What else it does.
#[derive(Default)]
pub(crate) enum Extra {
    #[default]
    Nothing,
    /// Its check panics, the next time but so many.
    CheckPanics(u32),
    CallbackPanics,
    /// Its callback parks another, which does the same, so many times, and raises its event.
    Chain(Weak<World>, u32),
}

pub(crate) struct Operation {
    pub(crate) record: Arc<Record>,
    pub(crate) until: Until,
    pub(crate) extra: Extra,
}

impl DelayedOperation for Operation {
    fn try_complete(&mut self) -> bool {
        if let Extra::CheckPanics(left) = &mut self.extra {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => resume_unwind(Box::new("a check that panics")),
            }
        }
        self.until.holds()
    }

    fn on_complete(self, outcome: Outcome) {
        self.record.end(outcome);
        match self.extra {
            Extra::Chain(world, left) if left > 0 => {
                let next = |world: Arc<World>| {
                    park_chain(&world, left - 1);
                    world.plain.check_and_complete(&CHAIN); // after this callback
                };
                without_fuse(|| world.upgrade().into_iter().for_each(next));
            }
            Extra::CallbackPanics => resume_unwind(Box::new("a callback that panics")),
            _ => {}
        }
    }
}

/// Parks what completes at the next event of its key, and then goes on, so many times.
pub(crate) fn park_chain(world: &Arc<World>, left: u32) {
    let Opened { record, .. } = world.account.open(Kind::Chain, None);
    let operation = Operation {
        record: record.clone(),
        until: Until::Looked(false),
        extra: Extra::Chain(Arc::downgrade(world), left),
    };
    let operation = BoxedOperation::new(operation);
    if world.plain.try_complete_else_watch(operation, &[CHAIN], Timeout::Never).is_err() {
        record.end(Ending::Refused);
    }
}
