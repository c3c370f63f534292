//! What the threads of this process do: how often each has woken up and how long it has run, from
//! Linux's `/proc`.

use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

/// What every thread but the one that asks has done since it began.
#[derive(Debug)]
pub(crate) struct Activity(BTreeMap<OsString, Done>);

/// What was done: waits that came to an end, and time on a processor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) wake_ups: u64,
    pub(crate) cpu_ns: u64,
}

impl Activity {
    /// `None` where there is no `/proc`.
    pub(crate) fn so_far() -> Option<Activity> {
        let me = fs::read_link("/proc/thread-self").ok()?;
        let tasks = fs::read_dir("/proc/self/task").ok()?.flatten();
        let others = tasks.filter(|task| Some(task.file_name().as_os_str()) != me.file_name());
        // A thread that has just ended is left out.
        let done = others.filter_map(|task| Some((task.file_name(), Done::of(&task.path())?)));
        Some(Activity(done.collect()))
    }

    /// What the threads that are still there have done since `before`.
    pub(crate) fn since(&self, before: &Activity) -> Done {
        let mut sum = Done::default();
        for (thread, now) in &self.0 {
            let then = before.0.get(thread).copied().unwrap_or_default();
            sum.wake_ups += now.wake_ups.saturating_sub(then.wake_ups);
            sum.cpu_ns += now.cpu_ns.saturating_sub(then.cpu_ns);
        }
        sum
    }
}

impl Done {
    fn of(task: &Path) -> Option<Done> {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let switches = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        let wake_ups = switches.trim().parse().ok()?;
        let schedstat = fs::read_to_string(task.join("schedstat")).ok()?;
        let cpu_ns = schedstat.split(' ').next()?.parse().ok()?;
        Some(Done { wake_ups, cpu_ns })
    }
}
