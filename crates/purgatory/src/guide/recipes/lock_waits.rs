//! Transactions that wait for the lock of a row: one is updated, removed or ended with a chain.

use std::sync::mpsc;

use purgatory::{DelayedOperation, EndResult, OperationId, Outcome, Purgatory, Reason};

/// The transactions of a deadlock, each waiting for the next.
pub struct Deadlock(pub Vec<u64>);

pub struct Waiter {
    pub transaction: u64,
    pub holder: u64,
    pub client: mpsc::Sender<Outcome>,
}

impl DelayedOperation for Waiter {
    fn try_complete(&mut self) -> bool {
        false // a call gives it the lock
    }

    fn on_complete(self, outcome: Outcome) {
        let _ = self.client.send(outcome); // the client may have gone
    }
}

pub type LockWaits = Purgatory<&'static str, Waiter>;

/// Another transaction has the lock now. False: the waiter has ended.
pub fn update(waits: &LockWaits, waiter: OperationId, holder: u64) -> bool {
    let update = |waiter: &mut Waiter| waiter.holder = holder;
    waits.with(waiter, update).parked().is_some()
}

/// Ends a waiter with the chain that it closes; its client finds the chain in the outcome.
pub fn end_deadlock(waits: &LockWaits, waiter: OperationId, chain: Vec<u64>) -> EndResult {
    waits.cancel(waiter, Reason::with("deadlock", Deadlock(chain)))
}

/// Lists each row with the transaction that waits and the one that it waits for.
pub fn dump(waits: &LockWaits) -> Vec<(&'static str, u64, u64)> {
    let mut dump = Vec::with_capacity(waits.len());
    waits.for_each(|_id, rows, waiter| {
        if let (Some(row), Some(waiter)) = (rows.first(), waiter) {
            dump.push((*row, waiter.transaction, waiter.holder));
        }
    });
    dump
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let waits = LockWaits::new("lock waits")?;
    let (client, outcomes) = mpsc::channel();
    let mut parked = Vec::new();
    for transaction in [2, 3] {
        let waiter = Waiter {
            transaction,
            holder: 1,
            client: client.clone(),
        };
        let timeout = std::time::Duration::from_secs(3);
        parked.extend(
            waits
                .try_complete_else_watch(waiter, &["row"], timeout)?
                .id(),
        );
    }
    assert!(update(&waits, parked[1], 2));
    let mut listed = dump(&waits);
    listed.sort_unstable();
    assert_eq!(listed, [("row", 2, 1), ("row", 3, 2)]);

    assert_eq!(
        end_deadlock(&waits, parked[1], vec![3, 2, 3]),
        EndResult::Ended
    );
    let Outcome::Cancelled(reason) = outcomes.recv()? else {
        panic!("it was cancelled")
    };
    assert_eq!(reason.value::<Deadlock>().unwrap().0, [3, 2, 3]);

    let removed = waits.take(parked[0]).parked().unwrap(); // and this thread answers it
    assert_eq!((removed.transaction, waits.len()), (2, 0));
    Ok(())
}
