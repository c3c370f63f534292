// The requests of a connection, which end with it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{OperationId, Outcome, Purgatory, WaitError, when};

const TIMEOUT: Duration = Duration::from_secs(30);

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
    ) -> Result<Option<OperationId>, WaitError> {
        let closed = self.closed.clone();
        let request = when(move || closed.load(SeqCst) || is_ready(), answer);
        let keys = [Key::Partition(partition), Key::Connection(self.number)];
        let parked = self
            .requests
            .try_complete_else_watch(request, &keys, TIMEOUT)?;
        Ok(parked)
    }

    /// Ends all requests of the connection; returns how many.
    pub fn close(&self) -> usize {
        self.closed.store(true, SeqCst);
        let key = Key::Connection(self.number);
        let cancelled = self.requests.cancel_for_key(&key, "connection closed");
        // A request that was being parked meanwhile sees `closed`, and completes.
        let completed = self.requests.check_and_complete(&key);
        cancelled + completed
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let requests = Purgatory::new("requests")?;
    let connection = Connection {
        number: 7,
        closed: Arc::default(),
        requests,
    };
    let (client, answers) = std::sync::mpsc::channel();
    connection.request(
        1,
        || false,
        move |outcome| client.send(outcome.to_string()).unwrap(),
    )?;
    assert_eq!(connection.close(), 1);
    assert_eq!(answers.recv()?, "cancelled: connection closed");
    Ok(())
}
