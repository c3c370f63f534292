// Transactions that wait for the lock of a row: a dump lists them with the holder, and a wait that
// closes a deadlock is ended with its chain.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{OperationId, Permit, Permits, ReachResult, Reason, WaitError};

/// The transactions of a deadlock, each waiting for the next.
pub struct Deadlock(pub Vec<u64>);

#[derive(Clone)]
pub struct RowLocks {
    /// One permit for each row. Rows that no transaction locks are not in it.
    pub rows: Permits<&'static str>,
    transactions: Arc<Mutex<Transactions>>,
}

#[derive(Default)]
struct Transactions {
    holders: HashMap<&'static str, u64>,
    waiting: HashMap<OperationId, u64>,
}

/// The lock of a row, released on drop.
pub struct RowLock {
    locks: RowLocks,
    row: &'static str,
    /// Dropped last: when the next holder comes, the name of this one is gone.
    _permit: Permit<&'static str>,
}

/// A transaction that is listed as waiting, until this is dropped.
struct Listed {
    locks: RowLocks,
    waiter: OperationId,
}

impl RowLocks {
    pub fn new(rows: Permits<&'static str>) -> Self {
        RowLocks {
            rows,
            transactions: Arc::default(),
        }
    }

    /// Locks a row for a transaction. This call, not the first poll, takes the place in line.
    pub fn lock(
        &self,
        row: &'static str,
        transaction: u64,
        timeout: Duration,
    ) -> impl Future<Output = Result<RowLock, WaitError>> + use<> {
        let locks = self.clone();
        let permit = locks.rows.acquire_for(&row, 1, timeout);
        let listed = permit.id().map(|waiter| locks.list(waiter, transaction));
        async move {
            let _permit = permit.await?;
            drop(listed);
            let mut transactions = locks.transactions.lock().unwrap();
            transactions.holders.insert(row, transaction);
            drop(transactions);
            Ok(RowLock {
                locks,
                row,
                _permit,
            })
        }
    }

    fn list(&self, waiter: OperationId, transaction: u64) -> Listed {
        let mut transactions = self.transactions.lock().unwrap();
        transactions.waiting.insert(waiter, transaction);
        Listed {
            locks: self.clone(),
            waiter,
        }
    }

    /// Lists each wait, oldest first: the row, the transaction that waits, and the one that it
    /// waits for.
    pub fn dump(&self) -> Vec<(&'static str, u64, Option<u64>)> {
        let oldest = self.rows.waits().snapshot(usize::MAX).oldest;
        let transactions = self.transactions.lock().unwrap();
        let mut dump = Vec::with_capacity(oldest.len());
        for wait in oldest {
            if let Some(&transaction) = transactions.waiting.get(&wait.id) {
                let row = wait.keys[0];
                dump.push((row, transaction, transactions.holders.get(row).copied()));
            }
        }
        dump
    }

    /// Ends the wait of a transaction that closes this chain; its client finds the chain in the
    /// error.
    pub fn end_deadlock(&self, transaction: u64, chain: Vec<u64>) -> ReachResult {
        // Find the wait of the transaction.
        let transactions = self.transactions.lock().unwrap();
        let mut waiting = transactions.waiting.iter();
        let waiter = waiting.find_map(|(id, &of)| (of == transaction).then_some(*id));
        drop(transactions);
        let Some(waiter) = waiter else {
            return ReachResult::Gone;
        };
        // Give its client the chain in the error.
        let chain = Reason::with("deadlock", Deadlock(chain));
        self.rows.waits().cancel(waiter, chain)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut transactions = self.locks.transactions.lock().unwrap();
        transactions.waiting.remove(&self.waiter);
    }
}

impl Drop for RowLock {
    fn drop(&mut self) {
        let mut transactions = self.locks.transactions.lock().unwrap();
        transactions.holders.remove(self.row);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The first transaction has the lock, and two wait.
    let locks = RowLocks::new(Permits::keyed("row locks", 1)?);
    let timeout = Duration::from_secs(3);
    let held = locks.lock("row", 1, timeout).await?;
    let second = locks.lock("row", 2, timeout);
    let third = locks.lock("row", 3, timeout);
    assert_eq!(locks.dump(), [("row", 2, Some(1)), ("row", 3, Some(1))]);

    // The third transaction closes a circle.
    assert_eq!(
        locks.end_deadlock(3, vec![3, 1, 3]),
        ReachResult::Reached(())
    );
    let Err(WaitError::Cancelled(reason)) = third.await else {
        panic!("it was cancelled")
    };
    assert_eq!(reason.value::<Deadlock>().unwrap().0, [3, 1, 3]);

    // The second transaction is next, and afterwards nothing of the row stays.
    drop(held);
    let second = second.await?;
    assert!(locks.dump().is_empty());
    drop(second);
    assert_eq!(locks.rows.taken_for(&"row"), 0);
    Ok(())
}
