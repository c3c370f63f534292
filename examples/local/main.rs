//! A log server on one thread, with an event loop of its own: a fetch waits until the log has
//! reached its offset, or until its timeout fires. The loop advances the timer, and sleeps until a
//! datagram comes or the timer has work. The server's state is not `Send`. At the end the program
//! measures the cost of a fetch. `cargo run --release --example local`

use std::io::{self, ErrorKind::Interrupted, ErrorKind::TimedOut, ErrorKind::WouldBlock, Write};
use std::{cell::Cell, net::SocketAddr, net::UdpSocket, rc::Rc, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use clap::Command;
use purgatory::{DelayedOperation, Outcome, Purgatory, WaitError};
use send_wrapper::SendWrapper;
use timer_core::{Clock, ManualTimer, SystemClock, TickLength, WheelSize};

const TICK: Duration = Duration::from_millis(10);

/// A fetch: neither it nor its answer is `Send`.
struct Fetch<A> {
    offset: u64,
    log_end: Rc<Cell<u64>>,
    answer: A,
}

/// A fetch that stays on the thread that made it. It panics if another thread uses it.
struct LocalFetch<A>(SendWrapper<Fetch<A>>);

impl<A> LocalFetch<A> {
    fn new(offset: u64, log_end: &Rc<Cell<u64>>, answer: A) -> Self {
        let log_end = log_end.clone();
        LocalFetch(SendWrapper::new(Fetch {
            offset,
            log_end,
            answer,
        }))
    }
}

impl<A: FnOnce(Outcome, u64) + 'static> DelayedOperation for LocalFetch<A> {
    fn try_complete(&mut self) -> bool {
        self.0.log_end.get() >= self.0.offset
    }

    fn on_complete(self, outcome: Outcome) {
        let fetch = self.0.take();
        let log_end = fetch.log_end.get();
        (fetch.answer)(outcome, log_end);
    }
}

/// A datagram of a client.
#[derive(Debug, PartialEq)]
enum Request {
    /// `fetch OFFSET TIMEOUT_MS`
    Fetch { offset: u64, timeout: Duration },
    /// `append`
    Append,
    /// `stop`
    Stop,
}

impl Request {
    fn parse(text: &str) -> Result<Request> {
        match text.split(' ').collect::<Vec<_>>()[..] {
            ["fetch", offset, timeout_ms] => {
                let number = |text: &str| {
                    let parsed = text.parse::<u64>();
                    parsed.with_context(|| format!("{text:?}: expected 0 to {}", u64::MAX))
                };
                Ok(Request::Fetch {
                    offset: number(offset)?,
                    timeout: Duration::from_millis(number(timeout_ms)?),
                })
            }
            ["append"] => Ok(Request::Append),
            ["stop"] => Ok(Request::Stop),
            _ => bail!("{text:?}: expected `fetch OFFSET TIMEOUT_MS`, `append` or `stop`"),
        }
    }
}

/// Advances the timer to the clock's time. Due fetches expire here; timeouts count from here.
fn advance_to_now(timer: &ManualTimer, clock: &SystemClock) {
    let passed_ns = clock.now_ns().saturating_sub(timer.clock().now_ns());
    timer.advance(Duration::from_nanos(passed_ns));
}

/// Receives a datagram and its sender. Returns `None` if the socket's timeout fires first, or if
/// the process was stopped and continued (Ctrl-Z, a debugger): that interrupts a receive with a
/// timeout.
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    match socket.recv_from(datagram) {
        Ok(received) => Ok(Some(received)),
        Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends an answer. The client may have gone; the server goes on.
fn answer(socket: &UdpSocket, client: SocketAddr, text: &str) {
    let _ = socket.send_to(text.as_bytes(), client);
}

/// Runs the event loop: serves until a client says `stop`.
fn serve(socket: &Rc<UdpSocket>) -> Result<()> {
    let clock = SystemClock::new();
    let tick = TickLength::new(TICK).context("a tick is from 100 µs to a day")?;
    let timer = ManualTimer::with(tick, WheelSize::default());
    let builder = Purgatory::builder("fetch").timer(&timer).shards(1);
    let fetches = builder.build()?;
    let log_end = Rc::new(Cell::new(0));
    let mut datagram = [0; 64];
    loop {
        // Sleep until the timer has work, or a datagram comes. A socket refuses a timeout of zero.
        let sleep = timer.next_due_in().map(|sleep| sleep.max(TICK));
        socket.set_read_timeout(sleep)?;
        let received = receive(socket, &mut datagram)?;

        // Advance the timer before the request is served, whose timeout counts from now.
        advance_to_now(&timer, &clock);
        let Some((length, client)) = received else {
            continue;
        };

        // A malformed request is answered, and does not end the server.
        let text = String::from_utf8_lossy(&datagram[..length]);
        let waiting = fetches.len();
        writeln!(
            io::stdout(),
            "{text}: {waiting} wait, slept {sleep:.0?} at most"
        )?;
        let request = match Request::parse(&text) {
            Ok(request) => request,
            Err(error) => {
                answer(socket, client, &format!("{error:#}"));
                continue;
            }
        };

        match request {
            Request::Fetch { offset, timeout } => {
                let to = socket.clone();
                let answer = move |outcome, end| {
                    let text = format!("{offset} {outcome}, log end {end}");
                    answer(&to, client, &text);
                };
                let fetch = LocalFetch::new(offset, &log_end, answer);
                let parked = fetches.try_complete_else_watch(fetch, &["log"], timeout);
                parked.map_err(WaitError::from)?;
            }
            Request::Append => {
                log_end.set(log_end.get() + 1); // the condition first ...
                fetches.check_and_complete(&"log"); // ... then its event
            }
            // Returning drops the purgatory, which cancels the fetches that still wait.
            Request::Stop => return Ok(()),
        }
    }
}

/// Acts as the client, on a thread of its own: sends requests, and checks the answers.
fn ask(client: &UdpSocket, server: SocketAddr) -> Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let requests = [
        "fetch 2 5000",
        "fetch 9 300",
        "fetch 1 5000",
        "fetch 9 18446744073709551615",
        "fetch -1 0",
        "append",
        "append",
    ];
    for request in requests {
        client.send_to(request.as_bytes(), server)?;
    }
    let answers = [
        "\"-1\": expected 0 to",
        "1 completed",
        "2 completed",
        "9 expired",
        "9 cancelled",
    ];
    for expected in answers {
        let mut datagram = [0; 128];
        let length = loop {
            match client.recv(&mut datagram) {
                Err(error) if error.kind() == Interrupted => {} // stopped meanwhile, as in `receive`
                received => break received?,
            }
        };
        let answer = str::from_utf8(&datagram[..length])?;
        writeln!(io::stdout(), "    answer: {answer}")?;
        ensure!(answer.starts_with(expected), "expected: {expected}");
        // One fetch still waits: it is cancelled when the server stops.
        if expected == "9 expired" {
            client.send_to(b"stop", server)?;
        }
    }
    Ok(())
}

