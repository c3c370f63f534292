// A long poll over a store that is read asynchronously and that other processes also write to.

use std::{error::Error, io, time::Duration};

use purgatory::{Purgatory, Timeout, timer_core::Timer};

/// The least interval: a poll that looked more often would do nothing else.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(1);

pub trait Store {
    fn read(&self, partition: u32) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

pub struct Logs<S> {
    pub store: S,
    pub timer: Timer, // the timer of `appends`
    pub appends: Purgatory<u32>,
    pub look_every: Duration, // for records that are written elsewhere
}

impl<S: Store> Logs<S> {
    /// Returns at least `min_bytes` of a partition, or all bytes that are there after `max_wait`.
    pub async fn fetch(
        &self,
        partition: u32,
        min_bytes: usize,
        max_wait: Duration,
    ) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let deadline = self.timer.now() + max_wait;
        let look_every = self.look_every.max(LOOK_EVERY_MIN);
        loop {
            // Register for the next event, then read: an append during the read is not lost.
            let now = self.timer.now();
            let look_at = deadline.min(now + look_every);
            let event = self.appends.next_event(&[partition], Timeout::At(look_at));
            let bytes = self.store.read(partition).await?;
            if bytes.len() >= min_bytes || now >= deadline {
                return Ok(bytes);
            }
            match event.await {
                Ok(()) => {}                           // a writer of this process signalled
                Err(error) if error.is_expired() => {} // perhaps it was written elsewhere
                Err(error) => return Err(error.into()),
            }
        }
    }
}

struct Memory {
    bytes: std::sync::Mutex<Vec<u8>>,
}

impl Store for Memory {
    async fn read(&self, _partition: u32) -> io::Result<Vec<u8>> {
        Ok(self.bytes.lock().unwrap().clone())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let timer = purgatory::timer_core::SystemTimer::new()?;
    let appends = Purgatory::on(&timer, "fetch")?;
    let store = Memory {
        bytes: Default::default(),
    };
    let logs = Logs {
        store,
        timer: timer.into(),
        appends,
        look_every: Duration::from_secs(1),
    };
    // The fetch waits for the append of another task.
    let append = async {
        logs.store.bytes.lock().unwrap().extend(b"a record");
        logs.appends.check_and_complete(&7)
    };
    let (bytes, completed) = tokio::join!(logs.fetch(7, 8, Duration::from_secs(30)), append);
    assert_eq!(bytes?, b"a record");
    assert_eq!(completed, 1);
    Ok(())
}
