//! Expiry: what the timer finds due ends. Or it is checked once more, if the purgatory was built
//! so.
//!
//! *The last check* is the executor's, since neither the timer's thread nor anybody else is to wait
//! for it. Until then the entry is held, with its end noted as Expired, so nothing but that check
//! changes how the operation ends. Whether one that came true was a missed event is told by what
//! happened meanwhile: see [`missed`](super::missed).

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use timer_core::{
    Advanced, Job, TimerHandle,
    driver::{Ran, WheelCounts, WheelOwner, contain},
};

use crate::{
    paths::{
        callbacks::{BUDGET, Permit},
        core::Core,
        missed::LastChecks,
        trace,
        trampoline::{Call, enqueue},
        versions::KeyVersion,
    },
    room::{CheckedOut, GivenBack, Ticket},
    words::{
        check::Verdict,
        missed::MissedEvent,
        operation::{CancelReason, DelayedOperation},
        watches::WatchKey,
    },
};

type KeyVersions = SmallVec<[KeyVersion; 4]>;

impl<K, O> Core<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    fn offload_last_checks(self: &Arc<Self>, all: Vec<CheckedOut<O>>) {
        let (core, handed) = (self.clone(), self.to_executor(all.len()));
        self.offload.execute(Job::told(move |ran| {
            for held in all {
                core.begin(handed);
                let now_ns = || core.driver().now_ns();
                trace::slow(&core.name, now_ns, || core.last_check_in_call(held, ran));
            }
        }));
    }

    fn last_check_in_call(self: &Arc<Self>, held: CheckedOut<O>, ran: Ran) {
        let call = Call::enter(&self.offload);
        if call.is_nested() {
            let core = self.clone();
            enqueue(move || core.last_check(&Call::enter(&core.offload), held, ran));
        } else {
            self.last_check(&call, held, ran);
        }
    }

    /// Checks an operation whose time is up, and ends it. One whose job was dropped is not checked.
    fn last_check(self: &Arc<Self>, call: &Call<'_>, mut held: CheckedOut<O>, ran: Ran) {
        let id = held.id;
        let (given_back, missed) = match (&self.last_checks, ran) {
            (Some(last_checks), Ran::AsAsked) => {
                let quiet = self.quiet(last_checks, id);
                held.verdict = self.check(&mut held.payload);
                let missed = match (held.verdict, quiet) {
                    (Verdict::Satisfied, Some(read)) => self.missed(last_checks, id, &read),
                    _ => None,
                };
                let mut first_room = self.first_room_of(id);
                let noted = first_room.get_mut(id).is_none_or(|entry| entry.event_noted());
                let given_back = first_room.give_back(held);
                drop(first_room);
                (given_back, missed.filter(|_| !noted || failpoint!(MissIgnoresNotes)))
            }
            _ => (self.first_room_of(id).give_back_unchecked(held), None),
        };
        if let (Some(last_checks), Some((missed, read))) = (&self.last_checks, missed)
            && self.still_quiet(last_checks, &read)
        {
            last_checks.report_missed(&self.name, &missed, |panicked| self.report(panicked));
        }
        if let GivenBack::Ended(ended) = given_back {
            let (payload, outcome) = self.release_watches(ended);
            self.run_callback_here(call, payload, outcome, Permit::Held);
        }
    }

    /// The versions of an operation's keys, unless there is an event under way on one of them.
    fn quiet(&self, last_checks: &LastChecks<K, O>, id: TimerHandle) -> Option<KeyVersions> {
        let mut first_room = self.first_room_of(id);
        let tickets: SmallVec<[Ticket; 4]> = first_room.get_mut(id)?.tickets().iter().collect();
        let first = first_room.first_hash(id);
        drop(first_room);
        let further = tickets
            .iter()
            .filter_map(|&ticket| self.rooms.lock(ticket.room as usize).further_hash(ticket, id));
        let hashes: SmallVec<[u64; 4]> = first.into_iter().chain(further).collect();
        if hashes.is_empty() {
            return None; // a rise has just met its last one
        }
        hashes.iter().map(|&hash| last_checks.quiet(&self.versions, hash)).collect()
    }

    /// True when no event has come since the versions were read, and none is known to be on its
    /// way.
    fn still_quiet(&self, last_checks: &LastChecks<K, O>, read: &KeyVersions) -> bool {
        last_checks.nothing_announced()
            && self.deferred_len() == 0
            && !read.iter().any(|&version| self.versions.has_moved(version))
    }

    /// What there is to tell of a condition that came true unnoticed, while its watches are still
    /// there.
    #[cold]
    fn missed(
        &self,
        last_checks: &LastChecks<K, O>,
        id: TimerHandle,
        read: &KeyVersions,
    ) -> Option<(MissedEvent<K>, KeyVersions)> {
        if !self.still_quiet(last_checks, read) {
            return None;
        }
        let now_us = self.driver().now_ns() / 1000;
        let (mut keys, mut age_us) = (Vec::new(), 0);
        let cloned = contain(|| {
            let mut first_room = self.first_room_of(id);
            let Some(entry) = first_room.get_mut(id) else { return };
            age_us = entry.age_us(now_us);
            let tickets: SmallVec<[Ticket; 4]> = entry.tickets().iter().collect();
            keys.extend(first_room.first_key(id));
            drop(first_room);
            keys.extend(tickets.iter().filter_map(|&ticket| self.key_of(ticket, id)));
        });
        self.report_if(cloned); // a panic of the key's Clone: told with the keys there are
        let waited = Duration::from_micros(age_us);
        Some((MissedEvent { id: self.id(id), keys, waited }, read.clone()))
    }

    /// The key a ticket is for, unless it was taken. Runs the key's `Clone` under the lock.
    pub(crate) fn key_of(&self, ticket: Ticket, id: TimerHandle) -> Option<K> {
        self.rooms.lock(ticket.room as usize).further_key(ticket, id)
    }
}

