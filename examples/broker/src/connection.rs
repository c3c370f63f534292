//! One connection, one thread, one request at a time: the next frame is read when the response to
//! the last is out, as Kafka mutes a connection. What goes wrong here ends this connection and
//! nothing else.

use std::{
    collections::HashMap,
    io::{self, BufReader, Write},
    net::{Shutdown, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use anyhow::anyhow;
use parking_lot::{Condvar, Mutex};

use crate::{api, frame::read_frame, replica_manager::ReplicaManager};

/// Kafka's `connections.max.idle.ms`.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A client that does not read its responses is let go.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// Serves a connection until it ends, and logs why if that was the client's fault.
pub(crate) fn serve(stream: &TcpStream, manager: &ReplicaManager) {
    let Ok(peer) = stream.peer_addr() else { return };
    tracing::debug!("{peer}: connected");
    match requests(stream, manager) {
        Ok(()) => tracing::debug!("{peer}: closed"),
        Err(reason) => match reason.downcast_ref::<io::Error>() {
            Some(error) => tracing::debug!("{peer}: gone: {error}"),
            None => {
                manager.counters.lock().rejected += 1;
                tracing::warn!("{peer}: connection closed: {reason:#}");
            }
        },
    }
}

fn requests(stream: &TcpStream, manager: &ReplicaManager) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE_MAX))?;
    stream.set_write_timeout(Some(WRITE_MAX))?;
    let address = stream.local_addr()?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(frame) = read_frame(&mut reader, manager.args.max_frame)? {
        if let Some(response) = contained(|| api::answer(manager, address, frame))? {
            writer.write_all(&response)?;
        }
    }
    Ok(())
}

/// The decoder is not ours: a panic on what it was fed must be no more than the end of who fed it.
fn contained<T>(request: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(anyhow!("panicked: {}", text.unwrap_or("no message")))
    })
}

/// The open connections, so that a shutdown can end them.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<Open>,
    /// One of them ended.
    ended: Condvar,
}

#[derive(Default)]
struct Open {
    streams: HashMap<u64, Arc<TcpStream>>,
    next_id: u64,
    shut: bool,
}

/// A place among the open connections, given back on drop.
pub(crate) struct Registered {
    pub(crate) stream: Arc<TcpStream>,
    id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// `None` after the shutdown: the stream is closed.
    pub(crate) fn register(self: &Arc<Self>, stream: TcpStream) -> Option<Registered> {
        let stream = Arc::new(stream);
        let mut open = self.open.lock();
        if open.shut {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        open.streams.insert(id, Arc::clone(&stream));
        Some(Registered { stream, id, connections: Arc::clone(self) })
    }

    /// Lets every connection write the response it is at; cuts off what did not end in `bound`.
    pub(crate) fn shut(&self, bound: Duration) {
        let mut open = self.open.lock();
        open.shut = true;
        open.cut(Shutdown::Read);
        self.ended.wait_while_for(&mut open, |open| !open.streams.is_empty(), bound);
        if !open.streams.is_empty() {
            tracing::warn!("{} connections did not end in time", open.streams.len());
            open.cut(Shutdown::Both);
        }
    }
}

impl Open {
    fn cut(&self, how: Shutdown) {
        for stream in self.streams.values() {
            // One that is gone already is what we want.
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
    fn a_panic_becomes_a_reason_to_close() {
        let reason = |result: anyhow::Result<()>| result.unwrap_err().to_string();
        assert_eq!(reason(contained(|| panic!("a {}", 1))), "panicked: a 1");
        assert_eq!(reason(contained(|| panic!("b"))), "panicked: b");
        assert_eq!(reason(contained(|| std::panic::panic_any(3))), "panicked: no message");
        assert_eq!(contained(|| Ok(4)).unwrap(), 4);
    }
}
