//! The timer that a process shares. Each test runs in a process of its own: other tests would start
//! threads, and would lose their timer.

use std::fs;

use crate::attack::{again, is_again};
use crate::support::*;

/// Returns the names of this process's threads of shared timers. A task of `timer` has fired by
/// then, so that its threads have their names.
fn shared_threads(timer: &Timer) -> Vec<String> {
    let (send, fired) = mpsc::channel();
    timer.schedule(MS, move || send.send(()).unwrap()).unwrap();
    fired.recv().unwrap();
    let mut names = Vec::new();
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(thread.unwrap().path().join("comm")).unwrap();
        if name.starts_with("shared-") {
            names.push(name.trim_end().to_owned());
        }
    }
    names.sort();
    names
}

fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn forms_share_the_two_threads_of_one_timer() {
    if !is_again() {
        return again("shared::forms_share_the_two_threads_of_one_timer", 0);
    }
    let before = thread_count();
    let purgatory = Purgatory::<u32>::new("purgatory").unwrap();
    let replies = Replies::<u32, u32>::new("replies").unwrap();
    let permits = Permits::new("permits", 1).unwrap();
    let ends = Watermarks::<u32>::new("ends").unwrap();
    let sets = ReplicaSets::<u32, u32>::new("sets").unwrap();
    let monitor = Monitor::<u32, u32>::new("monitor", 0).unwrap();
    assert_eq!(thread_count() - before, 2);
    let timer = Timer::shared().unwrap();
    let names = ["shared-reaper", "shared-worker-0"];
    assert_eq!(shared_threads(&timer), names);

    // A form that is shut down or dropped leaves the timer to the others.
    let left = purgatory.shutdown(Duration::MAX);
    assert_eq!(left, 0);
    drop((purgatory, permits, sets, monitor));
    let reply = replies.expect(7, MS).unwrap();
    assert_eq!(reply.wait_blocking(), Err(WaitError::Expired));
    let end = ends.wait_for(&7, 1, MS);
    assert_eq!(end.wait_blocking(), Err(WaitError::Expired));
    assert_eq!(replies.waits().shutdown(MINUTE), 0);
    drop((replies, ends));
    assert_eq!(shared_threads(&timer), names);
}

#[test]
fn form_after_a_shared_timers_shutdown_starts_another() {
    if !is_again() {
        let name = "shared::form_after_a_shared_timers_shutdown_starts_another";
        return again(name, 0);
    }
    let purgatory = Purgatory::<u32>::new("before").unwrap();
    let wait = purgatory.wait(&[1], MINUTE, || false);
    let timer = Timer::shared().unwrap();
    let left = timer.shutdown(Duration::MAX);
    assert_eq!(left.threads, 0);
    assert!(wait.wait_blocking().unwrap_err().is_shutdown());
    let closed = Purgatory::<u32>::builder("closed").timer(&timer).build();
    assert!(matches!(closed, Err(BuildError::Closed)));

    let purgatory = Purgatory::<u32>::new("after").unwrap();
    let wait = purgatory.wait(&[1], MS, || false);
    assert_eq!(wait.wait_blocking(), Err(WaitError::Expired));
    assert_eq!(shared_threads(&Timer::shared().unwrap()).len(), 2);
}
