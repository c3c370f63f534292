// Pulls that are held until a message of their tag is stored, and answered when the broker stops.

use std::{
    any::Any,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use purgatory::{DelayedOperation, Outcome, Purgatory, Timeout, WaitError};

/// A message: its tag, and its body.
pub type Message = (&'static str, u32);

pub struct Pull {
    pub tag: &'static str,
    pub offset: usize,
    pub log: Arc<Mutex<Vec<Message>>>,
    pub client: mpsc::Sender<Vec<Message>>,
}

impl Pull {
    /// Reads the unread messages of this pull's tag.
    fn read(&self) -> Vec<Message> {
        let log = self.log.lock().unwrap();
        let unread = log.iter().skip(self.offset);
        unread
            .filter(|message| message.0 == self.tag)
            .copied()
            .collect()
    }
}

impl DelayedOperation for Pull {
    fn try_complete(&mut self) -> bool {
        !self.read().is_empty()
    }

    fn try_complete_with(&mut self, stored: &dyn Any) -> bool {
        // A message of another tag: the log is not read.
        stored.downcast_ref() == Some(&self.tag) && self.try_complete()
    }

    fn on_complete(self, _: Outcome) {
        // The answer is empty at a timeout or a stop. The client may have gone.
        let _ = self.client.send(self.read());
    }
}

pub struct Broker {
    pub log: Arc<Mutex<Vec<Message>>>,
    pub pulls: Purgatory<&'static str, Pull>,
}

impl Broker {
    pub fn store(&self, message: Message) -> usize {
        self.log.lock().unwrap().push(message); // the condition first, and unlocked ...
        self.pulls.check_and_complete_with(&"orders", &message.0) // ... then its event
    }

    /// Holds a pull for messages stored from now on.
    pub fn pull(
        &self,
        tag: &'static str,
        client: mpsc::Sender<Vec<Message>>,
        timeout: impl Into<Timeout>,
    ) -> Result<(), WaitError> {
        let log = self.log.clone();
        let offset = log.lock().unwrap().len();
        let pull = Pull {
            tag,
            offset,
            log,
            client,
        };
        self.pulls
            .try_complete_else_watch(pull, &["orders"], timeout)?;
        Ok(())
    }

    /// Answers the pulls that are held, and refuses later ones. Returns how many still run at the
    /// limit.
    pub fn stop(&self, limit: Duration) -> usize {
        self.pulls.shutdown(limit)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker {
        log: Arc::default(),
        pulls: Purgatory::new("pulls")?,
    };
    let (client, answers) = mpsc::channel();
    for tag in ["red", "blue"] {
        broker.pull(tag, client.clone(), Duration::from_secs(30))?;
    }
    assert_eq!(broker.store(("green", 1)), 0);
    assert_eq!(broker.store(("blue", 2)), 1);
    assert_eq!(answers.recv()?, [("blue", 2)]);
    assert_eq!(broker.stop(Duration::from_secs(30)), 0);
    assert!(answers.recv()?.is_empty());
    Ok(())
}
