//! Accounts under one lock: a change collects the keys to raise, and raises them after the unlock.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{BoxedOperation, Purgatory, WaitFuture};

pub struct Accounts {
    pub balances: Arc<Mutex<HashMap<u32, u64>>>,
    pub waits: Purgatory<u32, BoxedOperation>,
}

/// Events to raise when this is dropped. Make it before the lock: locals go in reverse order.
struct Events<'a>(&'a Purgatory<u32, BoxedOperation>, Vec<u32>);

impl Drop for Events<'_> {
    fn drop(&mut self) {
        self.1
            .iter()
            .for_each(|key| _ = self.0.check_and_complete(key));
    }
}

impl Accounts {
    /// Pays all of these together. Also after a panic, what was paid is raised.
    pub fn pay(&self, payments: &[(u32, u64)]) {
        let mut events = Events(&self.waits, Vec::new());
        let mut balances = self.balances.lock().unwrap();
        for &(account, amount) in payments {
            *balances.entry(account).or_default() += amount; // the condition first ...
            events.1.push(account); // ... its event when `balances` is unlocked
        }
    }

    /// A future of the account's balance, once it is at least `amount`.
    pub fn funded(&self, account: u32, amount: u64) -> WaitFuture<u64> {
        let balances = self.balances.clone();
        self.waits
            .wait(&[account], Duration::from_secs(30), move || {
                let balance = balances.lock().unwrap().get(&account).copied();
                balance.filter(|&balance| balance >= amount)
            })
    }
}
