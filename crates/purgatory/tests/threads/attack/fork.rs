//! A program forks, with and without `exec`. The child has none of the timer's threads: in it
//! nothing expires, and nothing runs on the executor. Its own calls work unless a lock was held at
//! the fork, so the parent's threads sleep before a child uses its purgatory.

use std::{
    fs,
    ops::Range,
    os::unix::process::CommandExt,
    process::{Command, exit},
};

use fork::{Fork, WEXITSTATUS, WIFEXITED, fork, waitpid};
use timer_core::{Periodic, SystemTimerBuilder, Workers};

use super::{Books, again, attack, is_again};
use crate::effort::effort;
use crate::support::*;

/// The number of operations parked at the fork.
const PARKED: u32 = 100;

/// Forks; returns when the child has ended successfully.
fn in_child(work: impl FnOnce()) {
    match fork().unwrap() {
        Fork::Child => exit(catch_unwind(AssertUnwindSafe(work)).is_err().into()),
        Fork::Parent(child) => {
            let status = waitpid(child).unwrap();
            assert!(WIFEXITED(status), "{status}");
            assert_eq!(WEXITSTATUS(status), 0);
        }
    }
}

/// Returns the states of the other threads, and how many times each has slept.
fn other_threads() -> Vec<String> {
    let own = fs::read_link("/proc/thread-self").unwrap();
    let threads = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|thread| thread.unwrap());
    let others = threads.filter(|thread| Some(&*thread.file_name()) != own.file_name());
    let told = |line: &&str| line.starts_with("State") || line.contains("ctxt_switches");
    others
        .filter_map(|thread| {
            let status = fs::read_to_string(thread.path().join("status")).ok()?; // else it has ended
            Some(status.lines().filter(told).collect())
        })
        .collect()
}

/// Blocks until no other thread runs or has run between two looks: then no thread holds a lock.
fn wait_until_others_sleep() {
    loop {
        let others = other_threads();
        if others.iter().all(|other| other.contains("(sleeping)")) && others == other_threads() {
            return;
        }
        std::thread::yield_now(); // until the reaper has seen the parked operations
    }
}

/// Parks operations that only an event or a cancel ends.
fn park_all(purgatory: &Purgatory<u32>, books: &Books, keys: Range<u32>) {
    for key in keys {
        let told = books.clone();
        purgatory.park(when(|| false, move |_| told.ended()), &[key], MINUTE * 60);
        books.taken();
    }
}

/// In the child, an inherited timer refuses another purgatory, work that would have to wake its
/// threads, and a blocking wait that no thread would end; a shutdown waits for no thread.
fn use_timer_in_child(timer: &SystemTimer, running: &[Periodic], workers: &Workers) {
    for run in running {
        assert!(!run.cancel_and_wait(), "it is not over, and never is");
    }
    for delay in [MS, MINUTE * 120] {
        let refused = timer.schedule(delay, || unreachable!()).unwrap_err();
        assert_eq!(refused.reason, TimerError::Forked);
    }
    assert!(TimerError::Forked.to_string().contains("forked"));
    // A sleep whose time has come when it is polled is over.
    let mut sleep = timer.sleep(MINUTE * 120);
    assert_eq!(over(&mut sleep), Err(TimerError::Forked));
    let tasks = timer.with_handler(|_: u32| ());
    let refused = tasks.schedule(MS, 7).unwrap_err();
    assert_eq!(refused.reason, TimerError::Forked);
    assert_eq!(refused.into_task(), 7);
    let built = Purgatory::<u32>::builder("child").timer(timer).build();
    assert!(matches!(built, Err(BuildError::Forked)));
    let left = timer.shutdown(Duration::MAX);
    assert_eq!((left.unfired.len(), left.threads), (1, 2));
    assert!(timer.schedule(MS, || ()).is_err());
    workers.close();
    assert_eq!(workers.join(Duration::MAX), 1);
    // A timer that the child builds has its own threads.
    let own = SystemTimer::new().unwrap();
    let (send, fired) = mpsc::channel();
    own.schedule(MS, move || send.send(()).unwrap()).unwrap();
    fired.recv().unwrap();
    assert_eq!(own.shutdown(Duration::MAX).threads, 0);
}

/// In the child, a timer built with the parent's builder has its own threads, and a shutdown waits
/// for them.
fn build_in_child(builder: SystemTimerBuilder) {
    let own = builder.build().unwrap();
    let (send, fired) = mpsc::channel();
    own.schedule(MS, move || send.send(()).unwrap()).unwrap();
    fired.recv().unwrap();
    assert_eq!(own.shutdown(Duration::MAX).threads, 0);
}

/// The child shares another timer. The parent's tasks are not dropped with the parent's timer.
fn share_in_child(dropped: &AtomicBool) {
    let (send, fired) = mpsc::channel();
    let shared = Timer::shared().unwrap();
    shared.schedule(MS, move || send.send(()).unwrap()).unwrap();
    fired.recv().unwrap();
    assert!(!dropped.load(SeqCst));
}

