//! Events raised after an unlock, in every order of payments and waits.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use purgatory::{WaitError, when};
use timer_core::ManualTimer;

use super::{
    CLOSED, MS, SECOND, SHUTDOWN, by_hand, guide::raise_after_unlock::Accounts, off_runtime,
    on_runtimes, poll,
};

fn accounts() -> (ManualTimer, Accounts) {
    let (timer, waits) = by_hand();
    (timer, Accounts { balances: Arc::default(), waits })
}

#[test]
fn a_payment_before_the_wait_is_seen_at_once() {
    let (_timer, accounts) = accounts();
    accounts.pay(&[(1, 50)]);
    assert_eq!(poll(&mut accounts.funded(1, 50)), Ok(50).into());
    super::nothing_is_left(&accounts.waits);
}

#[test]
fn each_account_paid_has_its_event_also_when_paid_twice() {
    let (_timer, accounts) = accounts();
    let [mut first, mut second] = [1, 2].map(|account| accounts.funded(account, 50));
    let mut other = accounts.funded(3, 1);
    accounts.pay(&[(1, 20), (2, 60), (1, 30)]);
    assert_eq!((poll(&mut first), poll(&mut second)), (Ok(50).into(), Ok(60).into()));
    accounts.pay(&[]);
    assert!(poll(&mut other).is_pending());
}

/// A check that found the balances locked would wait for its own thread.
#[test]
fn no_check_of_the_event_finds_the_lock_held() {
    let (_timer, accounts) = accounts();
    let (balances, free) = (accounts.balances.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = free.clone();
    let check = move || {
        counted.fetch_add(usize::from(balances.try_lock().is_ok()), SeqCst);
        false
    };
    accounts.waits.try_complete_else_watch(when(check, drop), &[1, 2], SECOND).unwrap();
    let before = free.load(SeqCst);
    accounts.pay(&[(1, 1), (2, 1)]);
    assert_eq!(free.load(SeqCst) - before, 2);
    assert_eq!(accounts.waits.stats().checks, 3);
}

/// The second amount overflows: what was paid before it is raised all the same.
#[test]
fn a_panic_under_the_lock_raises_what_was_changed() {
    let (_timer, accounts) = accounts();
    accounts.pay(&[(2, u64::MAX)]);
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = checks.clone();
    let check = move || {
        counted.fetch_add(1, SeqCst);
        false
    };
    accounts.waits.try_complete_else_watch(when(check, drop), &[1], SECOND).unwrap();
    let pays = || accounts.pay(&[(1, 1), (2, 1)]);
    let panicked = thread::scope(|scope| scope.spawn(pays).join());
    assert!(panicked.is_err());
    assert_eq!(checks.load(SeqCst), 2);
}

#[test]
fn an_account_never_paid_is_waited_for_until_time_is_up() {
    on_runtimes(|runtime| {
        let (timer, accounts) = accounts();
        let funded = runtime.spawn(accounts.funded(1, 50));
        accounts.pay(&[(1, 49)]);
        timer.advance(30 * SECOND - MS);
        assert_eq!(accounts.waits.len(), 1);
        off_runtime(|| timer.advance(MS));
        accounts.pay(&[(1, 1)]);
        assert_eq!(runtime.block_on(funded).unwrap(), Err(WaitError::Expired));
        super::nothing_is_left(&accounts.waits);
    });
}

#[test]
fn a_client_that_goes_leaves_nothing() {
    let (_timer, accounts) = accounts();
    drop(accounts.funded(1, 50));
    super::nothing_is_left(&accounts.waits);
    accounts.pay(&[(1, 50)]);
}

#[test]
fn a_shutdown_ends_waits_and_payments_go_on() {
    let (_timer, accounts) = accounts();
    let mut funded = accounts.funded(1, 50);
    accounts.waits.shutdown(SECOND);
    assert_eq!(poll(&mut funded), Err(SHUTDOWN).into());
    assert_eq!(poll(&mut accounts.funded(1, 50)), Err(CLOSED).into());
    accounts.pay(&[(1, 50)]);
    assert_eq!(poll(&mut accounts.funded(1, 50)), Ok(50).into());
}

/// Threads that pay at once: each wait ends when its account has enough.
#[test]
fn of_many_payments_none_is_missed() {
    const PAYMENTS: u64 = 1000;
    let (_timer, accounts) = accounts();
    let seen = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..PAYMENTS).for_each(|_| accounts.pay(&[(1, 1), (2, 1)])));
        }
        for account in [1, 2] {
            let (accounts, seen) = (&accounts, &seen);
            scope.spawn(move || {
                for amount in 1..=2 * PAYMENTS {
                    let balance = accounts.funded(account, amount).wait_blocking().unwrap();
                    assert!(balance >= amount);
                }
                seen.lock().unwrap().push(account);
            });
        }
    });
    assert_eq!(seen.into_inner().unwrap().len(), 2);
    super::nothing_is_left(&accounts.waits);
}
