//! Hands an answer to the connection's thread: from an operation's callback, or from that thread
//! itself if the request need not wait.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, Result};
use bytes::{BufMut, BytesMut};
use kafka_protocol::{messages::ResponseHeader, protocol::Encodable, protocol::HeaderVersion};

/// Makes a whole frame, called by the connection's thread; `None` if the client expects no
/// response.
pub(crate) type Answer = Option<Box<dyn FnOnce() -> Result<BytesMut> + Send>>;

/// The place for one request's answer. If it is dropped without one, the connection is closed.
pub(crate) struct Reply {
    /// The number of the connection that gets the answer.
    pub(crate) connection: u64,
    version: i16,
    correlation_id: i32,
    answer: SyncSender<Answer>,
}

impl Reply {
    pub(crate) fn new(
        connection: u64,
        version: i16,
        correlation_id: i32,
    ) -> (Reply, Receiver<Answer>) {
        let (answer, answered) = sync_channel(1);
        let reply = Reply {
            connection,
            version,
            correlation_id,
            answer,
        };
        (reply, answered)
    }

    /// Sends an answer that is ready.
    pub(crate) fn send<T: Encodable + HeaderVersion + Send + 'static>(self, body: T) {
        self.send_made(|| body);
    }

    /// Sends an answer that may be large: the connection's thread makes it, just before it is
    /// written.
    pub(crate) fn send_made<T: Encodable + HeaderVersion>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) {
        let version = self.version;
        let id = self.correlation_id;
        self.fill(Some(Box::new(move || response(&body(), version, id))));
    }

    /// Continues the connection without a response.
    pub(crate) fn send_nothing(self) {
        self.fill(None);
    }

    fn fill(self, answer: Answer) {
        // This fails if the connection is gone, which then needs no answer.
        let _ = self.answer.try_send(answer);
    }
}

/// Encodes a whole frame. A field that the version lacks is left out; encoding fails where the
/// protocol does not allow that.
fn response<T: Encodable + HeaderVersion>(body: &T, version: i16, id: i32) -> Result<BytesMut> {
    // The length goes in front, once it is known.
    let mut frame = BytesMut::from(&[0; 4][..]);
    let header = ResponseHeader::default().with_correlation_id(id);
    header.encode(&mut frame, T::header_version(version))?;
    body.encode(&mut frame, version)?;
    let length = i32::try_from(frame.len() - 4).context("response too large")?;
    (&mut frame[..4]).put_i32(length);
    Ok(frame)
}
