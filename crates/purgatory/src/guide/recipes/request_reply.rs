//! Requests over one connection, and the replies that come back over it.

use std::{
    error::Error,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use purgatory::Replies;

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Connection {
    pub replies: Replies<u64, String>,
    pub numbers: AtomicU64,
}

impl Connection {
    /// Sends a request under a new number, and waits for its reply.
    pub async fn ask(
        &self,
        send: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<String, Box<dyn Error + Send + Sync>> {
        let number = self.numbers.fetch_add(1, Relaxed);
        let reply = self.replies.expect(number, TIMEOUT)?; // first expected ...
        send(number)?; // ... then sent
        Ok(reply.await?)
    }

    /// A reply has come. A late, repeated or unasked one is handed back.
    pub fn replied(&self, number: u64, reply: String) -> Result<(), String> {
        self.replies.deliver(&number, reply)
    }

    /// The connection has gone: requests that wait for their reply fail, and so do later ones. Make
    /// a new `Connection` for the next. (On a shared timer that costs no thread.)
    pub fn closed(&self) -> usize {
        let failed = self.replies.fail_all("connection closed");
        self.replies.purgatory().shutdown(Duration::ZERO);
        failed
    }
}
