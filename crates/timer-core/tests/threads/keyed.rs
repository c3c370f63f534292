//! Keyed tasks between their falling due and their run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use timer_core::{Executor, Job, KeyedTimer, SystemTimer};

const HOUR: Duration = Duration::from_secs(3600);

/// Hands jobs to the test.
#[derive(Debug)]
struct Sends(mpsc::Sender<Job>);

impl Executor for Sends {
    fn execute(&self, job: Job) {
        let _ = self.0.send(job);
    }
}

#[test]
fn a_keyed_task_that_has_fallen_due_is_scheduled_again_and_counts_once() {
    let (send, jobs) = mpsc::channel();
    let timer = SystemTimer::builder().pending_max(1).executor(Sends(send)).build().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let handler = move |_: &str, task: usize| _ = count.fetch_add(task, SeqCst);
    let keyed = KeyedTimer::new(&timer, handler).unwrap();

    keyed.schedule("a", Duration::ZERO, 1).unwrap();
    let due = jobs.recv().unwrap();
    assert_eq!(keyed.schedule("a", HOUR, 2).unwrap(), Some(1));
    assert!(keyed.schedule("b", HOUR, 3).is_err(), "the only place is taken again");
    due.run();
    assert_eq!((ran.load(SeqCst), keyed.cancel("a")), (0, Some(2)));

    keyed.schedule("a", Duration::ZERO, 4).unwrap();
    let due = jobs.recv().unwrap();
    keyed.schedule("b", HOUR, 5).unwrap();
    assert!(keyed.reschedule("a", HOUR), "a present key is accepted at the bound");
    due.run();
    assert!(keyed.schedule("c", HOUR, 6).is_err());
    assert_eq!((keyed.cancel("a"), keyed.cancel("b"), ran.load(SeqCst)), (Some(4), Some(5), 0));
    keyed.schedule("c", Duration::ZERO, 6).unwrap();
    jobs.recv().unwrap().run();
    assert_eq!((ran.load(SeqCst), keyed.is_empty()), (6, true));
}
