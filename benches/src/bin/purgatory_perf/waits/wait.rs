//! Where requests wait: [`Waits`].

use crate::books::Request;

/// A watch key.
pub(crate) type Key = u32;

/// Requests that wait until they are completed or their time runs out.
pub(crate) trait Waits: Send + Sync + Sized + 'static {
    /// What nobody completes ends, too.
    const EXPIRES: bool = true;

    /// Names a request that waits.
    type Ticket: Send + 'static;

    /// Parks a request under all keys.
    fn park(&self, request: Request) -> Self::Ticket;

    /// Completes requests, but for those whose time ran out.
    fn complete(&self, tickets: impl Iterator<Item = Self::Ticket>);
}
