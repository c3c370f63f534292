//! A shutdown that waits for a bounded time, and tells what it left.

use std::time::Duration;

use timer_core::{Clock, SystemClock, Timer, driver::Latch};

use crate::{
    face::{purgatory::Purgatory, wait::must_not_block},
    words::{
        operation::{CancelReason, DelayedOperation},
        watches::WatchKey,
    },
};

/// What a [`shutdown`](Purgatory::shutdown) left. It ends by itself, when what holds it up does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownLeft {
    /// Operations still under check: each ends as that is over, on the thread that checks it.
    pub under_check: usize,
    /// Callbacks of what shutdowns ended that are not over. Those of what had expired before are
    /// not among them: [`Stats::callbacks_waiting`](crate::Stats::callbacks_waiting) has what
    /// waits.
    pub callbacks: usize,
    /// Threads of the purgatory's own timer that have not ended.
    pub threads: usize,
}

impl ShutdownLeft {
    /// True when none of these was left.
    pub fn is_nothing(&self) -> bool {
        *self == ShutdownLeft::default()
    }
}

impl<K: WatchKey, O: DelayedOperation> Purgatory<K, O> {
    /// Ends all that is parked as Cancelled ([`Shutdown`](crate::CancelReason::Shutdown)), refuses
    /// what would have to wait from now on, and waits at most `limit` until checks and callbacks
    /// are over; says what was left. What is left still ends, once and as it would have. `limit`
    /// may be [`Duration::MAX`]; zero waits for nothing. Again: only the wait.
    ///
    /// An operation under check is ended by the thread that checks it. Callbacks run on the
    /// executor, or here if that runs jobs in place (a [`ManualTimer`](timer_core::ManualTimer), an
    /// inline timer, or one that was shut down): for them the limit does not hold. A timer of the
    /// purgatory's own is shut down, too; a shared one goes on. Inside a check, a callback or a
    /// timer's task this waits for nothing.
    ///
    /// O(parked + rooms). It blocks: where the callbacks run on a tokio runtime of one thread, call
    /// it from `spawn_blocking`.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use purgatory::{Purgatory, when};
    ///
    /// let purgatory = Purgatory::new("orders")?;
    /// let (release, blocked) = mpsc::channel::<()>();
    /// let stuck = when(|| false, move |_| _ = blocked.recv());
    /// purgatory.try_complete_else_watch(stuck, &["orders-0"], Duration::from_secs(30))?;
    ///
    /// let left = purgatory.shutdown(Duration::from_millis(10));
    /// assert_eq!((left.callbacks, left.under_check), (1, 0));
    /// assert!(left.threads >= 1); // the one that runs it
    /// release.send(())?;
    /// assert!(purgatory.shutdown(Duration::from_secs(60)).is_nothing());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, limit: Duration) -> ShutdownLeft {
        let (clock, pause) = (SystemClock::new(), Latch::default());
        let limit = if must_not_block() { Duration::ZERO } else { limit };
        let left = || limit.saturating_sub(Duration::from_nanos(clock.now_ns()));
        self.core.close_offloading(CancelReason::Shutdown);
        self.core.closing.wait(left());
        let _under_way = pause.begin();
        while !self.is_empty() && !left().is_zero() {
            // For checks: nothing tells when one is over.
            pause.wait(left().min(Duration::from_millis(1)));
        }
        let own_timer = self.core.own_timer.as_ref();
        let threads = own_timer.map_or(0, |timer| timer.shutdown(left()).threads);
        let callbacks = self.core.closing.wait(Duration::ZERO);
        ShutdownLeft { under_check: self.len(), callbacks, threads }
    }
}
