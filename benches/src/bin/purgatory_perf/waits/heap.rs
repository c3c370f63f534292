//! The same purgatory, whose operations never time out by themselves; a delay heap cancels them.
//! What was completed stays in the heap until its time.

use purgatory::{OperationId, Timeout};
use timer_core::SystemClock;

use super::{
    wait::{Key, Waits},
    wheel::Wheel,
};
use crate::{books::Request, delays::Delays};

pub(crate) struct Heap {
    purgatory: Wheel,
    delays: Delays<OperationId>,
}

impl Heap {
    pub(crate) fn new(keys: &[Key], clock: SystemClock) -> anyhow::Result<Self> {
        let purgatory = Wheel::new(keys)?;
        let expires = purgatory.purgatory().clone();
        let delays = Delays::start(clock, move |ids| {
            ids.for_each(|id| _ = expires.cancel(id, "its time ran out"));
        })?;
        Ok(Heap { purgatory, delays })
    }
}

impl Waits for Heap {
    type Ticket = Option<OperationId>;

    fn park(&self, request: Request) -> Option<OperationId> {
        let id = self.purgatory.park_for(request, Timeout::Never)?;
        self.delays.add(request.expires_ns(), id);
        Some(id)
    }

    fn complete(&self, ids: impl Iterator<Item = Option<OperationId>>) {
        self.purgatory.complete(ids);
    }
}
