//! The real purgatory, and the units that its waits take.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use purgatory::{
    BoxedOperation, DelayedOperation, OperationId, Outcome, Purgatory, WaitError, WaitFuture,
    Watches,
};
use timer_core::ManualTimer;

use super::{KEYS, Kind, OnDrop, Signal};

pub(super) struct Shared {
    pub(super) waits: Purgatory<usize>,
    free: Mutex<[u64; KEYS]>,
    values: AtomicUsize,
    /// The waits whose condition panics when it is evaluated next.
    pub(super) panics: Mutex<BTreeSet<usize>>,
}

pub(super) struct World {
    pub(super) timer: ManualTimer,
    pub(super) shared: Arc<Shared>,
    /// The ids of all waits that were parked.
    pub(super) ids: Vec<Option<OperationId>>,
}

/// Units that a wait took. Of the next event they are none.
pub(super) struct Units {
    pub(super) count: u64,
    of: Option<(Arc<Shared>, Kind)>,
}

impl Drop for Units {
    fn drop(&mut self) {
        let Some((shared, kind)) = self.of.take() else {
            return;
        };
        shared.values.fetch_sub(1, Relaxed);
        if kind.on_drop != OnDrop::Loses {
            shared.add(kind.key, self.count);
        }
        match kind.on_drop {
            OnDrop::Signals => _ = shared.signal(kind.key, Signal::All),
            OnDrop::SignalsOne => _ = shared.signal(kind.key, Signal::One),
            OnDrop::Returns | OnDrop::Loses => {}
        }
    }
}

impl Shared {
    pub(super) fn free(&self, key: usize) -> u64 {
        self.free.lock().unwrap()[key]
    }

    pub(super) fn values(&self) -> usize {
        self.values.load(Relaxed)
    }

    pub(super) fn add(&self, key: usize, count: u64) {
        self.free.lock().unwrap()[key] += count;
    }

    pub(super) fn signal(&self, key: usize, signal: Signal) -> usize {
        match signal {
            Signal::All => self.waits.check_and_complete(&key),
            Signal::AllWith => self.waits.check_and_complete_with(&key, &"any"),
            Signal::One => usize::from(self.waits.check_and_complete_one(&key)),
        }
    }

    /// The condition of a wait.
    fn take(self: &Arc<Self>, number: usize, kind: Kind, count: u64) -> Option<Units> {
        if self.panics.lock().unwrap().remove(&number) {
            resume_unwind(Box::new("a condition")); // past the hook, which would print it
        }
        let mut free = self.free.lock().unwrap();
        free[kind.key] = free[kind.key].checked_sub(count)?;
        self.values.fetch_add(1, Relaxed);
        Some(Units {
            count,
            of: Some((self.clone(), kind)),
        })
    }
}

pub(super) enum Future {
    OfUnits(WaitFuture<Units>),
    OfEvent(WaitFuture<()>),
}

impl Future {
    pub(super) fn poll(&mut self) -> Option<Result<Units, WaitError>> {
        let mut context = Context::from_waker(Waker::noop());
        let polled = match self {
            Future::OfUnits(wait) => Pin::new(wait).poll(&mut context),
            Future::OfEvent(wait) => {
                let none = |end: Result<(), WaitError>| end.map(|()| Units { count: 0, of: None });
                Pin::new(wait).poll(&mut context).map(none)
            }
        };
        match polled {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }

    fn id(&self) -> Option<OperationId> {
        match self {
            Future::OfUnits(wait) => wait.id(),
            Future::OfEvent(wait) => wait.id(),
        }
    }

    pub(super) fn reschedule(&self, after: Duration) -> bool {
        match self {
            Future::OfUnits(wait) => wait.reschedule(after),
            Future::OfEvent(wait) => wait.reschedule(after),
        }
    }
}

/// An operation that was taken out.
pub(super) struct Detached(pub(super) BoxedOperation);

impl Detached {
    /// Completes, expires or drops it. A panic of its condition is the caller's.
    pub(super) fn end(self, how: u8) {
        let _ = catch_unwind(AssertUnwindSafe(|| match how {
            0 => self.0.on_complete(Outcome::Completed),
            1 => self.0.on_complete(Outcome::Expired),
            _ => drop(self.0),
        }));
    }
}

impl World {
    pub(super) fn new(max: Option<usize>, all_on_executor: bool) -> Self {
        let timer = ManualTimer::new();
        let mut builder = Purgatory::builder("turns").timer(&timer);
        if all_on_executor {
            builder = builder.callbacks_on_executor();
        }
        if let Some(max) = max {
            builder = builder.max_parked(max);
        }
        World {
            timer,
            shared: Arc::new(Shared {
                waits: builder.build().unwrap(),
                free: Mutex::default(),
                values: AtomicUsize::new(0),
                panics: Mutex::default(),
            }),
            ids: Vec::new(),
        }
    }

    pub(super) fn wait(&mut self, number: usize, kind: Kind, ms: u64) -> Future {
        let keys = [kind.key];
        let mut watches = Watches::keys(&keys);
        if kind.in_turn {
            watches = watches.in_turn();
        }
        let timeout = Duration::from_millis(ms);
        let shared = self.shared.clone();
        let future = match kind.takes {
            None => Future::OfEvent(self.shared.waits.next_event(watches, timeout)),
            Some(count) => {
                let take = move || shared.take(number, kind, count);
                Future::OfUnits(self.shared.waits.wait(watches, timeout, take))
            }
        };
        self.ids.push(future.id());
        future
    }
}
