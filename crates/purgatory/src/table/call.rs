//! Calls, and callbacks that call back.
//!
//! A callback may signal keys, which ends operations, whose callbacks signal keys, and so on for a
//! million links. So that the stack does not grow with the chain, only the *outermost* call into
//! any purgatory on a thread runs callbacks. A nested call queues them, and the outermost call
//! works the queue off before it returns, even when it unwinds. The queue belongs to the thread: it
//! spans purgatories.
//!
//! - **Bounded call**: after `QUEUE_BUDGET` pieces of queued work, the rest moves, still in order,
//!   to the executor of the outermost call's purgatory.
//! - **Until the end**: a thread's destructors may make calls, and a chain of those needs no stack
//!   either. So the thread's state has no destructor of its own.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    mem::ManuallyDrop,
    sync::Arc,
};

use timer_core::{
    Job,
    driver::{Executors, contain, on_timer_thread},
};

use crate::sync::thread_local;

/// Queued pieces of work that one outermost call runs itself.
const QUEUE_BUDGET: usize = 1024;

type Work = Box<dyn FnOnce() + Send>;

/// Whether a call is under way on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// A call is under way, and no work is queued.
    Active,
    /// A call is under way, and work is queued.
    Queued,
}

/// The calls of one thread.
struct CallState {
    stage: Cell<Stage>,
    /// Never dropped, so that the thread's destructors can use it. It keeps no memory once the
    /// outermost call is over.
    queue: ManuallyDrop<RefCell<VecDeque<Work>>>,
}

impl CallState {
    const fn new() -> Self {
        CallState {
            stage: Cell::new(Stage::Idle),
            queue: ManuallyDrop::new(RefCell::new(VecDeque::new())),
        }
    }

    /// Takes the first piece of work out.
    fn pop(&self) -> Option<Work> {
        self.queue.borrow_mut().pop_front()
    }

    /// Takes all work out, with the queue's memory. If there is none, the outermost call is over.
    fn take_rest(&self) -> VecDeque<Work> {
        let rest = self.queue.take();
        self.stage.set(match rest.is_empty() {
            true => Stage::Idle,
            false => Stage::Active,
        });
        rest
    }

    /// Adds work at the end of the queue of the call that is under way.
    fn push(&self, work: impl IntoIterator<Item = Work>) {
        debug_assert_ne!(self.stage.get(), Stage::Idle, "no call would run it");
        self.queue.borrow_mut().extend(work);
        self.stage.set(Stage::Queued);
    }

    /// Begins a call; true if it is the outermost.
    #[inline]
    fn enter(&self) -> bool {
        let is_outermost = self.stage.get() == Stage::Idle;
        if is_outermost {
            self.stage.set(Stage::Active);
        }
        is_outermost
    }

    /// Ends the outermost call unless work is queued; returns true if work is.
    fn has_work(&self) -> bool {
        let has_work = self.stage.get() == Stage::Queued;
        if !has_work {
            self.stage.set(Stage::Idle);
        }
        has_work
    }
}

thread_local! {
    static CALL_STATE: CallState = const { CallState::new() };
}

/// Returns true where the end of a blocking wait may itself wait for the calling thread.
pub(crate) fn must_not_block(executor: &Executors) -> bool {
    let in_call = CALL_STATE.try_with(|state| state.stage.get() != Stage::Idle);
    in_call.unwrap_or(false) || on_timer_thread() || executor.needs_this_thread()
}

/// A call into a purgatory, outermost on its thread or nested.
pub(crate) struct Call<'a> {
    is_outermost: bool,
    executor: &'a Arc<Executors>,
}

impl<'a> Call<'a> {
    /// Enters a call. Work beyond its budget moves to `executor`.
    #[inline]
    pub(crate) fn enter(executor: &'a Arc<Executors>) -> Call<'a> {
        let is_outermost = CALL_STATE.try_with(CallState::enter);
        Call {
            is_outermost: is_outermost.unwrap_or(true),
            executor,
        }
    }

    pub(crate) fn is_nested(&self) -> bool {
        !self.is_outermost
    }

    /// Runs work on `shared` state in turn: now, or, in a nested call, when the outermost call gets
    /// to it. So a chain of calls needs no stack.
    #[inline(always)]
    pub(crate) fn in_turn<T: Send + Sync + 'static>(
        &self,
        shared: &Arc<T>,
        work: impl FnOnce(&Arc<T>) + Send + 'static,
    ) {
        if self.is_nested() {
            let shared = shared.clone();
            enqueue(move || work(&shared));
        } else {
            work(shared);
        }
    }

    /// Runs queued work, and the work that it queues, until the queue is empty or has moved.
    #[cold]
    fn work_off_queue(&self) {
        let budget = match self.executor.runs_in_place() {
            false => QUEUE_BUDGET,
            true => usize::MAX,
        };
        loop {
            // 1. Run what is queued here, up to the budget.
            for _ in 0..budget {
                let work = CALL_STATE.try_with(CallState::pop).ok().flatten();
                let Some(work) = work else { break };
                let _ = contain(work);
            }

            // 2. If nothing is left, the call is over.
            let rest = CALL_STATE
                .try_with(CallState::take_rest)
                .unwrap_or_default();
            if rest.is_empty() {
                return;
            }

            // 3. Hand the rest over. An executor that runs it here and now (one that is shut down,
            // say) finds this call still under way and puts the work back into this queue, instead
            // of nesting deeper.
            let inside = self.executor.clone();
            self.executor.execute(Job::new(move || {
                let _call = Call::enter(&inside);
                resume(rest);
            }));
        }
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_outermost && CALL_STATE.try_with(CallState::has_work).unwrap_or(false) {
            self.work_off_queue();
        }
    }
}

/// Leaves work to the outermost call on this thread. A panic in it is contained.
#[cold]
pub(crate) fn enqueue(work: impl FnOnce() + Send + 'static) {
    let work: Work = Box::new(work);
    CALL_STATE.with(|state| state.push([work]));
}

/// Puts work that was handed over at the end of this thread's queue.
fn resume(mut work: VecDeque<Work>) {
    let queued = CALL_STATE.try_with(|state| state.push(work.drain(..)));
    if queued.is_err() {
        // On this platform, thread-locals are gone even without a destructor.
        for work in work {
            work();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};
    use timer_core::{ManualTimer, SystemTimer, Timer};

    fn on(timer: &Timer) -> Arc<Executors> {
        timer.driver().executors.clone()
    }

    /// A chain of `left` links, each queued by the one before.
    fn link(executor: Arc<Executors>, left: usize, done: mpsc::Sender<()>) {
        let _call = Call::enter(&executor);
        let next = executor.clone();
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
        let executor = on(&timer);
        let order = Arc::new(Mutex::new(Vec::new()));
        {
            let call = Call::enter(&executor);
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
        let executor = on(&ManualTimer::new());
        let (done, ended) = mpsc::channel();
        {
            let _call = Call::enter(&executor);
            assert!(Call::enter(&executor).is_nested());
            enqueue(|| panic!("queued"));
            enqueue(move || done.send(()).unwrap());
        }
        ended.try_recv().unwrap();
    }
}
