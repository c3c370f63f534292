//! `Monitor`, with one key.

use std::collections::VecDeque;

use purgatory::Monitor;

use super::queue::{Queue, TIMEOUT};

const JOBS: u8 = 0;

pub(crate) struct Ours(Monitor<u8, VecDeque<u64>>);

impl Queue for Ours {
    const NAME: &'static str = crate::results::OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Ours(Monitor::new("queue", VecDeque::new())?))
    }

    fn take(&self) -> impl Future<Output = Option<u64>> + Send {
        let job = self.0.wait(&[JOBS], TIMEOUT, |jobs| jobs.pop_front());
        async { job.await.ok() }
    }

    fn put(&self, job: u64) {
        self.0.update_one(&JOBS, |jobs| jobs.push_back(job));
    }

    fn left(&self) -> usize {
        self.0.read(|jobs| jobs.len()) + self.0.waiting()
    }
}
