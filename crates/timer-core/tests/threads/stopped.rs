//! A process that is really stopped (SIGSTOP) and continued (SIGCONT) while heartbeats of its
//! sessions queue up in a socket. With a grace, no session that was kept alive may end.
//!
//! The test starts its own program again as the process to stop. That process keeps each session
//! twice: as a task of a timer, whose reaper races the thread that reads, and in a `DelayQueue`
//! that this thread polls before it looks at the heartbeats. Each heartbeat carries the time at
//! which it was written, by a clock that both processes read. So the test counts, however busy the
//! machine is, the sessions that ended although their heartbeats were written in time.

use std::{
    env,
    io::{
        ErrorKind::{Interrupted, WouldBlock},
        Read, Write,
    },
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
};

use rustix::time::{ClockId, clock_gettime};

use crate::support::*;

/// The bound of the grace. A pause of more than twice the bound is noticed. The bound is so long
/// that a busy machine causes no such pause, which would begin a grace period in which a stop is
/// not noticed.
const BOUND: Duration = Duration::from_millis(400);
/// A session without a heartbeat ends after this time.
const TIMEOUT: Duration = Duration::from_millis(1200);
const BEAT: Duration = Duration::from_millis(20);
const SESSIONS: u8 = 20;
/// The number of processes that are stopped at the same time, and of stops of each.
const PROCESSES: u64 = 4;
const STOPS: u32 = 2;

/// Tells the program that it is the process to stop, and its sessions' grace: `grace` or `none`.
const ROLE: &str = "STOPPED_PROCESS";

/// The clock of both processes.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The size of a heartbeat as sent: its session, and the nanosecond at which it was written.
const BEAT_BYTES: usize = 9;

/// The sessions of the process that is stopped, and the number of those that ended though kept
/// alive.
struct Sessions {
    tasks: TaskTimer<u8>,
    queue: DelayQueue<u8>,
    kept: Vec<Kept>,
    lost_tasks: u64,
    lost_values: u64,
}

/// One session, kept twice.
struct Kept {
    task: TimerHandle,
    value: TaskId,
    /// The session ends no earlier, in either place.
    until: Duration,
}

impl Sessions {
    fn new(timer: &SystemTimer, grace: Duration) -> Self {
        let mut sessions = Sessions {
            tasks: timer.with_handler(drop),
            queue: DelayQueue::new(timer).grace(grace),
            kept: Vec::new(),
            lost_tasks: 0,
            lost_values: 0,
        };
        for number in 0..SESSIONS {
            let until = monotonic() + TIMEOUT;
            let task = sessions.tasks.schedule(TIMEOUT, number).unwrap();
            let value = sessions.queue.insert(number, TIMEOUT).unwrap();
            sessions.kept.push(Kept { task, value, until });
        }
        sessions
    }

    /// Takes the expired values out of the queue.
    fn expire(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            expired.unwrap();
        }
    }

    /// Keeps a session alive. A session that has ended begins anew. It is counted as lost if this
    /// heartbeat should have kept it: if the heartbeat was written longer before the session's end
    /// than a pause may go unnoticed.
    fn keep(&mut self, number: u8, written: Duration) {
        let kept = &mut self.kept[usize::from(number)];
        let in_time = u64::from(written + 2 * BOUND <= kept.until);
        kept.until = monotonic() + TIMEOUT;
        if !self.tasks.reschedule(kept.task, TIMEOUT) {
            self.lost_tasks += in_time;
            kept.task = self.tasks.schedule(TIMEOUT, number).unwrap();
        }
        if !self.queue.reset(&kept.value, TIMEOUT) {
            self.lost_values += in_time;
            kept.value = self.queue.insert(number, TIMEOUT).unwrap();
        }
    }
}

