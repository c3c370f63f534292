//! A queue whose jobs go to one worker each, and back if that worker goes without doing them.

use std::{collections::VecDeque, time::Duration};

use purgatory::{Monitor, WaitFuture};

#[derive(Clone)]
pub struct Queue {
    pub jobs: Monitor<(), VecDeque<String>>,
}

/// A job for one worker. Dropped undone, it gives itself back.
pub struct Job {
    queue: Queue,
    what: Option<String>,
}

impl Queue {
    pub fn push(&self, what: String) {
        self.jobs.update_one(&(), |jobs| jobs.push_back(what)); // one more: for one worker
    }

    pub fn take(&self, max_wait: Duration) -> WaitFuture<Job> {
        let queue = self.clone();
        self.jobs.wait(&[()], max_wait, move |jobs| {
            let what = jobs.pop_front()?;
            Some(Job {
                queue: queue.clone(),
                what: Some(what),
            })
        })
    }
}

impl Job {
    pub fn done(mut self) -> String {
        self.what.take().unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Some(what) = self.what.take() else { return };
        self.queue
            .jobs
            .update_one(&(), |jobs| jobs.push_front(what));
    }
}
