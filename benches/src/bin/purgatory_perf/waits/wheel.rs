//! This project's purgatory, as its docs say.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use purgatory::{DelayedOperation, OperationId, Outcome, ParkResult, Purgatory, Timeout};

use super::wait::{Completion, Key, Waits};
use crate::books::{Ending, Request};

pub(crate) struct Wheel {
    purgatory: Purgatory<Key, Waiting>,
    keys: Vec<Key>,
    completion: Completion,
}

/// A request that waits.
pub(crate) struct Waiting {
    request: Request,
    /// What its events are about; none when it is completed by name.
    ready: Option<Arc<AtomicBool>>,
}

impl DelayedOperation for Waiting {
    fn try_complete(&mut self) -> bool {
        self.ready.as_ref().is_some_and(|ready| ready.load(SeqCst))
    }

    fn on_complete(self, outcome: Outcome) {
        self.request.end(match outcome {
            Outcome::Completed => Ending::Completed,
            _ => Ending::Expired, // by the wheel, or cancelled by the heap
        });
    }
}

/// How a request is completed: by name, or by what is said before its event.
pub(crate) enum Ticket {
    Name(Option<OperationId>),
    Ready(Arc<AtomicBool>),
}

impl Wheel {
    pub(crate) fn new(keys: &[Key], completion: Completion) -> anyhow::Result<Self> {
        let purgatory = Purgatory::new("perf")?;
        Ok(Wheel { purgatory, keys: keys.to_vec(), completion })
    }

    /// Parks under all keys; returns the ticket and the name.
    pub(super) fn park_for(
        &self,
        request: Request,
        timeout: impl Into<Timeout>,
    ) -> (Ticket, Option<OperationId>) {
        let ready: Option<Arc<AtomicBool>> =
            (self.completion == Completion::Event).then(Arc::default);
        let waiting = Waiting { request, ready: ready.clone() };
        let parked = self.purgatory.try_complete_else_watch(waiting, &self.keys, timeout);
        let id = match parked.expect("no bound is set, and it is open") {
            ParkResult::Parked(id) => Some(id),
            _ => None,
        };
        (ready.map_or(Ticket::Name(id), Ticket::Ready), id)
    }

    pub(super) fn purgatory(&self) -> &Purgatory<Key, Waiting> {
        &self.purgatory
    }
}

impl Waits for Wheel {
    type Ticket = Ticket;

    fn park(&self, request: Request) -> Ticket {
        self.park_for(request, request.timeout).0
    }

    fn complete(&self, ticket: Ticket) {
        match ticket {
            Ticket::Name(id) => id.into_iter().for_each(|id| _ = self.purgatory.complete(id)),
            Ticket::Ready(ready) => {
                ready.store(true, SeqCst);
                self.purgatory.check_and_complete_all(&self.keys);
            }
        }
    }
}
