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
    waits::{Waits, waits},
};

const KEY: u64 = 7;

/// Microseconds an event.
pub(super) fn hot_key<W: Waits>((requests, events): (usize, u64)) -> anyhow::Result<f64> {
    let room = Room::<W>::open(1)?;
    let request = Request { progress: Progress::leaked(), required: 1 };
    let progress = request.progress;
    let park = |_| {
        let waits = room.waits.clone();
        room.spawn(async move { waits.park([KEY], HOUR, request).await })
    };
    let tasks: Vec<_> = (0..requests).map(park).collect();
    let (waits, looks) = (room.waits.clone(), requests as u64 * W::LOOKS);
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
    all_completed::<W>(progress, requests as u64)?;
    room.close()?;
    Ok(us)
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let (hot, events) = (run.sizes.hot, run.sizes.hot_events);
    for round in 0..run.sizes.rounds {
        for (form, contenders) in waits!(hot_key) {
            let measure = format!("{id}-{form}");
            run.each(&measure, "us an event", round, &contenders, (hot, events))?;
            run.floor(&measure, "us an event", floor::random_node(hot, hot) * hot as f64 / 1e3);
        }
    }
    Ok(())
}
