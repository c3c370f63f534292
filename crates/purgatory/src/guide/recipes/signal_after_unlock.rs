// Accounts under one lock: a change collects the keys, and signals them after the unlock.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{Purgatory, WaitFuture};

const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Accounts {
    pub balances: Arc<Mutex<HashMap<u32, u64>>>,
    pub waits: Purgatory<u32>,
}

/// Signals its keys when dropped. Make it before the lock is taken: locals drop in reverse order.
struct SignalOnDrop<'a> {
    waits: &'a Purgatory<u32>,
    keys: Vec<u32>,
}

impl Drop for SignalOnDrop<'_> {
    fn drop(&mut self) {
        for key in &self.keys {
            self.waits.check_and_complete(key);
        }
    }
}

impl Accounts {
    /// Makes these payments under one lock, up to the first that fails. The accounts paid before it
    /// are still signalled.
    pub fn pay(&self, payments: &[(u32, u64)]) -> Result<(), &'static str> {
        let mut changed = SignalOnDrop {
            waits: &self.waits,
            keys: Vec::new(),
        };
        let mut balances = self.balances.lock().unwrap();
        for &(account, amount) in payments {
            let balance = balances.entry(account).or_default();
            let paid = balance.checked_add(amount).ok_or("the balance overflows")?;
            *balance = paid; // the condition first ...
            changed.keys.push(account); // ... its event when `balances` is unlocked
        }
        Ok(())
    }

    /// A future of the account's balance, once it is at least `amount`.
    pub fn funded(&self, account: u32, amount: u64) -> WaitFuture<u64> {
        let balances = self.balances.clone();
        let is_funded = move || {
            let balance = balances.lock().unwrap().get(&account).copied();
            balance.filter(|&balance| balance >= amount)
        };
        self.waits.wait(&[account], TIMEOUT, is_funded)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let accounts = Accounts {
        balances: Arc::default(),
        waits: Purgatory::new("accounts")?,
    };
    let rent = accounts.funded(1, 50);
    let trip = accounts.funded(2, 80);
    accounts.pay(&[(1, 60), (2, 60)])?;
    accounts.pay(&[(2, 60)])?;
    assert_eq!(rent.wait_blocking()?, 60);
    assert_eq!(trip.wait_blocking()?, 120);
    Ok(())
}
