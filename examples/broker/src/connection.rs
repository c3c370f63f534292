//! Serves a connection with two threads. One reads a request, handles it and writes its response,
//! then reads the next, as Kafka does. The other only waits until the client closes its end, and
//! then cancels the request that waits. Requests that a client sends ahead stay in the socket; the
//! second thread sees the client's end however many lie before it. An error ends only its own
//! connection.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::Receiver;
use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};

use crate::api::{self, Client};
use crate::{frame::read_frame, replica_manager::ReplicaManager};

/// A client that sends nothing for this long, while none of its requests waits, is disconnected
/// (Kafka's `connections.max.idle.ms`).
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A client that reads nothing of a response for this long is disconnected.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// The flag for a client that has closed its end. Linux sets it whatever lies unread before the
/// end; elsewhere the end is seen only when both directions are closed.
#[cfg(target_os = "linux")]
const CLIENT_END: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLIENT_END: PollFlags = PollFlags::HUP;
/// The stack of a connection's threads, which only decode and encode: no recursion, no big values.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// Serves a connection until it ends, and logs why if that was the client's fault.
pub(crate) fn serve(connection: &Registered, manager: &ReplicaManager) {
    let peer = connection.peer;
    tracing::debug!("{peer}: connected");
    let Err(reason) = requests(connection, manager) else {
        tracing::debug!("{peer}: closed");
        return;
    };
    // A socket error is not the client's fault; any other error is.
    if let Some(error) = reason.downcast_ref::<io::Error>() {
        tracing::debug!("{peer}: gone: {error}");
    } else {
        manager.counters.lock().rejected += 1;
        tracing::warn!("{peer}: connection closed: {reason:#}");
    }
}

/// Serves the requests of a connection, with a second thread that waits for the client's end.
fn requests(connection: &Registered, manager: &ReplicaManager) -> Result<()> {
    let stream = &*connection.stream;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_write_timeout(Some(WRITE_MAX))?;
    let client = Client {
        address: stream.local_addr()?,
        connection: connection.id,
    };

    let gone = AtomicBool::new(false);
    let cancel = || manager.end_connection(connection.id, "client disconnected");
    thread::scope(|scope| {
        let watcher = thread::Builder::new()
            .name("client-end".to_owned())
            .stack_size(STACK_BYTES);
        watcher.spawn_scoped(scope, || {
            wait_for_end(stream);
            // Set the flag before the cancel: a request parked after the cancel sees the flag.
            gone.store(true, SeqCst);
            cancel();
        })?;

        let ended = answer(stream, manager.args.max_frame, |frame| {
            let answered = api::handle(manager, &client, frame);
            if gone.load(SeqCst) {
                cancel();
            }
            answered
        });
        // The shutdown also ends the watcher.
        let _: io::Result<()> = stream.shutdown(Shutdown::Both);
        ended
    })
}

/// Waits until the client has closed its end, or the broker has closed its own. Reads nothing.
fn wait_for_end(stream: &TcpStream) {
    let mut watched = [PollFd::new(stream, CLIENT_END)];
    // Wait again if a signal interrupts. After any other error the client cannot be watched, and
    // counts as gone.
    while let Err(rustix::io::Errno::INTR) = poll(&mut watched, None) {}
}

/// Handles each request and writes its response before it reads the next.
fn answer(
    stream: &TcpStream,
    frame_max: u32,
    handle: impl Fn(Bytes) -> Result<Receiver<api::Answer>>,
) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(frame) = read_frame(&mut reader, frame_max)? {
        let answered = contained(|| handle(frame))?;
        // The thread waits here for the answer, for as long as the request is parked.
        let answer = answered.recv().context("an answer is lost")?;
        if let Some(response) = answer {
            writer.write_all(&contained(response)?)?;
        }
    }
    Ok(())
}

/// Turns a panic into an error. The decoder is a dependency: if it panics on a client's bytes,
/// which the panic hook reports, only that client's connection must end.
fn contained<T>(request: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| Err(anyhow!("panicked")))
}

/// The id of the next connection, whether a client's or a follower's.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// The open connections of an endpoint. Their number is bounded, and a shutdown ends them all in a
/// bounded time.
pub(crate) struct Connections {
    open: Mutex<Open>,
    /// Notified when a connection ends.
    ended: Condvar,
}

struct Open {
    streams: HashMap<u64, Arc<TcpStream>>,
    /// 0 once the broker shuts down.
    connections_max: usize,
}

/// A place among the open connections, returned on drop.
pub(crate) struct Registered {
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    /// The connection's id, never reused.
    id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Makes an empty set with places for `connections_max` connections.
    pub(crate) fn new(connections_max: usize) -> Arc<Connections> {
        let open = Open {
            streams: HashMap::new(),
            connections_max,
        };
        Arc::new(Connections {
            open: Mutex::new(open),
            ended: Condvar::new(),
        })
    }

    /// Takes a place for a connection; if no more may be open, closes the stream and returns
    /// `None`.
    pub(crate) fn register(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<Registered> {
        let stream = Arc::new(stream);
        let mut open = self.open.lock();
        if open.streams.len() >= open.connections_max {
            return None;
        }
        let id = NEXT_ID.fetch_add(1, Relaxed);
        open.streams.insert(id, Arc::clone(&stream));
        Some(Registered {
            stream,
            peer,
            id,
            connections: Arc::clone(self),
        })
    }

    /// Ends every connection at once.
    #[cfg(test)]
    pub(crate) fn cut(&self) {
        self.open.lock().cut(Shutdown::Both);
    }

    /// Waits for every connection to write its current response, then cuts off those that did not
    /// end within `bound`.
    pub(crate) fn shut(&self, bound: Duration) {
        // Refuse new connections and further requests: a connection ends with its current response.
        let mut open = self.open.lock();
        open.connections_max = 0;
        open.cut(Shutdown::Read);
        self.ended
            .wait_while_for(&mut open, |open| !open.streams.is_empty(), bound);
        if !open.streams.is_empty() {
            tracing::warn!("{} connections did not end in time", open.streams.len());
            open.cut(Shutdown::Both);
        }
    }
}

impl Open {
    fn cut(&self, how: Shutdown) {
        for stream in self.streams.values() {
            // An error means that the connection is already gone.
            let _: io::Result<()> = stream.shutdown(how);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.open.lock().streams.remove(&self.id);
        self.connections.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_a_reason_to_close() {
        let panicked: Result<()> = contained(|| panic!("as it should"));
        assert_eq!(panicked.unwrap_err().to_string(), "panicked");
        assert_eq!(contained(|| Ok(4)).unwrap(), 4);
    }
}
