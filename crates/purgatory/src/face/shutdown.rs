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

/// What a [`shutdown_timeout`](Purgatory::shutdown_timeout) left. It ends by itself, when what
/// holds it up does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownLeft {
    /// Operations still under check: each ends as that is over, on the thread that checks it.
    pub under_check: usize,
    /// Callbacks that are not over, of what was ended by shutdowns with a limit. Those of what had
    /// expired before are not among them:
    /// [`Stats::callbacks_waiting`](crate::Stats::callbacks_waiting) has what waits.
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

impl<K, O> Purgatory<K, O>
where
    K: WatchKey + Send,
    O: DelayedOperation + Send,
{
    /// As [`shutdown`](Self::shutdown), but waits at most so long, and tells what was left: neither
    /// a callback nor a check that does not return holds up its caller.
    ///
    /// So callbacks run on the executor, not here, unless that runs jobs in place (with a
    /// [`ManualTimer`](timer_core::ManualTimer), an inline timer or one that was shut down): for
    /// them the limit does not hold. What is left still ends, once and as it would have: this only
    /// stops waiting for it. Inside a check, a callback or a timer's task it waits for nothing.
    /// O(what is parked + rooms); while it waits for a check it looks each millisecond whether that
    /// is over. It blocks: where the callbacks run on a tokio runtime of one thread, call it from
    /// `spawn_blocking`.
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
    /// let left = purgatory.shutdown_timeout(Duration::from_millis(10));
    /// assert_eq!((left.callbacks, left.under_check), (1, 0));
    /// assert!(left.threads >= 1); // the one that runs it
    /// release.send(())?;
    /// assert!(purgatory.shutdown_timeout(Duration::from_secs(60)).is_nothing());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_timeout(&self, limit: Duration) -> ShutdownLeft {
        let (clock, pause) = (SystemClock::new(), Latch::default());
        let limit = if must_not_block() { Duration::ZERO } else { limit };
        let left = || limit.saturating_sub(Duration::from_nanos(clock.now_ns()));
        self.core.close_offloading(CancelReason::Shutdown);
        self.core.closing.wait(left());
        let _under_way = pause.begin();
        while !self.is_empty() && !left().is_zero() {
            // For checks: nobody tells when one is over.
            pause.wait(left().min(Duration::from_millis(1)));
        }
        let own_timer = self.core.own_timer.as_ref();
        let threads = own_timer.map_or(0, |timer| timer.shutdown(left()).threads);
        let callbacks = self.core.closing.wait(Duration::ZERO);
        ShutdownLeft { under_check: self.len(), callbacks, threads }
    }
}