/// In the child, a shutdown does not wait for one that was under way at the fork.
fn shut_down_in_child(timer: &SystemTimer) {
    let left = timer.shutdown(Duration::MAX);
    assert_eq!(left.threads, 1, "that of the shutdown");
}

/// In the child, events and cancels end operations parked before and after the fork; a shutdown
/// does not wait.
fn use_in_child(purgatory: &Purgatory<u32>, books: &Books) {
    assert!(other_threads().is_empty(), "nothing can expire");
    let wait = purgatory.wait(&[0], MINUTE * 60, || false);
    assert_eq!(wait.wait_blocking(), Err(WaitError::MustNotBlock));
    park_all(purgatory, books, PARKED..2 * PARKED);
    for key in 0..2 * PARKED {
        let ended = match key % 2 {
            0 => purgatory.complete_for_key(&key),
            _ => purgatory.cancel_for_key(&key, "in a child"),
        };
        assert_eq!(ended, 1);
    }
    books.close(|| ());
    assert_empty(purgatory);
    park_all(purgatory, books, 0..1);
    let left = purgatory.shutdown(Duration::MAX);
    assert_eq!(left, 1, "no thread runs it");
    assert!(purgatory.is_empty());
    // From here on the child shares a timer of its own.
    let own = Purgatory::<u32>::new("child").unwrap();
    let wait = own.wait(&[0], MS, || false);
    assert_eq!(wait.wait_blocking(), Err(WaitError::Expired));
}

/// The test runs in a process of its own: other threads of a test program would not sleep.
#[test]
fn a_process_forks() {
    if !is_again() {
        return again("attack::fork::a_process_forks", 0);
    }
    let purgatory = Purgatory::new("forks").unwrap();
    let books = Books::default();
    park_all(&purgatory, &books, 0..PARKED);
    let timer = SystemTimer::new().unwrap();
    timer.schedule(MINUTE * 60, || unreachable!()).unwrap();
    let workers = Workers::start("workers", 1).unwrap();
    // Periodic tasks that are running at each fork: on a timer, on a timer that is dropped by then,
    // and on one that a thread advances.
    let gate = Arc::new(Mutex::new(()));
    let (begin, begun) = mpsc::channel();
    let start = |timer: &Timer| {
        let (begin, gate) = (begin.clone(), gate.clone());
        let run = move || {
            begin.send(()).unwrap();
            drop(gate.lock());
        };
        timer.schedule_at_fixed_rate(MS, MINUTE * 60, run).unwrap()
    };
    let held = gate.lock().unwrap();
    let (gone, advanced) = (SystemTimer::new().unwrap(), ManualTimer::new());
    let running = [start(&timer), start(&gone), start(&advanced)];
    let advancing = std::thread::spawn(move || advanced.advance(MS));
    for _ in &running {
        begun.recv().unwrap();
    }
    drop(gone);
    // A shutdown that runs a callback in place is under way at each fork.
    let closing = SystemTimer::builder().inline().build().unwrap();
    let closed = Purgatory::<u32>::builder("closed")
        .timer(&closing)
        .build()
        .unwrap();
    let (begin, gate) = (begin.clone(), gate.clone());
    let ended = move |_| {
        begin.send(()).unwrap();
        drop(gate.lock());
    };
    closed.park(when(|| false, ended), &[0], MINUTE);
    let shut_down = closing.clone();
    let shutting_down = std::thread::spawn(move || shut_down.shutdown(Duration::MAX));
    begun.recv().unwrap();
    // The flag of a dropped task is set only in the process that drops it.
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = dropped.clone();
    let captured = OnDrop::new(move || seen.store(true, SeqCst));
    let task = move || drop(captured);
    let shared = || Timer::shared().unwrap();
    shared().schedule(MINUTE * 60, task).unwrap();
    for _ in 0..effort(5) {
        wait_until_others_sleep();
        in_child(|| use_in_child(&purgatory, &books));
        in_child(|| use_timer_in_child(&timer, &running, &workers));
        in_child(|| shut_down_in_child(&closing));
        let builder = SystemTimer::builder();
        in_child(|| build_in_child(builder));
        in_child(|| share_in_child(&dropped));
    }
    drop(held);
    for run in &running {
        assert!(run.cancel_and_wait());
    }
    advancing.join().unwrap();
    assert_eq!(shutting_down.join().unwrap().threads, 0);
    assert_eq!(timer.shutdown(Duration::MAX).unfired.len(), 1);
    workers.close();
    assert_eq!(workers.join(Duration::MAX), 0);
    // The child of a process at work may have copied a locked shard, and locks of std, which even
    // `exit` takes: it becomes another program at once.
    let others = Purgatory::new("others").unwrap();
    std::thread::scope(|scope| {
        let attacked = scope.spawn(|| attack(&others, |key| key));
        while !attacked.is_finished() {
            in_child(|| panic!("{}", Command::new("true").exec()));
        }
    });
    assert_eq!(
        purgatory.len(),
        PARKED as usize,
        "children have not ended what is ours"
    );
    for key in 0..PARKED {
        _ = purgatory.complete_for_key(&key);
    }
    assert_eq!(purgatory.shutdown(MINUTE), 0);
    assert_empty(&purgatory);
    books.close(|| ());
}
