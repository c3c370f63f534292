//! An arena: a contender in which requests are parked, and rounds of operations on it.

use std::{sync::atomic::Ordering, thread};

use anyhow::ensure;
use fastrand::Rng;
use purgatory_benches::process_cpu_ns;

use crate::{
    By, Row, Sizes, Stop,
    contenders::Waits,
    request::{Owner, Request},
};

/// The number of operations after which a thread looks whether it is to stop.
const STOP_EVERY: u32 = 1024;

/// A contender, round by round.
pub(crate) trait Rounds {
    /// Makes one round's operations; returns the processor time of each in nanoseconds.
    ///
    /// # Errors
    /// When a request was lost, doubled or given up.
    fn round(&mut self, stop: &Stop) -> anyhow::Result<f64>;
}

/// A contender with parked requests.
pub(crate) struct Arena<W: Waits> {
    members: Vec<Member<W>>,
    waits: W,
    row: Row,
    sizes: Sizes,
}

/// One thread's requests.
struct Member<W: Waits> {
    owner: &'static Owner,
    random: Rng,
    parked: Vec<Parked<W::Id>>,
}

/// A parked request.
struct Parked<I> {
    id: I,
    keys: [u32; 3],
}

impl<W: Waits> Arena<W> {
    /// Parks the requests of all threads.
    pub(crate) fn open(waits: W, row: Row, sizes: Sizes, stop: &Stop) -> anyhow::Result<Self> {
        let mut members = Vec::new();
        let entered = waits.enter();
        for thread in 0..row.threads {
            let mut member = Member {
                owner: Owner::leaked(),
                random: Rng::with_seed(thread as u64),
                parked: Vec::new(),
            };
            // Each thread has its share.
            let share = sizes.parked / row.threads as u32;
            for number in 0..share {
                if number % STOP_EVERY == 0 && stop.load(Ordering::Relaxed) {
                    break;
                }
                let parked = member.park(&waits, number, row, sizes)?;
                member.parked.push(parked);
            }
            members.push(member);
        }
        drop(entered);
        Ok(Arena {
            members,
            waits,
            row,
            sizes,
        })
    }
}

impl<W: Waits> Rounds for Arena<W> {
    fn round(&mut self, stop: &Stop) -> anyhow::Result<f64> {
        let Arena {
            members,
            waits,
            row,
            sizes,
        } = self;
        let waits = &*waits;
        let share = sizes.operations / row.threads as u32;
        let waiting = waits.len();

        // Start all before the first is joined.
        let begin_ns = process_cpu_ns();
        let ended = thread::scope(|scope| {
            let work = |member| scope.spawn(|| work(member, waits, *row, *sizes, stop));
            let threads: Vec<_> = members.iter_mut().map(work).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.collect::<Result<Vec<_>, _>>()
        });
        let spent_ns = process_cpu_ns() - begin_ns;

        // Each completed operation was parked again.
        for ended in ended.map_err(|_| anyhow::anyhow!("a thread panicked"))? {
            ended?;
        }
        let waits_now = waits.len();
        ensure!(waits_now == waiting, "{waits_now} wait, and {waiting} did");
        Ok(spent_ns as f64 / (share as usize * row.threads) as f64)
    }
}

/// One thread's operations of a round.
fn work<W: Waits>(
    member: &mut Member<W>,
    waits: &W,
    row: Row,
    sizes: Sizes,
    stop: &Stop,
) -> anyhow::Result<()> {
    let _entered = waits.enter();
    for operation in 0..sizes.operations / row.threads as u32 {
        if operation % STOP_EVERY == 0 && stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let number = member.random.u32(0..member.parked.len() as u32);
        member.complete(waits, number, row, stop)?;
        member.parked[number as usize] = member.park(waits, number, row, sizes)?;
    }
    Ok(())
}

impl<W: Waits> Member<W> {
    /// Parks a request under random keys.
    fn park(
        &mut self,
        waits: &W,
        number: u32,
        row: Row,
        sizes: Sizes,
    ) -> anyhow::Result<Parked<W::Id>> {
        let keys = std::array::from_fn(|_| self.random.u32(0..sizes.keys));
        let request = Request {
            owner: self.owner,
            number,
        };
        let id = waits.park(request, &keys[..row.keys])?;
        Ok(Parked { id, keys })
    }

    /// Completes a request, and waits until it has ended: the other thread may be checking it.
    fn complete(&mut self, waits: &W, number: u32, row: Row, stop: &Stop) -> anyhow::Result<()> {
        let completed = self.owner.completed() + 1;
        let parked = &self.parked[number as usize];
        match row.by {
            By::Id => waits.complete(&parked.id),
            By::Event => {
                self.owner.make_ready(number);
                waits.signal(parked.keys[self.random.usize(0..row.keys)]);
            }
        }
        while self.owner.completed() < completed {
            ensure!(
                !stop.load(Ordering::Relaxed),
                "stopped while {number} had not ended"
            );
            thread::yield_now();
        }
        self.owner.make_none_ready();
        // It ended once, and no other did.
        let given_up = self.owner.given_up();
        ensure!(given_up == 0, "{given_up} were given up");
        let more = self.owner.completed() - completed;
        ensure!(more == 0, "{more} more were completed");
        Ok(())
    }
}
