//! Callbacks that call back: the trampoline.
//!
//! A callback may raise events, which end operations, whose callbacks raise events, and so on for a
//! million links. So that the stack does not grow with the chain, only the *outermost* call into
//! any purgatory on a thread runs callbacks; a nested one queues them, and the outermost call
//! works the queue off before it returns (also when it unwinds). The queue is the thread's: it
//! spans purgatories.
//!
//! - **Bounded call**: after `QUEUE_BUDGET` queued pieces of work the rest moves, still in order,
//!   to the executor of the outermost call's purgatory; one call does not do everybody's work.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::Arc,
};

use timer_core::{
    Executor, Job,
    driver::{Driver, contain},
};

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

/// Where a purgatory's work goes that the calling thread is not to do: an executor of its own, or
/// the timer's.
pub(crate) struct Executors {
    pub(crate) driver: Arc<Driver>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
}

impl Executors {
    /// Hands a job over. An executor that panics has dropped the job, and so run it.
    pub(crate) fn execute(&self, job: Job) {
        let _ = contain(|| match &self.executor {
            Some(executor) => executor.execute(job),
            None => self.driver.execute(job),
        });
    }

    /// How many threads run jobs, as far as that is known.
    pub(crate) fn parallelism(&self) -> usize {
        let mut parallelism = 1; // of an executor that panics
        let _ = contain(|| {
            parallelism = match &self.executor {
                Some(executor) => executor.parallelism(),
                None => self.driver.parallelism(),
            }
        });
        parallelism
    }

    /// True where the end of a blocking wait may itself wait for the calling thread.
    pub(crate) fn must_not_block(&self) -> bool {
        let in_call = THREAD
            .try_with(|thread| thread.active.get())
            .unwrap_or(false);
        let mut needed = in_call || Driver::on_timer_thread() || self.driver.needs_this_thread();
        if let (false, Some(executor)) = (needed, &self.executor) {
            let _ = contain(|| needed = executor.needs_this_thread());
        }
        needed
    }

    /// True when jobs run on the calling thread after all.
    pub(crate) fn is_here(&self) -> bool {
        self.executor.is_none() && self.driver.inline
    }
}

/// A call into a purgatory, outermost on its thread or nested.
pub(crate) struct Call<'a> {
    outermost: bool,
    offload: &'a Arc<Executors>,
}

impl<'a> Call<'a> {
    /// Enters a call. What goes beyond the call's budget runs `elsewhere`.
    pub(crate) fn enter(offload: &'a Arc<Executors>) -> Call<'a> {
        let outermost = THREAD.try_with(|thread| !thread.active.replace(true));
        Call {
            outermost: outermost.unwrap_or(true),
            offload,
        } // a thread that ends queues nothing
    }

    pub(crate) fn is_nested(&self) -> bool {
        !self.outermost
    }
}

/// Leaves work to the outermost call on this thread. A panic in it is contained.
pub(crate) fn enqueue(work: impl FnOnce() + Send + 'static) {
    let work: Work = Box::new(work);
    THREAD.with(|thread| thread.queue.borrow_mut().push_back(work));
}

/// Puts work at the end of this thread's queue. A thread that ends has none: the work runs here.
fn resume(mut work: VecDeque<Work>) {
    let queued = THREAD.try_with(|thread| thread.queue.borrow_mut().append(&mut work));
    if queued.is_err() {
        work.into_iter().for_each(|work| work());
    }
}

fn next() -> Option<Work> {
    let pop = |thread: &Thread| {
        let queue = &mut *thread.queue.borrow_mut();
        let work = queue.pop_front();
        if queue.is_empty() && queue.capacity() > QUEUE_BUDGET {
            *queue = VecDeque::new(); // a peak is given back
        }
        work
    };
    THREAD.try_with(pop).ok().flatten()
}

impl Drop for Call<'_> {
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

impl Call<'_> {
    #[cold]
    fn work_off_queue(&self) {
        let budget = if self.offload.is_here() {
            usize::MAX
        } else {
            QUEUE_BUDGET
        };
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
            let Some(rest) = rest.ok().filter(|rest| !rest.is_empty()) else {
                return;
            };
            let offload = self.offload.clone();
            let job = Job::new(move || {
                let call = Call::enter(&offload);
                resume(rest);
                drop(call);
            });
            // An executor that runs it here and now (one that is shut down, say) finds this call
            // still there and puts the work back into this queue, instead of nesting deeper.
            self.offload.execute(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};
    use timer_core::{ManualTimer, SystemTimer, Timer};

    fn on(timer: &impl Timer) -> Arc<Executors> {
        Arc::new(Executors {
            driver: timer.driver(),
            executor: None,
        })
    }

    /// A chain of `left` links, each queued by the one before.
    fn link(offload: Arc<Executors>, left: usize, done: mpsc::Sender<()>) {
        let _call = Call::enter(&offload);
        let next = offload.clone();
        enqueue(move || match left {
            0 => done.send(()).unwrap(),
            _ => link(next, left - 1, done),
        });
    }

    #[test]
    fn a_chain_of_a_million_links_needs_no_stack() {
        let (done, ended) = mpsc::channel();
        link(on(&ManualTimer::new()), 1_000_000, done);
        ended.try_recv().unwrap(); // before the outermost call returned
    }

    #[test]
    fn a_chain_beyond_its_budget_goes_on_elsewhere() {
        let timer = SystemTimer::new().unwrap();
        let offload = on(&timer);
        let order = Arc::new(Mutex::new(Vec::new()));
        {
            let call = Call::enter(&offload);
            for number in 0..QUEUE_BUDGET + 10 {
                let order = order.clone();
                enqueue(move || order.lock().unwrap().push(number));
            }
            assert!(!call.is_nested());
        }
        timer.shutdown(std::time::Duration::MAX);
        assert!(
            order
                .lock()
                .unwrap()
                .iter()
                .copied()
                .eq(0..QUEUE_BUDGET + 10)
        );
    }

    #[test]
    fn a_panic_in_a_queued_callback_reaches_no_other() {
        let offload = on(&ManualTimer::new());
        let (done, ended) = mpsc::channel();
        {
            let _call = Call::enter(&offload);
            assert!(Call::enter(&offload).is_nested());
            enqueue(|| panic!("queued"));
            enqueue(move || done.send(()).unwrap());
        }
        ended.try_recv().unwrap();
    }
}
