//! Written by hand: a queue in a mutex, tokio's `Notify`, which keeps one wake-up for the next that
//! comes, and its `timeout`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::{sync::Notify, time};

use super::queue::{Queue, TIMEOUT};

#[derive(Default)]
pub(crate) struct Notified {
    jobs: Mutex<VecDeque<u64>>,
    put: Notify,
}

impl Queue for Notified {
    const NAME: &'static str = "mutex-notify";

    fn start() -> anyhow::Result<Self> {
        Ok(Notified::default())
    }

    async fn take(&self) -> Option<u64> {
        let job = async {
            loop {
                if let Some(job) = self.jobs.lock().pop_front() {
                    return job;
                }
                self.put.notified().await;
            }
        };
        time::timeout(TIMEOUT, job).await.ok()
    }

    fn put(&self, job: u64) {
        self.jobs.lock().push_back(job);
        self.put.notify_one();
    }

    fn left(&self) -> usize {
        self.jobs.lock().len()
    }
}
