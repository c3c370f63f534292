//! The operations that are parked without a future, and what they do besides ending.

use std::{
    panic::resume_unwind,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use purgatory::{
    BoxedOperation, DelayedOperation, OperationId, Outcome, ParkResult, Timeout, Watches,
};

use crate::{
    books::{Ending, Kind, Record},
    key::{Key, without_fuse},
    world::{CHAIN, World},
};

/// What an operation waits for.
pub(crate) enum Until {
    Flag(Arc<AtomicBool>),
    /// Its turn at the hot key.
    Turn(u64),
    /// All of these levels: keys and values.
    Levels(Vec<(u64, u64)>),
    /// The second look.
    Looked(bool),
}

/// What else it does.
pub(crate) enum Extra {
    Nothing,
    /// Its check panics, the next time but so many.
    CheckPanics(u32),
    CallbackPanics,
    /// Its callback parks another, which does the same, so many times, and raises its event.
    Chain(u32),
}

pub(crate) struct Operation {
    record: Arc<Record>,
    world: Weak<World>,
    until: Until,
    extra: Extra,
}

impl DelayedOperation for Operation {
    fn try_complete(&mut self) -> bool {
        if let Extra::CheckPanics(left) = &mut self.extra {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => resume_unwind(Box::new("a check that panics")),
            }
        }
        match &mut self.until {
            Until::Flag(flag) => flag.load(SeqCst),
            Until::Looked(looked) => std::mem::replace(looked, true),
            Until::Turn(turn) => {
                self.world.upgrade().is_some_and(|world| world.hot.come.load(SeqCst) > *turn)
            }
            Until::Levels(levels) => self.world.upgrade().is_some_and(|world| {
                levels.iter().all(|&(key, value)| world.levels[key as usize].load(SeqCst) >= value)
            }),
        }
    }

    fn on_complete(self, outcome: Outcome) {
        self.record.end(outcome);
        match self.extra {
            Extra::Chain(left) if left > 0 => {
                let next = |world: Arc<World>| {
                    park_chain(&world, left - 1);
                    world.plain.check_and_complete(&CHAIN); // after this callback
                };
                without_fuse(|| self.world.upgrade().into_iter().for_each(next));
            }
            Extra::CallbackPanics => resume_unwind(Box::new("a callback that panics")),
            _ => {}
        }
    }
}

/// Parks an operation; gives its name unless it was over at once, and an error when it was refused.
pub(crate) fn park_operation(
    world: &Arc<World>,
    record: &Arc<Record>,
    (until, extra): (Until, Extra),
    watches: Watches<'_, Key>,
    timeout: Timeout,
) -> Result<Option<OperationId>, ()> {
    let (record, world_of) = (record.clone(), Arc::downgrade(world));
    let operation = BoxedOperation::new(Operation { record, world: world_of, until, extra });
    world.plain.try_complete_else_watch(operation, watches, timeout).map(name).map_err(drop)
}

/// Its name, unless it was over at once.
pub(crate) fn name(parked: ParkResult) -> Option<OperationId> {
    if let ParkResult::Parked(id) = parked { Some(id) } else { None }
}

/// Parks what completes at the next event of its key, and then goes on, so many times.
pub(crate) fn park_chain(world: &Arc<World>, left: u32) {
    let record = world.account.open(Kind::Chain, None).record;
    let what = (Until::Looked(false), Extra::Chain(left));
    if park_operation(world, &record, what, Watches::keys(&[CHAIN]), Timeout::Never).is_err() {
        record.end(Ending::Refused);
    }
}
