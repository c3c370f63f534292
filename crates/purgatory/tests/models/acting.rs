//! The parts that the models' worlds share: the record of events, the futures and ids of waits, a
//! task that acts when it is woken, and the loop over cases.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says what it did"
)]

use std::{
    collections::BTreeMap,
    panic::{RefUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use crate::effort::{effort, number};

/// A future that a model polls.
pub(crate) trait Polled {
    type End;

    /// Polls the future; returns its end, unless it is pending.
    fn poll(&mut self, waker: &Waker) -> Option<Self::End>;
}

/// A world's record and its waits. Waits are numbered in the order in which they come.
pub(crate) struct Acting<S, F: Polled, I> {
    log: Mutex<Vec<S>>,
    /// Futures that have not ended and were not dropped.
    futures: Mutex<BTreeMap<usize, (F, Waker)>>,
    /// The ends of futures that no call has taken yet.
    ends: Mutex<Vec<(usize, F::End)>>,
    /// The id of each wait; `None` if it was not parked.
    ids: Mutex<Vec<Option<I>>>,
}

impl<S, F: Polled, I> Default for Acting<S, F, I> {
    fn default() -> Self {
        Acting {
            log: Mutex::default(),
            futures: Mutex::default(),
            ends: Mutex::default(),
            ids: Mutex::default(),
        }
    }
}

impl<S, F: Polled, I: Copy> Acting<S, F, I> {
    pub(crate) fn saw(&self, saw: S) {
        self.log.lock().unwrap().push(saw);
    }

    pub(crate) fn take_log(&self) -> Vec<S> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Numbers a new wait.
    pub(crate) fn begin(&self) -> usize {
        let mut ids = self.ids.lock().unwrap();
        ids.push(None);
        ids.len() - 1
    }

    pub(crate) fn named(&self, number: usize, id: Option<I>) {
        self.ids.lock().unwrap()[number] = id;
    }

    /// Returns the number of a wait, counted back from the latest.
    fn back(&self, back: usize) -> Option<usize> {
        self.ids.lock().unwrap().len().checked_sub(back + 1)
    }

    pub(crate) fn id(&self, back: usize) -> Option<I> {
        let number = self.back(back)?;
        self.ids.lock().unwrap()[number]
    }

    /// Drops the future of a wait, counted back from the latest.
    pub(crate) fn drop_future(&self, back: usize) {
        let number = self.back(back);
        let removed = number.and_then(|number| self.futures.lock().unwrap().remove(&number));
        drop(removed); // with nothing locked
    }

    /// Polls a future, and keeps it if it is pending. Returns true if it is over.
    pub(crate) fn poll(&self, number: usize, mut future: F, waker: Waker) -> bool {
        match future.poll(&waker) {
            Some(end) => {
                self.ends.lock().unwrap().push((number, end));
                true
            }
            None => {
                self.futures.lock().unwrap().insert(number, (future, waker));
                false
            }
        }
    }

    /// Polls all futures, and returns the ends of those that have ended since the last call.
    pub(crate) fn poll_all(&self) -> Vec<(usize, F::End)> {
        let futures = std::mem::take(&mut *self.futures.lock().unwrap());
        for (number, (future, waker)) in futures {
            self.poll(number, future, waker);
        }
        std::mem::take(&mut *self.ends.lock().unwrap())
    }
}

/// Polls a future; returns its end, unless it is pending.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(end) => Some(end),
        Poll::Pending => None,
    }
}

struct Task<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Task<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Returns the waker of a task that does this when it is woken.
pub(crate) fn task(woken: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Task(woken)))
}

/// Runs cases, each with its own seed, until they have made `base` steps times `TEST_EFFORT`. The
/// first seed is `MODEL_SEED`.
pub(crate) fn run_cases(
    name: &str,
    base: u64,
    steps_a_case: u64,
    case: impl Fn(u64) + RefUnwindSafe,
) {
    let mut made = 0;
    let mut seed = number("MODEL_SEED").unwrap_or(0);
    while made < effort(base) {
        catch_unwind(|| case(seed)).unwrap_or_else(|panic| {
            eprintln!("MODEL_SEED={seed} fails alike at once");
            resume_unwind(panic)
        });
        made += steps_a_case;
        seed += 1;
    }
    println!("{made} steps of {name}");
}