/// Runs as the process that is stopped, until the other end of its socket is closed.
fn be_stopped(grace: Duration) {
    let timer = SystemTimer::builder().grace(grace).build().unwrap();
    let mut sessions = Sessions::new(&timer, grace);
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut socket = UnixStream::from(stdin);
    let mut buffer = [0; 1 << 16];
    let mut filled = 0;
    loop {
        // 1. Wait for heartbeats, or until the queue has to be polled. Stops usually fall here.
        let due_in = sessions.queue.next_due_in().unwrap_or(TIMEOUT);
        socket.set_read_timeout(Some(due_in.max(MS))).unwrap();
        match socket.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            // The wait timed out, or the process was continued after a stop.
            Err(error) => assert!(matches!(error.kind(), WouldBlock | Interrupted), "{error}"),
        }
        // 2. Expire the queue first: after a pause this would be the wrong order without the grace.
        sessions.expire();
        // 3. Read the heartbeats; the last may be incomplete. Tell the parent that they are read.
        let whole = filled - filled % BEAT_BYTES;
        for beat in buffer[..whole].chunks(BEAT_BYTES) {
            let written_ns = u64::from_le_bytes(beat[1..].try_into().unwrap());
            sessions.keep(beat[0], Duration::from_nanos(written_ns));
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        socket.write_all(&[0]).unwrap();
    }
    eprintln!("{} {}", sessions.lost_tasks, sessions.lost_values);
}

/// A process that is stopped and continued, with the socket for its heartbeats.
struct Stopped {
    process: Child,
    socket: UnixStream,
    /// Paces the heartbeats.
    timer: SystemTimer,
}

impl Stopped {
    fn new(role: &str) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again.args([
            "--exact",
            "stopped::a_stopped_process_loses_no_session",
            "--nocapture",
        ]);
        again.stdin(OwnedFd::from(theirs)).stderr(Stdio::piped());
        again.stdout(Stdio::null()).env(ROLE, role);
        Stopped {
            process: again.spawn().unwrap(),
            socket,
            timer: SystemTimer::new().unwrap(),
        }
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args([name, &id]).status();
        assert!(status.unwrap().success(), "kill {name}");
    }

    /// Writes the heartbeats of all sessions again and again, for at least this time.
    fn beat_for(&mut self, time: Duration) {
        let until = monotonic() + time;
        while monotonic() < until {
            let written_ns = monotonic().as_nanos() as u64;
            let mut beats = Vec::new();
            for number in 0..SESSIONS {
                beats.push(number);
                beats.extend(written_ns.to_le_bytes());
            }
            self.socket.write_all(&beats).unwrap();
            self.forget_answers();
            pollster::block_on(self.timer.sleep(BEAT)).unwrap();
        }
    }

    /// Discards the answers of the process until now.
    fn forget_answers(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
        while self.socket.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
        self.socket.set_nonblocking(false).unwrap();
    }

    /// Blocks until the process answers.
    fn wait_for_answer(&mut self) {
        self.socket.set_read_timeout(Some(MINUTE)).unwrap();
        self.socket.read_exact(&mut [0]).unwrap();
    }

    /// Closes the socket; returns how many tasks and values the process has lost.
    fn lost(mut self) -> (u64, u64) {
        self.socket.shutdown(Shutdown::Write).unwrap();
        let mut said = String::new();
        let stderr = self.process.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert!(self.process.wait().unwrap().success(), "{said}");
        let (tasks, values) = said.trim().split_once(' ').unwrap();
        (tasks.parse().unwrap(), values.parse().unwrap())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.process.kill(); // after a failure the process may still be stopped
        let _ = self.process.wait();
    }
}

/// Stops a new process at random points, each time until the timeouts of all sessions have passed;
/// returns how many tasks and values were lost.
fn stop_again_and_again(role: &str, seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stopped = Stopped::new(role);
    stopped.wait_for_answer();
    for _ in 0..STOPS {
        // Longer than a grace period, since a second pause within one is not noticed.
        stopped.beat_for(BOUND + BOUND / 4 + random.u32(0..200) * MS);
        stopped.signal("-STOP");
        stopped.beat_for(TIMEOUT + random.u32(20..300) * MS);
        stopped.forget_answers();
        stopped.signal("-CONT");
        stopped.wait_for_answer();
    }
    stopped.beat_for(BOUND + BOUND / 4);
    stopped.lost()
}

#[test]
fn a_stopped_process_loses_no_session() {
    // Run as the process to stop, the program does only that.
    if let Ok(role) = env::var(ROLE) {
        let grace = if role == "grace" {
            BOUND
        } else {
            Duration::ZERO
        };
        return be_stopped(grace);
    }
    let lost = race(PROCESSES + 1, |number| {
        let role = if number < PROCESSES { "grace" } else { "none" };
        stop_again_and_again(role, number)
    });
    let (without, with) = lost.split_last().unwrap();
    assert_eq!(with, [(0, 0); PROCESSES as usize], "tasks and values lost");
    // Lost sessions are really counted: without a grace, some are lost.
    assert!(without.1 > 0, "{without:?}");
}
