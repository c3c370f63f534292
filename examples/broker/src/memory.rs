//! The memory that requests, or responses, may take over all connections: a budget in bytes.
//!
//! A connection takes memory before it fills it, waits if there is none left, in the order of
//! asking, and gives it back by dropping its [`Share`]. A share may hold some and wait for more.
//! Nobody waits for ever:
//! - Each connection has [`OWN_BYTES`] beside the budget, so what is small does not wait.
//! - With the budget used up one share may go beyond it, and then the next: so of those that each
//!   hold a part of what they need, one can always go on.
//! - A connection that is cut off waits no longer.
//!
//! So all together have the budget, one share more, and [`OWN_BYTES`] for each connection. No share
//! has more than the whole budget.

use std::{io, sync::Arc};

use anyhow::{Result, ensure};
use tokio::{runtime, select, sync::OwnedSemaphorePermit, sync::Semaphore};

/// What each connection has of its own.
pub(crate) const OWN_BYTES: usize = 32 << 10;

pub(crate) struct Memory {
    bytes_max: usize,
    left: Arc<Semaphore>,
    /// For the one share that goes beyond.
    beyond: Arc<Semaphore>,
}

/// What one connection may take.
pub(crate) struct Account {
    pub(crate) connection: u64,
    own: Arc<Semaphore>,
    /// Closed when the connection is cut off.
    cut: Semaphore,
    memory: Arc<Memory>,
}

/// Memory that a connection holds, given back on drop.
pub(crate) struct Share {
    account: Arc<Account>,
    pub(crate) bytes: usize,
    permits: Vec<OwnedSemaphorePermit>,
    beyond: bool,
}

impl Memory {
    pub(crate) fn new(bytes_max: usize) -> Arc<Memory> {
        let bytes_max = bytes_max.min(Semaphore::MAX_PERMITS);
        let [left, beyond] = [bytes_max, 1].map(|permits| Arc::new(Semaphore::new(permits)));
        Arc::new(Memory { bytes_max, left, beyond })
    }

    pub(crate) fn account(self: &Arc<Self>, connection: u64) -> Arc<Account> {
        let (own, cut) = (Arc::new(Semaphore::new(OWN_BYTES)), Semaphore::new(0));
        Arc::new(Account { connection, own, cut, memory: Arc::clone(self) })
    }
}

impl Account {
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { account: Arc::clone(self), bytes: 0, permits: Vec::new(), beyond: false }
    }

    /// It waits no longer, now and later.
    pub(crate) fn cut(&self) {
        self.cut.close();
    }
}

impl Share {
    /// Takes more, after waiting for it. An error when the connection is cut off, or when the share
    /// would be more than the whole budget.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        let Account { own, cut, memory, .. } = &*self.account;
        let left = || Arc::clone(&memory.left);
        self.bytes += bytes;
        ensure!(self.bytes <= memory.bytes_max, "more than the memory: {}", memory.bytes_max);
        if self.beyond {
            return Ok(());
        }
        let permits = u32::try_from(bytes)?;
        let at_once = Arc::clone(own).try_acquire_many_owned(permits);
        let permit = match at_once.or_else(|_| left().try_acquire_many_owned(permits)) {
            Ok(permit) => Ok(permit),
            Err(_) => runtime::Builder::new_current_thread().build()?.block_on(async {
                select! {
                    biased;
                    permit = left().acquire_many_owned(permits) => permit,
                    permit = Arc::clone(&memory.beyond).acquire_owned() => {
                        permit.inspect(|_| self.beyond = true)
                    }
                    Err(closed) = cut.acquire() => Err(closed),
                }
            }),
        };
        let cut_off = |_| io::Error::new(io::ErrorKind::TimedOut, "cut off, waiting for memory");
        self.permits.push(permit.map_err(cut_off)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::{pin::pin, thread};

    use super::*;
    use crate::tests::tcp::wait_until;

    impl Memory {
        /// Whether a share is beyond the budget.
        pub(crate) fn is_exceeded(&self) -> bool {
            self.beyond.available_permits() == 0
        }

        /// Whether a connection waits (or is about to), with the two shares of the test.
        pub(crate) fn is_waited_for(&self) -> bool {
            Arc::strong_count(&self.beyond) > 2
        }

        /// How many bytes of the budget are not left.
        pub(crate) fn taken(&self) -> usize {
            self.bytes_max - self.left.available_permits()
        }
    }

    /// What a connection has of its own is used up.
    fn account(memory: &Arc<Memory>, connection: u64) -> Arc<Account> {
        let account = memory.account(connection);
        Arc::clone(&account.own).try_acquire_many_owned(OWN_BYTES as u32).unwrap().forget();
        account
    }

    fn share(memory: &Arc<Memory>, bytes: usize) -> Share {
        let mut share = account(memory, 0).share();
        share.take(bytes).unwrap();
        share
    }

    #[test]
    fn what_is_small_does_not_wait_and_no_share_is_larger_than_the_budget() {
        let memory = Memory::new(OWN_BYTES);
        let (_all, _beyond) = (share(&memory, OWN_BYTES), share(&memory, 1));
        let own = memory.account(1);
        let (mut small, mut large) = (own.share(), own.share());
        small.take(OWN_BYTES).unwrap();
        assert!(large.take(OWN_BYTES + 1).unwrap_err().to_string().starts_with("more than"));
        drop(small);
        own.share().take(OWN_BYTES).unwrap();
        assert_eq!(memory.taken(), OWN_BYTES);
    }

    #[test]
    fn one_share_goes_beyond_the_budget_and_the_next_waits_until_memory_is_given_back() {
        for beyond_ends in [false, true] {
            let memory = Memory::new(100);
            let (half, other) = (share(&memory, 50), share(&memory, 50));
            let mut beyond = share(&memory, 60);
            let none_waits = Arc::strong_count(&memory.left);
            beyond.take(40).unwrap();
            assert!(beyond.take(1).is_err(), "more than the budget");
            thread::scope(|scope| {
                let waits = scope.spawn(|| share(&memory, 50));
                wait_until(|| Arc::strong_count(&memory.left) > none_waits);
                assert!(!waits.is_finished());
                drop(if beyond_ends { beyond } else { other });
                let share = waits.join().unwrap();
                assert_eq!((share.bytes, share.beyond), (50, beyond_ends));
            });
            drop(half);
        }
    }

    #[test]
    fn who_waits_longest_is_first_though_less_would_do_for_another() {
        let memory = Memory::new(100);
        let (half, other, _beyond) = (share(&memory, 50), share(&memory, 50), share(&memory, 1));
        let mut first = pin!(Arc::clone(&memory.left).acquire_many_owned(100));
        let mut poll = || first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!poll());
        drop(half);
        assert!(memory.left.try_acquire_many(10).is_err() && !poll());
        drop(other);
        assert!(poll());
    }
}
