//! A queue of jobs in every order of pushes, workers and ends.

use std::{collections::VecDeque, task::Poll, thread};

use purgatory::{Monitor, WaitError, WaitFuture};
use timer_core::ManualTimer;

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand,
    guide::queue::{Job, Queue},
    off_runtime, on_runtimes, poll,
};

fn queue() -> (ManualTimer, Queue) {
    let (timer, waits) = by_hand();
    (timer, Queue { jobs: Monitor::with(waits, VecDeque::new()) })
}

#[track_caller]
fn got(take: &mut WaitFuture<Job>) -> Job {
    match poll(take) {
        Poll::Ready(Ok(job)) => job,
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("no job"),
    }
}

#[track_caller]
fn failed(take: &mut WaitFuture<Job>, why: &WaitError) {
    assert!(matches!(poll(take), Poll::Ready(Err(error)) if error == *why));
}

/// Nobody waits, and these jobs are left.
#[track_caller]
fn left(queue: &Queue, jobs: &[&str]) {
    assert_eq!(queue.jobs.read(VecDeque::clone), jobs);
    super::nothing_is_left(queue.jobs.purgatory());
}

#[test]
fn jobs_pushed_before_are_taken_in_order() {
    let (_timer, queue) = queue();
    ["a", "b"].into_iter().for_each(|job| queue.push(job.to_owned()));
    let done = [(); 2].map(|()| got(&mut queue.take(SECOND)).done());
    assert_eq!(done, ["a", "b"]);
    left(&queue, &[]);
}

#[test]
fn a_push_looks_at_one_worker() {
    let (_timer, queue) = queue();
    let mut workers = [(); 100].map(|()| queue.take(SECOND));
    let before = queue.jobs.purgatory().stats().checks;
    queue.push("a".to_owned());
    assert_eq!(queue.jobs.purgatory().stats().checks - before, 1);
    assert_eq!(queue.jobs.purgatory().len(), 99);
    assert_eq!(got(&mut workers[0]).done(), "a");
    assert!(workers[1..].iter_mut().all(|worker| poll(worker).is_pending()));
}

#[test]
fn a_worker_without_a_job_expires() {
    on_runtimes(|runtime| {
        let (timer, queue) = queue();
        let take = runtime.spawn(queue.take(SECOND));
        timer.advance(SECOND - MS);
        assert_eq!(queue.jobs.purgatory().len(), 1);
        off_runtime(|| timer.advance(MS));
        assert_eq!(runtime.block_on(take).unwrap().err(), Some(WaitError::Expired));
        queue.push("late".to_owned());
        left(&queue, &["late"]);
    });
}

/// A client goes before its turn, when the job is its own already, and while it works on it.
#[test]
fn a_worker_that_goes_costs_no_job() {
    let (_timer, queue) = queue();
    let [first, second, third, mut fourth] = [(); 4].map(|()| queue.take(SECOND));
    drop(first);
    queue.push("a".to_owned());
    queue.push("b".to_owned());
    drop(second); // it had the first job, which nobody takes before the fourth
    let mut third = third;
    let working = got(&mut third);
    let other = got(&mut fourth);
    drop(working);
    assert_eq!(other.done(), "a");
    left(&queue, &["b"]);
    assert_eq!(got(&mut queue.take(SECOND)).done(), "b");
}

#[test]
fn a_job_given_back_goes_to_the_front() {
    let (_timer, queue) = queue();
    ["a", "b"].into_iter().for_each(|job| queue.push(job.to_owned()));
    drop(got(&mut queue.take(SECOND)));
    left(&queue, &["a", "b"]);
}

#[test]
fn a_task_aborted_with_its_job_gives_it_back() {
    on_runtimes(|runtime| {
        let (_timer, queue) = queue();
        let take = queue.take(SECOND);
        let task = runtime.spawn(async move {
            let _job = take.await;
            std::future::pending::<()>().await;
        });
        queue.push("a".to_owned());
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        assert_eq!(got(&mut queue.take(SECOND)).done(), "a");
        left(&queue, &[]);
    });
}

#[test]
fn a_shutdown_ends_workers_and_keeps_jobs() {
    let (_timer, queue) = queue();
    let mut take = queue.take(SECOND);
    queue.jobs.purgatory().shutdown(SECOND);
    failed(&mut take, &SHUTDOWN);
    failed(&mut queue.take(SECOND), &CLOSED);
    queue.push("a".to_owned());
    left(&queue, &["a"]);
    drop(got(&mut queue.take(SECOND))); // it need not wait
    left(&queue, &["a"]);
}

/// Workers that take jobs, or go while they wait: each job is done once.
#[test]
fn of_many_jobs_each_is_done_once() {
    const JOBS: usize = 2000;
    on_runtimes(|runtime| {
        let (_timer, queue) = queue();
        let pushes = queue.clone();
        let pushing = thread::spawn(move || (0..JOBS).for_each(|at| pushes.push(at.to_string())));
        let workers: [_; 4] = std::array::from_fn(|number| {
            let queue = queue.clone();
            runtime.spawn(async move {
                let mut done = Vec::new();
                for at in number.. {
                    tokio::select! {
                        biased;
                        job = queue.take(SECOND) => match job.map(Job::done) {
                            Ok(job) if job == "stop" => break,
                            Ok(job) => done.push(job),
                            Err(error) => panic!("{error}"),
                        },
                        () = tokio::task::yield_now(), if at % 3 == 0 => {}
                    }
                }
                done
            })
        });
        pushing.join().unwrap();
        workers.iter().for_each(|_| queue.push("stop".to_owned()));
        let done = workers.map(|worker| runtime.block_on(worker).unwrap()).concat();
        let mut numbers: Vec<usize> = done.iter().map(|job| job.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..JOBS));
        left(&queue, &[]);
    });
}
