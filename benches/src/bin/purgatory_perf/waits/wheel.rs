//! This project's purgatory, as its docs say. Requests are completed by name, as in Kafka's test.

use purgatory::{DelayedOperation, OperationId, Outcome, ParkResult, Purgatory, Timeout};

use super::wait::{Key, Waits};
use crate::books::{Ending, Request};

pub(crate) struct Wheel {
    purgatory: Purgatory<Key, Request>,
    keys: Vec<Key>,
}

impl DelayedOperation for Request {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, outcome: Outcome) {
        self.end(match outcome {
            Outcome::Completed => Ending::Completed,
            _ => Ending::Expired, // by the wheel, or cancelled by the heap
        });
    }
}

impl Wheel {
    pub(crate) fn new(keys: &[Key]) -> anyhow::Result<Self> {
        Ok(Wheel { purgatory: Purgatory::new("perf")?, keys: keys.to_vec() })
    }

    /// Parks under all keys; returns the name, unless it ended at once.
    pub(super) fn park_for(
        &self,
        request: Request,
        timeout: impl Into<Timeout>,
    ) -> Option<OperationId> {
        let parked = self.purgatory.try_complete_else_watch(request, &self.keys, timeout);
        match parked.expect("no bound is set, and it is open") {
            ParkResult::Parked(id) => Some(id),
            _ => None,
        }
    }

    pub(super) fn purgatory(&self) -> &Purgatory<Key, Request> {
        &self.purgatory
    }
}

impl Waits for Wheel {
    type Ticket = Option<OperationId>;

    fn park(&self, request: Request) -> Option<OperationId> {
        self.park_for(request, request.timeout)
    }

    fn complete(&self, ids: impl Iterator<Item = Option<OperationId>>) {
        let ids: Vec<OperationId> = ids.flatten().collect();
        self.purgatory.complete_each(&ids);
    }
}
