//! A log server on one thread, with an event loop of its own: a fetch waits until the log has come
//! to its offset or its time is up. The loop turns the timer, and sleeps until a datagram comes or
//! the timer has work. Nothing of the server is `Send`. At its end the program
//! times what a fetch costs. `cargo run --release --example local`

use std::io::{self, ErrorKind::TimedOut, ErrorKind::WouldBlock, Write};
use std::{cell::Cell, net::SocketAddr, net::UdpSocket, rc::Rc, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use purgatory::{DelayedOperation, Outcome, Purgatory, RefusedReason, Watches};
use send_wrapper::SendWrapper;
use timer_core::{Clock, ManualTimer, SystemClock, TickLength, WheelSize};

const TICK: Duration = Duration::from_millis(10);

/// A fetch: neither it nor its answer is `Send`.
struct Fetch<A> {
    offset: u64,
    log_end: Rc<Cell<u64>>,
    answer: A,
}

/// A fetch that stays on the thread that made it. Used on another one, it panics.
struct Here<A>(SendWrapper<Fetch<A>>);

impl<A: FnOnce(Outcome, u64) + 'static> DelayedOperation for Here<A> {
    fn try_complete(&mut self) -> bool {
        self.0.log_end.get() >= self.0.offset
    }

    fn on_complete(self, outcome: Outcome) {
        let Fetch {
            log_end, answer, ..
        } = self.0.take();
        answer(outcome, log_end.get());
    }
}

/// Brings the timer to the clock's time. Due fetches expire here, and timeouts count from here.
fn turn(timer: &ManualTimer, clock: &SystemClock) {
    let passed_ns = clock.now_ns().saturating_sub(timer.clock().now_ns());
    timer.advance(Duration::from_nanos(passed_ns));
}

/// A datagram and its sender; `None` when the socket's timeout came first.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    match socket.recv_from(datagram) {
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => Ok(None),
        received => received.map(Some),
    }
}

fn serve(socket: &Rc<UdpSocket>) -> Result<()> {
    let (clock, mut datagram) = (SystemClock::new(), [0; 64]);
    let timer = ManualTimer::with(
        TickLength::new(TICK).expect("from 100 µs to a day"),
        WheelSize::default(),
    );
    let fetches = Purgatory::builder("fetch")
        .timer(&timer)
        .shards(1)
        .build()?;
    let log_end: Rc<Cell<u64>> = Rc::default();
    loop {
        let sleep = timer.next_due_in().map(|sleep| sleep.max(TICK)); // zero is refused
        socket.set_read_timeout(sleep)?;
        let received = receive(socket, &mut datagram)?;
        turn(&timer, &clock);
        let Some((length, client)) = received else {
            continue;
        };
        let request = str::from_utf8(&datagram[..length])?;
        writeln!(
            io::stdout(),
            "{request}: {} wait, slept {sleep:.0?} at most",
            fetches.len()
        )?;
        match request.split(' ').collect::<Vec<_>>()[..] {
            ["fetch", offset, ms] => {
                let (offset, timeout) = (offset.parse()?, Duration::from_millis(ms.parse()?));
                let socket = socket.clone();
                let answer = move |outcome, end| {
                    let answer = format!("{offset} {outcome}, log end {end}");
                    drop(socket.send_to(answer.as_bytes(), client)); // it may have gone
                };
                let fetch = Fetch {
                    offset,
                    log_end: log_end.clone(),
                    answer,
                };
                let (fetch, until) = (Here(SendWrapper::new(fetch)), [("log", offset)]);
                let park = fetches.try_complete_else_watch(fetch, Watches::up_to(&until), timeout);
                park.map_err(RefusedReason::from)?;
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
    let fetches = [
        "fetch 2 5000",
        "fetch 9 300",
        "fetch 1 5000",
        "fetch 9 60000",
    ];
    fetches
        .into_iter()
        .chain(["append", "append"])
        .try_for_each(send)?;
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

/// Parks fetches under a thousand keys, some at a time, and completes them; nanoseconds each.
fn park_and_complete_ns() -> Result<f64> {
    const WINDOWS: u64 = 4000;
    const EACH: u64 = 64;
    let (clock, timer) = (SystemClock::new(), ManualTimer::new());
    let fetches = Purgatory::builder("timed")
        .timer(&timer)
        .shards(1)
        .build()?;
    let (log_end, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let began_ns = clock.now_ns();
    for window in 1..=WINDOWS {
        turn(&timer, &clock);
        let keys = (0..EACH).map(|at| (window * EACH + at) * 7 % 1000);
        for key in keys.clone() {
            let answered = answered.clone();
            let answer = move |_, _| answered.set(answered.get() + 1);
            let fetch = Fetch {
                offset: window,
                log_end: log_end.clone(),
                answer,
            };
            let fetch = Here(SendWrapper::new(fetch));
            let park = fetches.try_complete_else_watch(fetch, &[key], Duration::from_secs(30));
            park.map_err(RefusedReason::from)?;
        }
        log_end.set(window);
        keys.for_each(|key| _ = fetches.check_and_complete(&key));
    }
    let took_ns = clock.now_ns() - began_ns;
    ensure!(
        (answered.get(), fetches.len()) == (WINDOWS * EACH, 0),
        "a fetch was not answered"
    );
    Ok(took_ns as f64 / (WINDOWS * EACH) as f64)
}

fn main() -> Result<()> {
    let (socket, client) = (
        UdpSocket::bind("127.0.0.1:0")?,
        UdpSocket::bind("127.0.0.1:0")?,
    );
    let server = socket.local_addr()?;
    let asks = thread::spawn(move || ask(&client, server));
    serve(&Rc::new(socket))?;
    asks.join().ok().context("the client panicked")??;
    let ns = park_and_complete_ns()?;
    writeln!(
        io::stdout(),
        "to park and complete a fetch takes {ns:.0} ns"
    )?;
    Ok(())
}
