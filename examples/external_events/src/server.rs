//! The connections: so many at a time, and each has a time within which its client must have sent
//! the head of its next request. One that sends half a head, or nothing, gives its place back.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::{server::graceful::GracefulShutdown, service::TowerToHyperService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};

/// After a failed accept (no file descriptors, say) the next try waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the routes until `stop`; returns when the requests that were under way then are answered.
/// So many `connections` at a time, further ones wait until the system accepts them; `head` is the
/// time from the start of one, or from the answer before, until the head of a request is there.
///
/// # Cancellation
/// Dropped, it accepts no more; the connections go on by themselves.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    connections: usize,
    head: Duration,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(connections));
    let (open, mut stop) = (GracefulShutdown::new(), pin!(stop));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let served = open.watch(connection(stream, routes.clone(), head));
                tokio::spawn(async move {
                    let _ = served.await; // an error is the client's: it broke off, or was too slow
                    drop(place);
                });
            }
            Err(error) => {
                eprintln!("cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    open.shutdown().await;
}

/// Serves the routes on one connection, until it ends or a head does not come in time.
pub fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    routes: Router,
    head: Duration,
) -> http1::Connection<TokioIo<S>, TowerToHyperService<Router>> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head);
    http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
}
