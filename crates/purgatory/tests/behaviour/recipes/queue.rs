//! A queue of jobs: one worker a job, and jobs that come back.

use std::collections::VecDeque;

use purgatory::Monitor;
use timer_core::ManualTimer;

use super::{SECOND, Wait, by_hand, every_order, got, guide::queue::Queue, poll};

fn queue() -> (ManualTimer, Queue) {
    let (timer, waits) = by_hand();
    (timer, Queue { jobs: Monitor::with(waits, VecDeque::new()) })
}

/// Nothing waits, and these jobs are left.
#[track_caller]
fn left(queue: &Queue, jobs: &[&str]) {
    assert_eq!(queue.jobs.read(VecDeque::clone), jobs);
    super::nothing_is_left(queue.jobs.purgatory());
}

#[test]
fn a_worker_waits_for_a_job() {
    every_order(|| {
        let (timer, queue) = queue();
        let waits = queue.jobs.purgatory().clone();
        let (take, push) = (queue.clone(), queue);
        let wait = Wait { timer, waits, limit: SECOND, remembers: true };
        (wait, move || take.take(SECOND), move || push.push("a".to_owned()))
    });
}

#[test]
fn a_push_checks_one_worker_and_jobs_keep_their_order() {
    let (_timer, queue) = queue();
    let mut workers = [(); 100].map(|()| queue.take(SECOND));
    let checks = || queue.jobs.purgatory().stats().checks;
    let before = checks();
    queue.push("a".to_owned());
    assert_eq!((checks() - before, queue.jobs.purgatory().len()), (1, 99));
    assert_eq!(got(&mut workers[0]).done(), "a");
    assert!(workers[1..].iter_mut().all(|worker| poll(worker).is_pending()));
    drop(workers);
    ["b", "c"].into_iter().for_each(|job| queue.push(job.to_owned()));
    drop(got(&mut queue.take(SECOND))); // back to the front
    left(&queue, &["b", "c"]);
}

/// A client goes before its turn, when the job is its own already, and while it works on it.
#[test]
fn a_worker_that_goes_costs_no_job() {
    let (_timer, queue) = queue();
    let [first, second, mut third, mut fourth] = [(); 4].map(|()| queue.take(SECOND));
    drop(first);
    ["a", "b"].into_iter().for_each(|job| queue.push(job.to_owned()));
    drop(second); // it had the first job, which is taken before the fourth
    let working = got(&mut third);
    let other = got(&mut fourth);
    drop(working);
    assert_eq!(other.done(), "a");
    left(&queue, &["b"]);
}
