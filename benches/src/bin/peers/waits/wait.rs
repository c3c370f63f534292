//! Where requests wait under keys: [`Waits`], which each contender is in its own way.

use std::time::Duration;

use timer_core::SystemClock;

use crate::{
    contender::Peer,
    request::{Request, Wait},
};

/// Where requests wait under keys until an event finds them ready.
pub(crate) trait Waits: Peer {
    /// How often an event looks at a request that is not ready.
    const LOOKS: u64 = 1;

    /// A start with deadlines told by this clock, where that can be chosen.
    fn start_on(_: SystemClock) -> anyhow::Result<Self> {
        Self::start()
    }

    /// Parks a request that is not ready: it waits once the future was polled, and is told that it
    /// is over before the future ends. In the callback form the future says nothing: it is ready
    /// as soon as the request waits.
    fn park<const K: usize>(&self, keys: [u64; K], limit: Duration, request: Request) -> impl Wait;

    /// What requests under this key wait for may have come true.
    fn event(&self, key: u64);

    /// Returns once everything asked for so far has been done: at once, unless messages queue.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
