// Requests that are counted until they are answered, so that a server knows when it may stop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{Purgatory, WaitFuture};

#[derive(Clone)]
pub struct Server {
    pub stopping: Arc<AtomicBool>,
    pub open: Arc<AtomicUsize>,
    pub drained: Purgatory<()>,
}

/// A request that is being served. Drop it when it has been answered.
pub struct Open(Server);

impl Server {
    /// Begins a request; `None` if the server takes no more requests.
    pub fn begin(&self) -> Option<Open> {
        // Count the request before looking at `stopping`, so that `drain` does not overlook it.
        self.open.fetch_add(1, SeqCst);
        let request = Open(self.clone());
        if self.stopping.load(SeqCst) {
            return None; // dropping the request counts it down again
        }
        Some(request)
    }

    /// A future that is ready when the last request has been answered.
    pub fn drain(&self, max_wait: Duration) -> WaitFuture<()> {
        self.stopping.store(true, SeqCst);
        let open = self.open.clone();
        self.drained
            .wait(&[()], max_wait, move || open.load(SeqCst) == 0)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let server = &self.0;
        let before = server.open.fetch_sub(1, SeqCst); // the condition first ...
        if before == 1 {
            server.drained.check_and_complete(&()); // ... then its event
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    use purgatory::{CancelReason, Outcome, Timeout, when};
    use std::sync::mpsc;

    let server = Server {
        stopping: Arc::default(),
        open: Arc::default(),
        drained: Purgatory::new("drain")?,
    };
    let requests = Purgatory::new("requests")?;
    let (client, answers) = mpsc::channel();
    for key in ["soon", "never"] {
        let client = client.clone();
        let open = server.begin().unwrap();
        let answer = move |outcome| {
            client.send((key, outcome)).unwrap();
            drop(open); // after the answer
        };
        requests.try_complete_else_watch(when(|| false, answer), &[key], Timeout::Never)?;
    }

    let drained = server.drain(Duration::from_millis(100));
    assert!(server.begin().is_none());
    requests.complete_for_key(&"soon");
    assert!(drained.wait_blocking().is_err()); // one request never ends by itself
    requests.shutdown(Duration::from_secs(30));
    let shutdown = Outcome::Cancelled(CancelReason::Shutdown);
    let answers: Vec<_> = answers.try_iter().collect();
    assert_eq!(answers, [("soon", Outcome::Completed), ("never", shutdown)]);
    Ok(())
}
