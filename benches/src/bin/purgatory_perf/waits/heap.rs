//! The same purgatory, whose operations never time out by themselves; a delay heap cancels them.
//! What was completed stays in the heap until its time.

use purgatory::{OperationId, Timeout};
use timer_core::SystemClock;

use super::{
    wait::{Completion, Key, Waits},
    wheel::{Ticket, Wheel},
};
use crate::{books::Request, delays::Delays};

pub(crate) struct Heap {
    purgatory: Wheel,
    delays: Delays<OperationId>,
}

impl Heap {
    pub(crate) fn new(
        keys: &[Key],
        completion: Completion,
        clock: SystemClock,
    ) -> anyhow::Result<Self> {
        let purgatory = Wheel::new(keys, completion)?;
        let expires = purgatory.purgatory().clone();
        let delays = Delays::start(clock, move |id| {
            expires.cancel(id, "its time ran out");
        })?;
        Ok(Heap { purgatory, delays })
    }
}

impl Waits for Heap {
    type Ticket = Ticket;

    fn park(&self, request: Request) -> Ticket {
        let (ticket, id) = self.purgatory.park_for(request, Timeout::Never);
        if let Some(id) = id {
            self.delays.add(request.expires_ns(), id);
        }
        ticket
    }

    fn complete(&self, ticket: Ticket) {
        self.purgatory.complete(ticket);
    }
}
