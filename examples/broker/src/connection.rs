//! One connection, two threads: one reads the requests and starts each as soon as it is read, one
//! writes the responses in the order of the requests ([`Pipeline`]). So a parked request holds up
//! neither the next one nor the notice that the client is gone, which cancels what it has parked at
//! once (with the pipeline full: when a place comes free). What goes wrong here ends this
//! connection and nothing else.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use anyhow::{Context, anyhow};
use parking_lot::{Condvar, Mutex};

use crate::api::{self, Client};
use crate::pipeline::{Answer, Pipeline};
use crate::{args::Args, frame::read_frame, replica_manager::ReplicaManager};

/// From one whole request to the first byte of the next (Kafka's `connections.max.idle.ms`).
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(600);
/// From the first byte of a request to its last.
pub(crate) const FRAME_MAX: Duration = Duration::from_secs(30);
/// From a response's first byte to its last: a client that does not read is let go.
pub(crate) const WRITE_MAX: Duration = Duration::from_secs(30);
/// Requests are decoded and responses encoded on a connection's threads: no recursion, no big
/// values.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// Serves a connection until it ends, and logs why if that was the client's fault.
pub(crate) fn serve(connection: &Registered, manager: &ReplicaManager) {
    let peer = connection.peer;
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
    let pipeline = Pipeline::new(connection.id, &manager.memory);
    let client = Client { address: stream.local_addr()?, pipeline: Arc::clone(&pipeline) };
    let timer = &manager.timer;
    let cut_after = |time| {
        let (stream, pipeline) = (Arc::clone(&connection.stream), Arc::clone(&pipeline));
        let cut = move || {
            pipeline.break_off();
            stream.shutdown(Shutdown::Both).unwrap_or(());
        };
        timer.schedule(time, Box::new(cut)).ok().context("shutting down")
    };
    // What has begun must go on: a byte now and then does not.
    let (silent, unread) = (cut_after(IDLE_MAX)?, cut_after(Duration::MAX)?);
    let ended = thread::scope(|scope| {
        let writer = thread::Builder::new().name("responses".to_owned()).stack_size(STACK_BYTES);
        writer.spawn_scoped(scope, || {
            // Ends after the last answer, and where one is missing.
            let write = || {
                while let Some((answer, _request)) = pipeline.next() {
                    let mut share = pipeline.responses.share();
                    let frame = match answer {
                        Answer::Response(response) => contained(|| response(&mut share))?,
                        Answer::Nothing => continue,
                        Answer::Lost => break,
                    };
                    timer.reschedule(unread, WRITE_MAX);
                    (&*stream).write_all(&frame)?;
                    timer.reschedule(unread, Duration::MAX);
                }
                anyhow::Ok(())
            };
            match write() {
                Err(error) if error.is::<io::Error>() => tracing::debug!("not written: {error:#}"),
                Err(reason) => tracing::error!("not written: {reason:#}"),
                Ok(()) => {}
            }
            pipeline.break_off();
            let _: io::Result<()> = stream.shutdown(Shutdown::Both); // ends the reading, too
        })?;
        let mut reader = BufReader::new(stream);
        let mut read = || {
            while !reader.fill_buf()?.is_empty() {
                timer.reschedule(silent, FRAME_MAX);
                let mut share = pipeline.requests.share();
                let take = |bytes| share.take(bytes);
                let frame = read_frame(&mut reader, manager.args.max_frame, take)?;
                let Some(frame) = frame else { break };
                timer.reschedule(silent, IDLE_MAX);
                contained(|| api::handle(manager, &client, frame, share))?;
            }
            Ok(())
        };
        let ended = read();
        manager.cancel_for_connection(connection.id, "client disconnected");
        pipeline.finish();
        ended
    });
    [silent, unread].into_iter().for_each(|cut| drop(timer.cancel(cut)));
    ended
}

/// The decoder is not ours: a panic on what it was fed (the hook tells what and where) must be no
/// more than the end of who fed it.
fn contained<T>(request: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| Err(anyhow!("panicked")))
}

/// The open connections: at most so many, of one address, too, and a shutdown ends them all in a
/// bounded time.
pub(crate) struct Connections {
    open: Mutex<Open>,
    /// One of them ended.
    ended: Condvar,
}

struct Open {
    streams: HashMap<u64, (SocketAddr, Arc<TcpStream>)>,
    next_id: u64,
    /// None any more once the broker shuts down.
    connections_max: usize,
    per_ip_max: usize,
}

/// A place among the open connections, given back on drop.
pub(crate) struct Registered {
    pub(crate) stream: Arc<TcpStream>,
    peer: SocketAddr,
    /// Never used again.
    pub(crate) id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Beside those of the followers in this process.
    pub(crate) fn new(args: &Args) -> Arc<Connections> {
        let [connections_max, per_ip_max] =
            [args.max_connections, args.max_connections_per_ip as usize]
                .map(|max| max.saturating_add(args.followers_here().len()));
        let open = Open { streams: HashMap::new(), next_id: 0, connections_max, per_ip_max };
        Arc::new(Connections { open: Mutex::new(open), ended: Condvar::new() })
    }

    /// `None`: no more may be open, and the stream is closed.
    pub(crate) fn register(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<Registered> {
        let stream = Arc::new(stream);
        let mut open = self.open.lock();
        let of_ip = open.streams.values().filter(|(other, _)| other.ip() == peer.ip()).count();
        if open.streams.len() >= open.connections_max || of_ip >= open.per_ip_max {
            return None;
        }
        let id = open.next_id;
        open.next_id += 1;
        open.streams.insert(id, (peer, Arc::clone(&stream)));
        Some(Registered { stream, peer, id, connections: Arc::clone(self) })
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
        for (_, stream) in self.streams.values() {
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
        let panicked: anyhow::Result<()> = contained(|| panic!("as it should"));
        assert_eq!(panicked.unwrap_err().to_string(), "panicked");
        assert_eq!(contained(|| Ok(4)).unwrap(), 4);
    }
}
