// Requests over one connection, and the replies that come back over it.

use std::{error::Error, io, time::Duration};

use purgatory::{Refused, ReplyScope};

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Connection {
    /// Made by `another` of the client's first connection.
    pub requests: ReplyScope<String>,
}

impl Connection {
    /// Sends a request under a new number, and waits for its reply.
    pub async fn ask(
        &self,
        send: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<String, Box<dyn Error + Send + Sync>> {
        let (number, reply) = self.requests.expect(TIMEOUT)?; // first expected ...
        send(number)?; // ... then sent
        Ok(reply.await?)
    }

    /// A reply has come. A reply without a waiter is handed back: a late or repeated one can be
    /// ignored; one that was never asked for shows that the peer is confused.
    pub fn replied(&self, number: u64, reply: String) -> Result<(), Refused<String>> {
        self.requests.deliver(number, reply)
    }

    /// The connection has gone: requests that wait for their reply fail, and so do later ones. Make
    /// a new `Connection` for the next connection.
    pub fn closed(&self) -> usize {
        self.requests.close("connection closed")
    }
}

use purgatory::{WaitError, timer_core::ManualTimer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let timer = ManualTimer::new(); // in a program: a SystemTimer
    let connection = Connection {
        requests: ReplyScope::on(&timer, "client")?,
    };
    let replied = |number, text: &str| connection.replied(number, text.to_owned());
    let why = |replied: Result<(), Refused<String>>| replied.unwrap_err().reason;
    let ask = || connection.ask(|_| Ok(()));

    // Replies come in any order, twice, or without a request.
    let network = async {
        replied(2, "to the second").unwrap();
        replied(1, "to the first").unwrap();
        assert_eq!(why(replied(1, "once more")), WaitError::Late);
        assert_eq!(why(replied(7, "never asked")), WaitError::NotExpected);
    };
    let (first, second, ()) = tokio::join!(ask(), ask(), network);
    assert_eq!(
        (first?, second?),
        ("to the first".to_owned(), "to the second".to_owned())
    );

    // One reply comes before the wait, another too late.
    let early = |number| replied(number, "early").map_err(io::Error::other);
    assert_eq!(connection.ask(early).await?, "early");
    let pass = async { timer.advance(Duration::from_secs(30)) };
    let expired = tokio::join!(ask(), pass).0.unwrap_err();
    assert_eq!(expired.to_string(), "the time ran out");
    assert_eq!(why(replied(4, "late")), WaitError::Late);

    // A connection that closes fails its own requests and no others.
    let other = Connection {
        requests: connection.requests.another(), // with numbers of its own
    };
    let closes = async { connection.closed() };
    let goes_on = async { other.replied(1, "other".to_owned()).unwrap() };
    let (lost, kept, _, ()) = tokio::join!(ask(), other.ask(|_| Ok(())), closes, goes_on);
    assert_eq!(
        lost.unwrap_err().to_string(),
        "cancelled: connection closed"
    );
    assert_eq!(kept?, "other");
    Ok(())
}
