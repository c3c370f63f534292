//! Callbacks that call back: the trampoline.
//!
//! A callback may raise events, which end operations, whose callbacks raise events, and so on for a
//! million links. So that the stack does not grow with the chain, only the *outermost* call into
//! any purgatory on a thread runs callbacks; a nested one queues them, and the outermost call
//! works the queue off before it returns (also when it unwinds). The queue is the thread's: it
//! spans purgatories.
//!
//! - **Bounded call**: after `QUEUE_BUDGET` queued pieces of work the rest moves, still in order,
//!   to the timer's executor; one call does not turn into everybody's worker.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::Arc,
};

use timer_core::{Driver, Job, contain};

use crate::sync::thread_local;

/// Queued pieces of work that one outermost call runs itself.
pub(crate) const QUEUE_BUDGET: usize = 1024;

type Work = Box<dyn FnOnce() + Send>;

struct Thread {
    active: Cell<bool>,
    queue: RefCell<VecDeque<Work>>,
}

thread_local! {
    static THREAD: Thread = Thread { active: Cell::new(false), queue: RefCell::default() };
}

/// A call into a purgatory, outermost on its thread or nested.
pub(crate) struct Frame<'a> {
    outermost: bool,
    driver: &'a Arc<dyn Driver>,
}

impl<'a> Frame<'a> {
    /// Enters a call. `driver` runs what goes beyond the call's budget.
    pub(crate) fn enter(driver: &'a Arc<dyn Driver>) -> Frame<'a> {
        let outermost = THREAD.try_with(|thread| !thread.active.replace(true));
        Frame { outermost: outermost.unwrap_or(true), driver } // a thread at its end queues nothing
    }

    /// True inside a check or callback on this thread.
    pub(crate) fn is_open() -> bool {
        THREAD.try_with(|thread| thread.active.get()).unwrap_or(false)
    }

    pub(crate) fn is_nested(&self) -> bool {
        !self.outermost
    }
}

/// Leaves work to the outermost call on this thread. A panic in it stays in it.
pub(crate) fn enqueue(work: impl FnOnce() + Send + 'static) {
    let mut work: Option<Work> = Some(Box::new(work));
    let queued = THREAD.try_with(|thread| thread.queue.borrow_mut().extend(work.take()));
    if queued.is_err() {
        work.into_iter().for_each(|work| _ = contain(work)); // as in `resume`
    }
}

/// Puts work at the end of this thread's queue. A thread at its end has none: then it runs here.
fn resume(mut work: VecDeque<Work>) {
    let queued = THREAD.try_with(|thread| {
        let queue = &mut *thread.queue.borrow_mut();
        if queue.is_empty() {
            std::mem::swap(queue, &mut work);
        } else {
            queue.append(&mut work);
        }
    });
    if queued.is_err() {
        work.into_iter().for_each(|work| _ = contain(work));
    }
}

fn next() -> Option<Work> {
    THREAD.try_with(|thread| thread.queue.borrow_mut().pop_front()).ok().flatten()
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        let nothing_queued = THREAD.try_with(|thread| {
            let nothing_queued = thread.queue.borrow().is_empty();
            thread.active.set(!nothing_queued);
            nothing_queued
        });
        if !nothing_queued.unwrap_or(true) {
            self.work_off_queue();
        }
    }
}

impl Frame<'_> {
    #[cold]
    fn work_off_queue(&self) {
        let budget = if self.driver.executes_inline() { usize::MAX } else { QUEUE_BUDGET };
        loop {
            for _ in 0..budget {
                let Some(work) = next() else { break };
                let _ = contain(work);
            }
            let rest = THREAD.try_with(|thread| {
                let rest = std::mem::take(&mut *thread.queue.borrow_mut());
                thread.active.set(!rest.is_empty());
                rest
            });
            let Some(rest) = rest.ok().filter(|rest| !rest.is_empty()) else { return };
            let driver = self.driver.clone();
            let job = Job::new(move || {
                let frame = Frame::enter(&driver);
                resume(rest);
                drop(frame);
            });
            // An executor that runs it here and now (one that is shut down, say) finds this frame
            // still there and puts the work back into this queue, instead of nesting deeper.
            let _ = contain(|| self.driver.execute(job));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};
    use timer_core::{ManualTimer, SystemTimer, Timer};

    /// A chain of `left` links, each queued by the one before.
    fn link(driver: Arc<dyn Driver>, left: usize, done: mpsc::Sender<()>) {
        let _frame = Frame::enter(&driver);
        let next = driver.clone();
        enqueue(move || match left {
            0 => done.send(()).unwrap(),
            _ => link(next, left - 1, done),
        });
    }

    #[test]
    fn a_chain_of_a_million_links_needs_no_stack() {
        let (done, ended) = mpsc::channel();
        link(ManualTimer::new().driver(), 1_000_000, done);
        ended.try_recv().unwrap(); // before the outermost call returned
    }

    #[test]
    fn a_chain_beyond_the_budget_goes_on_elsewhere_in_order() {
        let timer = SystemTimer::new().unwrap();
        let driver = timer.driver();
        let order = Arc::new(Mutex::new(Vec::new()));
        {
            let frame = Frame::enter(&driver);
            for number in 0..QUEUE_BUDGET + 10 {
                let order = order.clone();
                enqueue(move || order.lock().unwrap().push(number));
            }
            assert!(!frame.is_nested());
        }
        timer.shutdown();
        assert!(order.lock().unwrap().iter().copied().eq(0..QUEUE_BUDGET + 10));
    }

    #[test]
    fn a_panic_in_a_queued_callback_reaches_neither_the_caller_nor_the_next() {
        let driver = ManualTimer::new().driver();
        let (done, ended) = mpsc::channel();
        {
            let _frame = Frame::enter(&driver);
            assert!(Frame::enter(&driver).is_nested());
            enqueue(|| panic!("queued"));
            enqueue(move || done.send(()).unwrap());
        }
        ended.try_recv().unwrap();
    }
}
