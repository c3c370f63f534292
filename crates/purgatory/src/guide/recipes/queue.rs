// A queue of jobs: each job goes to one worker, and returns to the queue if that worker leaves
// without doing it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{Permit, Permits, WaitError};

/// A permit for each job: a worker that has one finds a job.
#[derive(Clone)]
pub struct Queue {
    pub jobs: Arc<Mutex<VecDeque<String>>>,
    pub permits: Permits,
}

/// A job for one worker. If it is dropped undone, it returns to the front of the queue.
pub struct Job {
    jobs: Arc<Mutex<VecDeque<String>>>,
    text: Option<String>,
    /// Returned after the job.
    permit: Option<Permit>,
}

impl Queue {
    pub fn push(&self, text: String) {
        self.jobs.lock().unwrap().push_back(text);
        self.permits.add(1); // one job more: for the worker that came first
    }

    /// This call, not the first poll, takes the place in line.
    pub fn take(&self, max_wait: Duration) -> impl Future<Output = Result<Job, WaitError>> + use<> {
        let permit = self.permits.acquire(1, max_wait);
        let jobs = self.jobs.clone();
        async move {
            let permit = Some(permit.await?);
            let text = jobs.lock().unwrap().pop_front();
            Ok(Job { jobs, text, permit })
        }
    }
}

impl Job {
    pub fn done(mut self) -> String {
        if let Some(permit) = self.permit.take() {
            permit.forget(); // one job less
        }
        self.text.take().expect("a permit, a job")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(text) = self.text.take() {
            self.jobs.lock().unwrap().push_front(text);
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Queue {
        jobs: Arc::default(),
        permits: Permits::new("jobs", 0)?,
    };
    let [first, second] = [(); 2].map(|()| queue.take(Duration::from_secs(30)));
    queue.push("a job".to_owned());
    drop(first); // this worker has gone, and the job was its own
    assert_eq!(second.await?.done(), "a job");
    Ok(())
}
