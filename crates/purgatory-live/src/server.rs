//! A small server for programs without one (feature `axum`).

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use axum::Router;
use tokio::{
    net,
    runtime::{self, Runtime},
    sync::oneshot,
};

/// A server for a program without an async runtime. It serves routes over HTTP on a thread of its
/// own until it is dropped. It has no authentication: give it a loopback address.
///
/// # Cancellation
/// Dropping it closes the port and every connection at once, streams of events included, and joins
/// the thread. A handler that blocks that thread delays the drop. If a handler drops the server,
/// the server closes when the handler returns to the thread.
///
/// ```
/// use std::{io::{Read, Write}, net::TcpStream};
/// use axum::{Router, routing::get};
/// use purgatory_live::{Live, Server};
///
/// let routes = Live::new().router().route("/health", get(async || "well"));
/// let server = Server::start("127.0.0.1:0".parse()?, routes)?; // port 0 takes a free one
///
/// let mut client = TcpStream::connect(server.address())?;
/// client.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("well"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    address: SocketAddr,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `routes` at `address`. Clients can connect once this returns.
    ///
    /// # Errors
    /// When the address cannot be bound, or no thread can be spawned.
    pub fn start(address: SocketAddr, routes: Router) -> io::Result<Server> {
        // Bind here, so that an error is returned and clients can connect at once.
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;

        // Spawn the thread first: if there is none, no runtime is dropped here, which panics in a
        // task.
        let (hand_over, handed) = mpsc::channel::<(Runtime, net::TcpListener)>();
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let Ok((runtime, listener)) = handed.recv() else {
                return; // there is no runtime
            };
            // Serve until the sender is dropped, without waiting for an event that is being made.
            runtime.block_on(async {
                tokio::select! {
                    _ = axum::serve(listener, routes) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("live".to_owned());
        let thread = thread.spawn(serve)?;

        // The runtime takes the listener over.
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let listener = net::TcpListener::from_std(listener)?;
        drop(entered);
        _ = hand_over.send((runtime, listener)); // the thread waits for it
        Ok(Server {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A handler that drops the server runs on its thread.
        let here = thread::current().id();
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != here) {
            // The runtime contains a handler's panic.
            _ = thread.join();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
