//! The requests of a connection, which end with it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{Outcome, ParkResult, Purgatory, RefusedReason, when};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    Partition(u32),
    Connection(u64),
}

pub struct Connection {
    pub number: u64,
    pub closed: Arc<AtomicBool>,
    pub requests: Purgatory<Key>,
}

impl Connection {
    /// Answers when an append has made the request ready, or the connection has gone.
    pub fn request(
        &self,
        partition: u32,
        is_ready: impl Fn() -> bool + Send + 'static,
        answer: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, RefusedReason> {
        let closed = self.closed.clone();
        let request = when(move || closed.load(SeqCst) || is_ready(), answer);
        let keys = [Key::Partition(partition), Key::Connection(self.number)];
        Ok(self
            .requests
            .try_complete_else_watch(request, &keys, Duration::from_secs(30))?)
    }

    pub fn close(&self) -> usize {
        self.closed.store(true, SeqCst);
        let key = Key::Connection(self.number);
        let cancelled = self.requests.cancel_for_key(&key, "connection closed");
        cancelled + self.requests.check_and_complete(&key) // what was being parked meanwhile
    }
}
