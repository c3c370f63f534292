//! Produces of one partition that are answered once every in-sync replica has their record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use purgatory::{DelayedOperation, Outcome, ParkResult, Purgatory, Refused, Watches};

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct DelayedProduce {
    required_offset: u64,
    high_watermark: Arc<AtomicU64>,
    answer: Box<dyn FnOnce(Outcome) + Send>,
}

impl DelayedOperation for DelayedProduce {
    fn try_complete(&mut self) -> bool {
        self.high_watermark.load(SeqCst) >= self.required_offset
    }

    fn on_complete(self, outcome: Outcome) {
        (self.answer)(outcome);
    }
}

pub struct Partition {
    pub name: &'static str,
    pub high_watermark: Arc<AtomicU64>,
    pub produces: Purgatory<&'static str, DelayedProduce>,
}

impl Partition {
    /// Answers when all replicas have the record at this offset, or after [`TIMEOUT`]. A refused
    /// produce is handed back, for the caller to answer.
    pub fn produce(
        &self,
        required_offset: u64,
        answer: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<ParkResult, Refused<DelayedProduce>> {
        let produce = DelayedProduce {
            required_offset,
            high_watermark: self.high_watermark.clone(),
            answer: Box::new(answer),
        };
        let until = [(self.name, required_offset)];
        self.produces
            .try_complete_else_watch(produce, Watches::up_to(&until), TIMEOUT)
    }

    /// All in-sync replicas have come this far.
    pub fn replicated(&self, offset: u64) -> usize {
        self.high_watermark.fetch_max(offset, SeqCst); // the condition first ...
        self.produces.complete_up_to(&self.name, offset) // ... then its event
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let produces = Purgatory::new("produce")?;
    let orders = Partition {
        name: "orders-0",
        high_watermark: Arc::default(),
        produces,
    };
    let (client, answers) = std::sync::mpsc::channel();
    for required_offset in [1, 2, 3] {
        let client = client.clone();
        let answer = move |outcome| client.send((required_offset, outcome)).unwrap();
        orders.produce(required_offset, answer)?;
    }
    assert_eq!(orders.replicated(2), 2); // the slower follower has fetched two records
    let completed = |offset| (offset, Outcome::Completed);
    assert_eq!(
        answers.try_iter().collect::<Vec<_>>(),
        [completed(1), completed(2)]
    );
    Ok(())
}
