//! A log server on one thread, with an event loop of its own: a fetch waits until the log has come
//! to its offset or its time is up, and the loop sleeps until a datagram comes or the next deadline
//! is due. Nothing of the server is `Send`. `cargo run --release --example local`

use std::io::{self, ErrorKind::TimedOut, ErrorKind::WouldBlock, Write};
use std::{cell::Cell, net::SocketAddr, net::UdpSocket, rc::Rc, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use purgatory::{LocalPurgatory, Watches, when};
use timer_core::{Clock, SystemClock};

/// A datagram, and who sent it; `None` when the socket's timeout came first.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    match socket.recv_from(datagram) {
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => Ok(None),
        received => received.map(Some),
    }
}

fn serve(socket: &Rc<UdpSocket>) -> Result<()> {
    let (clock, fetches, mut datagram) = (SystemClock::new(), LocalPurgatory::new(), [0; 64]);
    let log_end: Rc<Cell<u64>> = Rc::default();
    loop {
        let sleep_ns = |due_ns: u64| due_ns.saturating_sub(clock.now_ns()).max(1000);
        let sleep = fetches.next_deadline().map(|due_ns| Duration::from_nanos(sleep_ns(due_ns)));
        socket.set_read_timeout(sleep)?;
        let received = receive(socket, &mut datagram)?;
        fetches.advance(clock.now_ns()); // what has expired ends; timeouts count from here
        let Some((length, client)) = received else { continue };
        let request = str::from_utf8(&datagram[..length])?;
        writeln!(io::stdout(), "{request}: {} wait, slept {sleep:.0?} at most", fetches.len())?;
        match request.split(' ').collect::<Vec<_>>()[..] {
            ["fetch", offset, ms] => {
                let (offset, timeout) = (offset.parse()?, Duration::from_millis(ms.parse()?));
                let (log_end, seen, socket) = (log_end.clone(), log_end.clone(), socket.clone());
                let fetch = when(
                    move || seen.get() >= offset,
                    move |outcome| {
                        let answer = format!("{offset} {outcome}, log end {}", log_end.get());
                        drop(socket.send_to(answer.as_bytes(), client)); // it may have gone
                    },
                );
                let until = [("log", offset)];
                let park = fetches.try_complete_else_watch(fetch, Watches::up_to(&until), timeout);
                park.map_err(|refused| refused.reason)?;
            }
            ["append"] => {
                log_end.set(log_end.get() + 1); // the condition first ...
                fetches.complete_up_to(&"log", log_end.get()); // ... then its event
            }
            _ => return Ok(()), // the purgatory goes, and what still waits is cancelled
        }
    }
}

fn ask(client: &UdpSocket, server: SocketAddr) -> Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let send = |request: &str| client.send_to(request.as_bytes(), server).map(drop);
    let fetches = ["fetch 2 5000", "fetch 9 300", "fetch 1 5000", "fetch 9 60000"];
    fetches.into_iter().chain(["append", "append"]).try_for_each(send)?;
    for expected in ["1 completed", "2 completed", "9 expired", "9 cancelled"] {
        let mut datagram = [0; 64];
        let length = client.recv(&mut datagram)?;
        let answer = str::from_utf8(&datagram[..length])?;
        writeln!(io::stdout(), "    answer: {answer}")?;
        ensure!(answer.starts_with(expected), "expected: {expected}");
        if expected == "9 expired" {
            send("stop")?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let (socket, client) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let server = socket.local_addr()?;
    let asks = thread::spawn(move || ask(&client, server));
    serve(&Rc::new(socket))?;
    asks.join().ok().context("the client panicked")?
}