/// Parks fetches under a thousand keys, some at a time, and completes them. Returns the nanoseconds
/// that one fetch takes.
fn park_and_complete_ns() -> Result<f64> {
    const WINDOWS: u64 = 4000;
    const FETCHES_PER_WINDOW: u64 = 64;

    let clock = SystemClock::new();
    let timer = ManualTimer::new();
    let builder = Purgatory::builder("timed").timer(&timer).shards(1);
    let fetches = builder.build()?;
    // Only this thread uses them: cells are enough, atomics are not needed.
    let log_end = Rc::new(Cell::new(0));
    let answered = Rc::new(Cell::new(0));
    let began_ns = clock.now_ns();
    for window in 1..=WINDOWS {
        advance_to_now(&timer, &clock);
        let first = window * FETCHES_PER_WINDOW;
        let keys = (first..first + FETCHES_PER_WINDOW).map(|number| number * 7 % 1000);

        // Park the fetches of this window: the log is one short of their offset.
        for key in keys.clone() {
            let answered = answered.clone();
            let count = move |_, _| answered.set(answered.get() + 1);
            let fetch = LocalFetch::new(window, &log_end, count);
            let parked = fetches.try_complete_else_watch(fetch, &[key], Duration::from_secs(30));
            parked.map_err(WaitError::from)?;
        }

        // The log grows: the condition first, then an event for each key.
        log_end.set(window);
        for key in keys {
            fetches.check_and_complete(&key);
        }
    }
    let took_ns = clock.now_ns() - began_ns;

    let all = WINDOWS * FETCHES_PER_WINDOW;
    ensure!(answered.get() == all, "a fetch was not answered");
    ensure!(fetches.is_empty(), "a fetch still waits");
    Ok(took_ns as f64 / all as f64)
}

fn main() -> Result<()> {
    Command::new("local")
        .about(
            "A server on one thread; exits with 1 if an answer is wrong, with 2 for any argument",
        )
        .get_matches();
    // Loopback, and ports that the system picks.
    let socket = UdpSocket::bind("127.0.0.1:0").context("no UDP port on 127.0.0.1")?;
    let client = UdpSocket::bind("127.0.0.1:0").context("no UDP port on 127.0.0.1")?;
    let server = socket.local_addr()?;
    let client = thread::spawn(move || ask(&client, server));
    serve(&Rc::new(socket))?;
    client.join().ok().context("the client panicked")??;
    // The server has stopped, so the measurement has the thread to itself.
    let ns = park_and_complete_ns()?;
    writeln!(
        io::stdout(),
        "to park and complete a fetch takes {ns:.0} ns"
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn bad_request_is_named_with_its_bound() {
        for (text, named) in [
            ("fetch -1 0", "\"-1\": expected 0 to"),
            ("fetch 0 1s", "\"1s\": expected 0 to"),
            (
                "fetch 0 18446744073709551616",
                "expected 0 to 18446744073709551615",
            ),
            ("fetch", "expected `fetch OFFSET TIMEOUT_MS`"),
            ("", "\"\": expected"),
        ] {
            let error = format!("{:#}", Request::parse(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn process_that_was_stopped_goes_on() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(300)))
            .unwrap();
        let receiver = thread::spawn(move || receive(&socket, &mut [0; 64]));
        // The signals may come before the thread receives, so send them until it has returned.
        while !receiver.is_finished() {
            let stop_and_go_on = "kill -STOP $PPID; kill -CONT $PPID";
            let mut shell = std::process::Command::new("sh");
            let status = shell.args(["-c", stop_and_go_on]).status().unwrap();
            assert!(status.success());
        }
        assert_eq!(receiver.join().unwrap().unwrap(), None);
    }

    #[test]
    fn longest_timeout_is_parked_without_overflow() {
        let timer = ManualTimer::new();
        timer.advance(Duration::from_secs(1));
        let fetches = Purgatory::builder("fetch").timer(&timer).build().unwrap();
        let longest = format!("fetch 1 {}", u64::MAX);
        let Request::Fetch { offset, timeout } = Request::parse(&longest).unwrap() else {
            panic!("a fetch");
        };
        let fetch = LocalFetch::new(offset, &Rc::default(), |_, _| ());
        let parked = fetches.try_complete_else_watch(fetch, &["log"], timeout);
        assert!(matches!(parked, Ok(Some(_))));
        timer.advance(Duration::from_secs(1 << 30));
        assert_eq!(fetches.len(), 1);
    }
}
