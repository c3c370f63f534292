//! A queue whose jobs go to one worker each, and back if that worker goes without doing them.

use std::{collections::VecDeque, time::Duration};

use purgatory::{Monitor, WaitFuture};

#[derive(Clone)]
pub struct Queue {
    pub jobs: Monitor<(), VecDeque<String>>,
}

/// A job for one worker. Dropped undone, it is returned to the front of the queue.
pub struct Job {
    queue: Queue,
    text: Option<String>,
}

impl Queue {
    pub fn push(&self, text: String) {
        // One job more: for one worker.
        self.jobs.update_one(&(), |jobs| jobs.push_back(text));
    }

    pub fn take(&self, max_wait: Duration) -> WaitFuture<Job> {
        let queue = self.clone();
        let next = move |jobs: &mut VecDeque<String>| {
            let text = Some(jobs.pop_front()?);
            let queue = queue.clone();
            Some(Job { queue, text })
        };
        self.jobs.wait_in_turn(&(), max_wait, next)
    }
}

impl Job {
    pub fn done(mut self) -> String {
        self.text.take().unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(text) = self.text.take() {
            self.queue
                .jobs
                .update_one(&(), |jobs| jobs.push_front(text));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue {
        jobs: Monitor::new("jobs", VecDeque::new())?,
    };
    let [first, second] = [(); 2].map(|()| queue.take(Duration::from_secs(30)));
    queue.push("a job".to_owned());
    drop(first); // this worker has gone, and the job was its own
    assert_eq!(second.wait_blocking()?.done(), "a job");
    Ok(())
}
