//! How often the threads of this process have woken up, from Linux's `/proc`.

use std::{collections::BTreeMap, ffi::OsString, fs};

use anyhow::Context;

/// Waits that came to an end, of every thread but the one that asks, since it began.
#[derive(Debug)]
pub(crate) struct WakeUps(BTreeMap<OsString, u64>);

impl WakeUps {
    /// An error where there is no `/proc`.
    pub(crate) fn so_far() -> anyhow::Result<WakeUps> {
        let me = fs::read_link("/proc/thread-self").context("no /proc here")?;
        let tasks = fs::read_dir("/proc/self/task")?.flatten();
        let others = tasks.filter(|task| Some(task.file_name().as_os_str()) != me.file_name());
        // A thread that has just ended is left out.
        let count = others.filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let count = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
            Some((task.file_name(), count.trim().parse().ok()?))
        });
        Ok(WakeUps(count.collect()))
    }

    /// Those since then, of the threads that are still there.
    pub(crate) fn since(&self, before: &WakeUps) -> u64 {
        let of = |(thread, now): (_, &u64)| {
            now.saturating_sub(before.0.get(thread).copied().unwrap_or(0))
        };
        self.0.iter().map(of).sum()
    }
}
