//! The best replies that we could write by hand: one lock over a map of slots. A slot has the waker
//! of the task that awaits the reply, then the reply. A request that ends leaves nothing behind.
//!
//! Its limits: all threads share one lock, so two of them contend. With tokio's `timeout` each
//! request has a timer. With a sweep a request ends up to 100 ms late, and each sweep walks the
//! whole map with the lock held. There is no bound, no shutdown, no count and no name for a late
//! reply.

use std::{
    collections::{HashMap, hash_map::Entry},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::{arena::TIMEOUT, replies::Asks};
use crate::{contender::Peer, sweep};

type Map<D> = Mutex<HashMap<u64, Slot<D>, RandomState>>;

/// Slots by number. The deadline `D` of a slot is an [`Instant`] for a sweep, or `()`.
pub(super) struct Slots<D>(Arc<Map<D>>);

struct Slot<D> {
    state: State,
    deadline: D,
}

enum State {
    /// The waker is present once the request was polled.
    Waiting(Option<Waker>),
    Replied(u64),
}

/// A request with a slot. Yields the reply, or `None` after a sweep has removed its slot.
struct Registered<'a, D> {
    map: &'a Map<D>,
    number: u64,
    ended: bool,
}

impl<D> Slots<D> {
    /// Makes a slot for a number that has none.
    fn register(&self, number: u64, deadline: D) -> Registered<'_, D> {
        let state = State::Waiting(None);
        let before = self.0.lock().insert(number, Slot { state, deadline });
        assert!(before.is_none(), "a number is expected once");
        Registered {
            map: &self.0,
            number,
            ended: false,
        }
    }

    /// Puts a reply into its slot; false when no request waits for it.
    fn reply(&self, number: u64, reply: u64) -> bool {
        let waker = match self.0.lock().get_mut(&number) {
            Some(slot) => match std::mem::replace(&mut slot.state, State::Replied(reply)) {
                State::Waiting(waker) => waker,
                earlier => {
                    slot.state = earlier;
                    return false;
                }
            },
            None => return false,
        };
        // Wake without the lock.
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}

impl<D> Future for Registered<'_, D> {
    type Output = Option<u64>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        // A waker's drop may run other code, so it waits until the lock is released.
        let _replaced;
        let mut map = self.map.lock();
        let reply = match map.entry(self.number) {
            Entry::Vacant(_) => None,
            Entry::Occupied(mut slot) => match &mut slot.get_mut().state {
                State::Waiting(waker) => {
                    _replaced = waker.replace(context.waker().clone());
                    return Poll::Pending;
                }
                State::Replied(reply) => {
                    let reply = *reply;
                    slot.remove();
                    Some(reply)
                }
            },
        };
        drop(map);
        self.ended = true;
        Poll::Ready(reply)
    }
}

impl<D> Registered<'_, D> {
    /// Removes the slot; returns the reply in it, if any.
    fn give_up(&mut self) -> Option<u64> {
        if self.ended {
            return None;
        }
        self.ended = true;
        let slot = self.map.lock().remove(&self.number)?;
        match slot.state {
            State::Waiting(_) => None,
            State::Replied(reply) => Some(reply),
        }
    }
}

impl<D> Drop for Registered<'_, D> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Peer for Slots<()> {
    const NAME: &'static str = "slots-timeout";

    fn start() -> anyhow::Result<Self> {
        Ok(Slots(Arc::default()))
    }

    fn remaining(&self) -> usize {
        self.0.lock().len()
    }
}

impl Asks for Slots<()> {
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let mut registered = self.register(number, ());
        async move {
            match timeout(TIMEOUT, &mut registered).await {
                Ok(reply) => reply,
                // The reply may have come since the last poll.
                Err(_) => registered.give_up(),
            }
        }
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.reply(number, reply)
    }
}

impl Peer for Slots<Instant> {
    const NAME: &'static str = "slots-sweep";

    fn start() -> anyhow::Result<Self> {
        let map = Arc::default();
        sweep::start(&map, |map| remove_expired(map, Instant::now()));
        Ok(Slots(map))
    }

    fn remaining(&self) -> usize {
        self.0.lock().len()
    }
}

impl Asks for Slots<Instant> {
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        self.register(number, Instant::now() + TIMEOUT)
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.reply(number, reply)
    }
}

/// Removes the slots that have no reply at their deadline, and wakes their tasks.
fn remove_expired(map: &Map<Instant>, now: Instant) {
    let is_expired = |_: &u64, slot: &mut Slot<Instant>| {
        matches!(slot.state, State::Waiting(_)) && slot.deadline <= now
    };
    let expired: Vec<_> = map.lock().extract_if(is_expired).collect();
    // Wake without the lock.
    for (_, slot) in expired {
        if let State::Waiting(Some(waker)) = slot.state {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use super::*;

    #[test]
    fn a_reply_that_comes_as_time_runs_out_is_not_lost() {
        let slots = Slots::<()>(Arc::default());
        let mut registered = slots.register(7, ());
        assert!(slots.reply(7, 1));
        assert_eq!(registered.give_up(), Some(1));
        assert_eq!(slots.remaining(), 0);
    }

    #[test]
    fn a_dropped_request_leaves_nothing() {
        let slots = Slots::<()>(Arc::default());
        let mut registered = slots.register(7, ());
        let poll = pin!(&mut registered).poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll.is_pending());
        drop(registered);
        assert_eq!(slots.remaining(), 0);
        assert!(!slots.reply(7, 1), "no request waits");
    }

    #[test]
    fn a_sweep_takes_what_has_no_reply_at_its_deadline() {
        let slots = Slots::<Instant>(Arc::default());
        let now = Instant::now();
        let late = now + Duration::from_nanos(1);
        let mut requests: Vec<_> = [(1, now), (2, now), (3, late)]
            .map(|(number, deadline)| slots.register(number, deadline))
            .into();
        assert!(slots.reply(2, 20));
        remove_expired(&slots.0, now);

        let mut context = Context::from_waker(Waker::noop());
        let mut polls = requests
            .iter_mut()
            .map(|request| pin!(request).poll(&mut context));
        assert_eq!(polls.next(), Some(Poll::Ready(None)));
        assert_eq!(polls.next(), Some(Poll::Ready(Some(20))));
        assert_eq!(polls.next(), Some(Poll::Pending));
    }
}
