//! One connection, two threads: one reads the requests and starts each as soon as it is read, one
//! writes the responses in the order of the requests ([`Pipeline`]). So a parked request holds up
//! neither the next one nor the notice that the client is gone, which cancels what it has parked at
//! once (with the pipeline full: when a place comes free). What goes wrong here ends this
//! connection and nothing else.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use anyhow::{Context, anyhow};
use parking_lot::{Condvar, Mutex};

use crate::api::{self, Client};
use crate::pipeline::{self, Answer, Pipeline};
use crate::{fetch, frame::read_frame, replica_manager::ReplicaManager};

/// From one whole request to the first byte of the next (Kafka's `connections.max.idle.ms`).
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(600);
/// From the first byte of a request to its last.
pub(crate) const FRAME_MAX: Duration = Duration::from_secs(30);
/// A client that does not read its responses is let go.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// Requests are decoded and responses encoded on a connection's threads: no recursion, no big
/// values.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// Serves a connection until it ends, and logs why if that was the client's fault.
pub(crate) fn serve(connection: &Registered, manager: &ReplicaManager) {
    let Ok(peer) = connection.stream.peer_addr() else { return };
    tracing::debug!("{peer}: connected");
    match requests(connection, manager) {
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

fn requests(connection: &Registered, manager: &ReplicaManager) -> anyhow::Result<()> {
    let stream = &*connection.stream;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_MAX))?;
    let pipeline = Pipeline::new(connection.id, manager.args.max_pipeline);
    let client = Client { address: stream.local_addr()?, pipeline: Arc::clone(&pipeline) };
    thread::scope(|scope| {
        let writer = thread::Builder::new().name("responses".to_owned()).stack_size(STACK_BYTES);
        writer.spawn_scoped(scope, || {
            if let Err(reason) = write_responses(stream, manager, &pipeline) {
                tracing::debug!("connection {}: not written: {reason:#}", connection.id);
            }
            pipeline.break_off();
            let _: io::Result<()> = stream.shutdown(Shutdown::Both); // ends the reading, too
        })?;
        let (mut reader, silent) = (BufReader::new(stream), Arc::clone(&connection.stream));
        // What has begun must go on: a byte now and then does not.
        let cut = Box::new(move || silent.shutdown(Shutdown::Both).unwrap_or(()));
        let timer = &manager.timer;
        let cut = timer.schedule(IDLE_MAX, cut).ok().context("shutting down")?;
        let mut read = || {
            while !reader.fill_buf()?.is_empty() {
                timer.reschedule(cut, FRAME_MAX);
                let Some(frame) = read_frame(&mut reader, manager.args.max_frame)? else { break };
                timer.reschedule(cut, IDLE_MAX);
                contained(|| api::handle(manager, &client, frame))?;
            }
            Ok(())
        };
        let ended = read();
        timer.cancel(cut);
        manager.cancel_for_connection(connection.id, "client disconnected");
        pipeline.finish();
        ended
    })
}

/// Ends after the last answer, and where one is missing.
fn write_responses(
    mut stream: &TcpStream,
    manager: &ReplicaManager,
    pipeline: &Pipeline,
) -> anyhow::Result<()> {
    while let Some(answer) = pipeline.next() {
        let frame = match answer {
            Answer::Response(frame) => frame,
            Answer::Fetch { request, version, correlation_id } => contained(|| {
                let body = fetch::read(&manager.topics, request, version);
                pipeline::response(&body, version, correlation_id)
            })?,
            Answer::Nothing => continue,
            Answer::Lost => break,
        };
        stream.write_all(&frame)?;
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

/// The open connections: at most so many, and a shutdown ends them all in a bounded time.
pub(crate) struct Connections {
    open: Mutex<Open>,
    /// One of them ended.
    ended: Condvar,
}

struct Open {
    streams: HashMap<u64, Arc<TcpStream>>,
    next_id: u64,
    /// None any more once the broker shuts down.
    connections_max: usize,
}

/// A place among the open connections, given back on drop.
pub(crate) struct Registered {
    pub(crate) stream: Arc<TcpStream>,
    /// Never used again.
    pub(crate) id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    pub(crate) fn new(connections_max: usize) -> Connections {
        let open = Open { streams: HashMap::new(), next_id: 0, connections_max };
        Connections { open: Mutex::new(open), ended: Condvar::new() }
    }

    /// `None`: no more may be open, and the stream is closed.
    pub(crate) fn register(self: &Arc<Self>, stream: TcpStream) -> Option<Registered> {
        let stream = Arc::new(stream);
        let mut open = self.open.lock();
        if open.streams.len() >= open.connections_max {
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
        open.connections_max = 0;
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
