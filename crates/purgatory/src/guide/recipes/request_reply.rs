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

use purgatory::{Purgatory, timer_core::ManualTimer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let timer = ManualTimer::new(); // in a program: a SystemTimer
    let replies = Replies::from(Purgatory::builder("replies").timer(&timer).build()?);
    let connection = Connection {
        replies,
        numbers: AtomicU64::new(0),
    };
    let replied = |number, text: &str| connection.replied(number, text.to_owned());
    let ask = || connection.ask(|_| Ok(()));
    let network = async {
        replied(1, "to the second").unwrap();
        replied(0, "to the first").unwrap();
        assert!(replied(0, "once more").is_err());
    };
    let (first, second, ()) = tokio::join!(ask(), ask(), network);
    assert_eq!(
        (first?, second?),
        ("to the first".to_owned(), "to the second".to_owned())
    );

    let early = |number| replied(number, "early").map_err(io::Error::other);
    assert_eq!(connection.ask(early).await?, "early");
    let pass = async { timer.advance(Duration::from_secs(30)) };
    let expired = tokio::join!(ask(), pass).0.unwrap_err();
    assert_eq!(expired.to_string(), "the time ran out");
    assert!(replied(3, "late").is_err());
    Ok(())
}
