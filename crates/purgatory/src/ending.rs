//! Endings: the one way out, whoever found it; expiry by the timer; and closing.
//!
//! An operation *departs* under its home's lock: the entry leaves the wheel, the outcome is decided.
//! Then, with nothing locked, its watches are released and its callback is told: here, or where the
//! timer runs what expired.

use std::{
    hash::Hash,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use timer_core::{Job, TimerHandle, Turn, Turns, WheelTally, contain};

use crate::{
    entry::{Claim, Entry, Tickets},
    frame::{Frame, enqueue},
    inner::{HomeGuard, Inner},
    operation::{CancelReason, DelayedOperation, Outcome},
    sync::planted,
    trace,
    watch::Ticket,
};

/// Operations handed over, or emptied out, under one lock hold.
const BUDGET: usize = 256;

/// An operation that has departed.
pub(crate) struct Ended<O> {
    id: TimerHandle,
    payload: O,
    pub(crate) outcome: Outcome,
    tickets: Tickets,
}

impl<K, O> Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Takes an entry whose payload is out for good off its home.
    #[inline(always)]
    pub(crate) fn depart(
        &self,
        home: &mut HomeGuard<'_, O>,
        id: TimerHandle,
        payload: O,
        outcome: Outcome,
    ) -> Ended<O> {
        if home.state.timed.as_mut().is_some_and(|timed| timed.is_timed(&outcome)) {
            self.time(home, id, &outcome);
        }
        let tickets = home.remove(id).map(Entry::into_tickets).unwrap_or_default();
        home.state.departed(tickets.as_slice().len(), &outcome);
        Ended { id, payload, outcome, tickets }
    }

    /// Ends what has departed: out of every watch list, then told.
    #[inline]
    pub(crate) fn finish(self: &Arc<Self>, frame: &Frame<'_>, ended: Ended<O>) {
        self.release(ended.id, ended.tickets.as_slice());
        self.release_permits(1);
        self.tell(frame, ended.payload, ended.outcome);
    }

    /// Gives watch slots back; a key nobody waits for any more is dropped with nothing locked.
    #[inline]
    pub(crate) fn release(&self, id: TimerHandle, tickets: &[Ticket]) {
        for &ticket in tickets {
            let key = self.watches.unwatch(ticket, id);
            if std::mem::needs_drop::<K>() {
                let _ = contain(|| drop(key));
            }
        }
    }

    /// Calls `on_complete`: here, or where the timer runs what expired.
    #[inline]
    pub(crate) fn tell(self: &Arc<Self>, frame: &Frame<'_>, payload: O, outcome: Outcome) {
        if self.all_elsewhere || matches!(outcome, Outcome::Expired) {
            self.tell_elsewhere(vec![payload], outcome);
        } else {
            self.tell_here(frame, payload, outcome);
        }
    }

    fn tell_elsewhere(self: &Arc<Self>, payloads: Vec<O>, outcome: Outcome) {
        let inner = self.clone();
        self.counts.callbacks_waiting.fetch_add(payloads.len() as u64, Relaxed);
        self.elsewhere.execute(Job::new(move || {
            for payload in payloads {
                inner.counts.callbacks_waiting.fetch_sub(1, Relaxed);
                let outcome = outcome.clone();
                trace::slow(&inner, || {
                    inner.tell_here(&Frame::enter(&inner.elsewhere), payload, outcome)
                });
            }
        }));
    }

    #[inline]
    fn tell_here(self: &Arc<Self>, frame: &Frame<'_>, payload: O, outcome: Outcome) {
        if frame.is_nested() {
            let inner = self.clone();
            enqueue(move || inner.call(payload, outcome));
        } else {
            self.call(payload, outcome);
        }
    }

    /// Calls `on_complete`, inside a frame, with nothing locked.
    #[inline]
    fn call(&self, payload: O, outcome: Outcome) {
        if let Err(panicked) = contain(|| payload.on_complete(outcome)) {
            self.report(&panicked);
        }
    }

    /// Ends everything parked as Cancelled and refuses what comes later, a bounded step at a time.
    pub(crate) fn close(self: &Arc<Self>) {
        let frame = Frame::enter(&self.elsewhere);
        let mut cancelled = 0;
        for shard in 0..self.homes.count() {
            let mut from = Some(0);
            while let Some(start) = from {
                let mut ended = Vec::new();
                from = self.close_some(shard, start, &mut ended);
                cancelled += ended.len();
                ended.into_iter().for_each(|ended| self.finish(&frame, ended));
            }
        }
        trace::closed(&**self, cancelled);
    }

    /// Empties up to [`BUDGET`] entries of a shard; returns where to go on.
    fn close_some(&self, shard: usize, mut from: u32, ended: &mut Vec<Ended<O>>) -> Option<u32> {
        let mut home = self.homes.lock(shard);
        home.state.closed = !planted("shutdown closes no shard");
        for _ in 0..BUDGET {
            let id = home.first_from(from)?;
            from = id.id().index() + 1;
            let claim = home.get_mut(id)?.claim(Outcome::Cancelled(CancelReason::Shutdown));
            if let Claim::Ended(payload, outcome) = claim {
                ended.push(self.depart(&mut home, id, payload, outcome));
            }
        }
        Some(from)
    }
}

impl<K, O> Turns for Inner<K, O>
where
    K: Hash + Eq + Clone + Send + 'static,
    O: DelayedOperation,
{
    /// Expiry: what nobody holds departs; a holder is left a note.
    fn turn(self: Arc<Self>, shard: usize, now: u64) -> Turn {
        let (now_ns, tick) = (self.driver().now_ns(), self.driver().tick());
        let turned = self.homes.turn(shard, now, BUDGET, |id, mut due, home| {
            match due.get_mut().claim(Outcome::Expired) {
                Claim::Noted => {
                    if planted("an expiry removes what is held") {
                        due.take();
                    }
                    None
                }
                Claim::Ended(payload, outcome) => {
                    if let Some(timed) = &mut home.timed {
                        let late_ns = now_ns.saturating_sub(tick.start_ns(due.deadline()));
                        timed.ended(&outcome, due.get_mut().age_us(now_ns / 1000), late_ns);
                    }
                    let tickets = due.take().into_tickets();
                    home.departed(tickets.as_slice().len(), &outcome);
                    Some((id, tickets, payload))
                }
            }
        });
        if !turned.due.is_empty() {
            let released = turned.due.into_iter().map(|(id, tickets, payload)| {
                self.release(id, tickets.as_slice());
                payload
            });
            let payloads: Vec<O> = released.collect();
            self.release_permits(payloads.len());
            self.tell_elsewhere(payloads, Outcome::Expired);
        }
        turned.turn
    }

    fn tally(&self, now: u64, tally: &mut WheelTally) {
        self.homes.tally(now, tally);
    }

    fn next_due(&self, shard: usize) -> Option<u64> {
        self.homes.lock(shard).wheel().next_due()
    }

    fn timer_closed(self: Arc<Self>) {
        self.close();
    }
}
