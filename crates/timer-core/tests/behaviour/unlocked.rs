//! Code of the user's that is dropped or called by the timer: nothing is locked meanwhile, and its
//! panics leave the timer working.

use std::{sync::mpsc, thread, time::Duration};

use timer_core::{ManualTimer, TaskTimer, Timer};

use crate::support::MS;

/// Fails if `run` panics, or waits for a lock that it has.
fn in_time(run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        run();
        done.send(()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(()));
}

/// A value that does this as it is dropped.
struct OnDrop(Box<dyn FnMut() + Send>);

impl OnDrop {
    fn new(act: impl FnMut() + Send + 'static) -> Self {
        OnDrop(Box::new(act))
    }

    /// Counts the pending tasks, which takes each lock.
    fn looks_into<T: Send + 'static>(tasks: &TaskTimer<T>) -> Self {
        let tasks = tasks.clone();
        OnDrop::new(move || _ = tasks.len())
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_closure_for_a_gone_task_is_dropped_unlocked() {
    in_time(|| {
        let timer = ManualTimer::new();
        let tasks = timer.with_handler(drop::<u32>);
        let handle = tasks.schedule(MS, 7).unwrap();
        assert_eq!(tasks.cancel(handle), Some(7));
        let unused = OnDrop::looks_into(&tasks);
        assert_eq!(tasks.with(handle, move |_| drop(unused)), None);
    });
}
