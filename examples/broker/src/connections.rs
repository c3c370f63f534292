//! The open connections: at most so many, and a shutdown ends them all in a bounded time.

use std::{
    collections::HashMap,
    io,
    net::{Shutdown, TcpStream},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

pub(crate) struct Connections {
    connections_max: usize,
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
    /// Never used again.
    pub(crate) id: u64,
    connections: Arc<Connections>,
}

/// Why a connection was not taken; its stream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    Full,
    Shutdown,
}

impl Connections {
    pub(crate) fn new(connections_max: usize) -> Connections {
        Connections { connections_max, open: Mutex::default(), ended: Condvar::new() }
    }

    pub(crate) fn register(self: &Arc<Self>, stream: TcpStream) -> Result<Registered, NotTaken> {
        let stream = Arc::new(stream);
        let mut open = self.open.lock();
        if open.shut {
            return Err(NotTaken::Shutdown);
        }
        if open.streams.len() >= self.connections_max {
            return Err(NotTaken::Full);
        }
        let id = open.next_id;
        open.next_id += 1;
        open.streams.insert(id, Arc::clone(&stream));
        Ok(Registered { stream, id, connections: Arc::clone(self) })
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
