//! `bytes-per-parked-…`: heap in use while a million requests of 16 bytes are parked under random
//! keys of a thousand, one each or three, divided by their number. A future counts in its box, as
//! in a task of its own, but without the task.
//!
//! Everything runs on the thread whose allocations are counted, the actor too.

use anyhow::ensure;
use tokio::runtime::Builder;

use super::{
    super::row::Run,
    room::{Pending, complete_all, nothing_left, park_all},
};
use crate::{
    request::{Progress, Request},
    waits::{Contender, Visit, wait::Waits},
};

pub(super) struct Parked {
    pub(super) requests: usize,
    pub(super) keys: usize,
}

impl Parked {
    fn bytes<W: Waits, const K: usize>(&self) -> anyhow::Result<f64> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let waits = runtime.block_on(async { W::start() })?;
        let request = Request { progress: Progress::leaked(), required: 1 };
        let mut pending = Pending::with_capacity(self.requests);
        let counted = allocation_counter::measure(|| {
            let parks = park_all::<W, K>(&waits, request, 0, &mut pending, self.requests);
            runtime.block_on(tokio::task::coop::unconstrained(parks));
        });
        ensure!(request.progress.ended() == 0, "{}: a parked request had gone", W::NAME);
        let completes = complete_all(&waits, request, 0, pending, self.requests);
        runtime.block_on(tokio::task::coop::unconstrained(completes))?;
        nothing_left(&waits)?;
        Ok(counted.bytes_current as f64 / self.requests as f64)
    }
}

impl Visit for Parked {
    type Output = anyhow::Result<f64>;

    fn visit<W: Waits>(&self) -> Self::Output {
        if self.keys == 1 { self.bytes::<W, 1>() } else { self.bytes::<W, 3>() }
    }
}

pub(in crate::rows) fn run(id: &'static str, run: &mut Run<'_>) -> anyhow::Result<()> {
    let keys = if id.ends_with("-3keys") { 3 } else { 1 };
    for (form, contenders) in Contender::FORMS {
        let parked = Parked { requests: run.sizes.one_m, keys };
        run.each(&format!("{id}-{form}"), "bytes", 0, contenders, |one| one.visit(&parked))?;
    }
    Ok(())
}
