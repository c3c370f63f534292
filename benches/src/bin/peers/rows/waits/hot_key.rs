//! `hot-key`: an event on a key for which 10 000 requests wait, none of them ready: until each was
//! looked at, and waits again. A future that is told by the event looks in a task of its own.
//!
//! The floor is to write to each request's memory.

use timer_core::{Clock, SystemClock};
use tokio::task::yield_now;

use super::{
    super::row::Run,
    room::{HOUR, Room, all_completed},
};
use crate::{
    floor,
    request::{Progress, Request},
    results::FLOOR,
    waits::{Contender, Visit, wait::Waits},
};

const KEY: u64 = 7;

pub(super) struct HotKey {
    pub(super) requests: usize,
    pub(super) events: usize,
}

impl Visit for HotKey {
    type Output = anyhow::Result<f64>;

    /// Microseconds an event.
    fn visit<W: Waits>(&self) -> Self::Output {
        let room = Room::<W>::open(1)?;
        let request = Request { progress: Progress::leaked(), required: 1 };
        let progress = request.progress;
        let park = |_| {
            let waits = room.waits.clone();
            room.spawn(async move { waits.park([KEY], HOUR, request).await })
        };
        let tasks: Vec<_> = (0..self.requests).map(park).collect();
        let (waits, looks, events) =
            (room.waits.clone(), self.requests as u64 * W::LOOKS, self.events as u64);
        let raises = room.spawn(async move {
            let looked = async |looks| {
                while progress.looks() < looks {
                    yield_now().await;
                }
            };
            looked(looks).await;
            waits.settle().await;
            let (clock, before) = (SystemClock::new(), progress.looks());
            let begin = clock.now_ns();
            for event in 1..=events {
                waits.event(KEY);
                looked(before + event * looks).await;
            }
            let spent = clock.now_ns() - begin;
            progress.reach(1);
            waits.event(KEY);
            spent as f64 / 1e3 / events as f64
        });
        let us = room.join(raises)?;
        tasks.into_iter().try_for_each(|task| room.join(task))?;
        all_completed::<W>(progress, self.requests as u64)?;
        room.close()?;
        Ok(us)
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let sizes = run.sizes;
    let hot_key = HotKey { requests: sizes.hot, events: sizes.hot_events };
    for round in 0..sizes.rounds {
        for (form, contenders) in Contender::FORMS {
            let measure = format!("{id}-{form}");
            run.each(&measure, "us an event", round, contenders, |one| one.visit(&hot_key))?;
            let us = floor::random_node(sizes.hot, sizes.hot) * sizes.hot as f64 / 1e3;
            run.results.measure(&measure, "us an event").add(FLOOR, us);
        }
    }
    Ok(())
}
