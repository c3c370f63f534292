//! Events raised after an unlock: which are raised, and that the lock is free by then.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use purgatory::when;
use timer_core::ManualTimer;

use super::{SECOND, Wait, by_hand, every_order, got, guide::raise_after_unlock::Accounts, poll};

fn accounts() -> (ManualTimer, Accounts) {
    let (timer, waits) = by_hand();
    (timer, Accounts { balances: Arc::default(), waits })
}

#[test]
fn a_wait_ends_when_its_account_is_funded() {
    every_order(|| {
        let (timer, accounts) = accounts();
        let (waits, accounts) = (accounts.waits.clone(), Arc::new(accounts));
        let pays = accounts.clone();
        let wait = Wait { timer, waits, limit: 30 * SECOND, remembers: true };
        (wait, move || accounts.funded(1, 50), move || pays.pay(&[(2, 9), (1, 50)]))
    });
}

#[test]
fn each_account_paid_has_its_event_even_if_paid_twice() {
    let (_timer, accounts) = accounts();
    let [mut first, mut second] = [1, 2].map(|account| accounts.funded(account, 50));
    let mut other = accounts.funded(3, 1);
    accounts.pay(&[(1, 20), (2, 60), (1, 30)]);
    assert_eq!((got(&mut first), got(&mut second)), (50, 60));
    accounts.pay(&[]);
    assert!(poll(&mut other).is_pending());
}

/// A check that found the balances locked would wait for its own thread. And when the second
/// amount overflows, the first is raised all the same.
#[test]
fn checks_find_the_lock_free_also_after_a_panic() {
    for (payments, checks) in [([(1, 1), (2, 0)], 2), ([(1, 1), (2, 1)], 1)] {
        let (_timer, accounts) = accounts();
        accounts.pay(&[(2, u64::MAX)]);
        let (balances, free) = (accounts.balances.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = free.clone();
        let check = move || {
            let is_free = !matches!(balances.try_lock(), Err(std::sync::TryLockError::WouldBlock));
            counted.fetch_add(usize::from(is_free), SeqCst);
            false
        };
        accounts.waits.try_complete_else_watch(when(check, drop), &[1, 2], SECOND).unwrap();
        let before = free.load(SeqCst);
        let paid = thread::scope(|scope| scope.spawn(|| accounts.pay(&payments)).join());
        assert_eq!((paid.is_ok(), free.load(SeqCst) - before), (checks == 2, checks));
    }
}
