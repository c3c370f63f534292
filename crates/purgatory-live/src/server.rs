//! A small server for programs that have none (feature `axum`).

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
    thread::{self, JoinHandle},
};

use axum::Router;
use tokio::{net, runtime, sync::oneshot};

/// Serves routes over HTTP on one thread of its own, until it is dropped: for a program without an
/// async runtime. There is no authentication: give it a loopback address.
///
/// # Cancellation
/// Dropping it closes the port and every connection at once, streams of events too, and waits for
/// its thread. A handler that blocks its thread is waited for.
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
    /// Dropped to tell the thread to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `routes` at `address`; clients can connect when this returns.
    ///
    /// # Errors
    /// When the address cannot be had, or no thread.
    pub fn start(address: SocketAddr, routes: Router) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let listener = net::TcpListener::from_std(listener)?;
        drop(entered);
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new()
            .name("live".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = axum::serve(listener, routes) => {}
                        _ = stopped => {}
                    }
                });
                runtime.shutdown_background(); // an event that is being made is not waited for
            })?;
        Ok(Server {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it serves, with the port that was picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a handler's panic is contained by the runtime
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
