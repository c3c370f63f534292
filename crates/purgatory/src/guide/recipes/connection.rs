// The requests of a connection, which end with it.

use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
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
    pub closed: AtomicBool,
    pub requests: Purgatory<Key>,
}

impl Connection {
    /// Answers when an append has made the request ready, or as cancelled when the connection has
    /// gone.
    pub fn request(
        &self,
        partition: u32,
        is_ready: impl FnMut() -> bool + Send + 'static,
        answer: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<Option<OperationId>, WaitError> {
        let keys = [Key::Partition(partition), Key::Connection(self.number)];
        let request = when(is_ready, answer);
        let parked = self
            .requests
            .try_complete_else_watch(request, &keys, TIMEOUT)?;
        // A close before the request was parked has not reached it.
        if self.closed.load(SeqCst) {
            self.cancel();
        }
        Ok(parked)
    }

    /// Ends all requests of the connection; returns how many.
    pub fn close(&self) -> usize {
        self.closed.store(true, SeqCst); // first the flag ...
        self.cancel() // ... then what is parked
    }

    fn cancel(&self) -> usize {
        let key = Key::Connection(self.number);
        self.requests.cancel_for_key(&key, "connection closed")
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let requests = Purgatory::new("requests")?;
    let connection = Connection {
        number: 7,
        closed: AtomicBool::default(),
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