impl<K, O> WheelOwner for Core<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    fn advance(&self, room: usize, now: u64) -> Advanced {
        let (now_ns, tick, in_order) =
            (self.driver().now_ns(), self.driver().tick, self.sequence.is_some());
        let budget = if in_order { usize::MAX } else { BUDGET }; // order needs the whole tick
        if let Some(last_checks) = &self.last_checks {
            let mut due = last_checks.due.lock();
            let mut room = self.rooms.lock(room);
            let turn = room.check_out_expired(now, budget, |held, order| {
                due.push(held, in_order.then_some(order));
            });
            room.advanced(turn.next_due);
            return turn;
        }
        let mut expired = self.expired.lock();
        let mut room = self.rooms.lock(room);
        let turn = room.expire(now, now_ns, tick, budget, |ended, order| {
            expired.push(ended, in_order.then_some(order));
        });
        room.advanced(turn.next_due);
        turn
    }

    fn round_over(self: Arc<Self>) {
        let parallelism = self.offload.parallelism();
        if let Some(last_checks) = &self.last_checks {
            let due = std::mem::take(&mut *last_checks.due.lock());
            due.into_jobs(parallelism).for_each(|held| self.offload_last_checks(held));
        }
        let expired = std::mem::take(&mut *self.expired.lock());
        for ended in expired.into_jobs(parallelism) {
            self.offload_endings(ended, None);
        }
        let driver = self.offload.driver.clone();
        if let Some(core) = Arc::into_inner(self) {
            // The last handle went meanwhile. An executor or a hook is the user's to drop: not
            // here.
            driver.execute(Job::new(move || drop(core)));
        }
    }

    fn counts(&self) -> WheelCounts {
        self.rooms.counts()
    }

    fn next_due(&self, room: usize) -> Option<u64> {
        self.rooms.lock(room).next_due()
    }

    fn timer_closed(self: Arc<Self>) {
        if self.driver().inline {
            self.close(CancelReason::Shutdown);
        } else {
            self.close_offloading(CancelReason::Shutdown);
        }
    }
}
