//! The scopes of one client: [`ReplyScopes`].

use timer_core::{BuildError, Timer};

use crate::{
    builder::Builder,
    operation::{CancelReason, opaque},
    reason::Reason,
    replies::{
        engine::Requests,
        scope::{ReplyScope, RequestId},
    },
    settings::{Form, Settings},
    table::handle::Handle,
    waits::Waits,
};

/// Makes [scopes](ReplyScope), one for each connection of a client. They share a timer and a bound.
///
/// This is a handle: clones make scopes of the same client. A scope keeps it open.
///
/// ```
/// use std::time::Duration;
/// use purgatory::ReplyScopes;
///
/// let client = ReplyScopes::new("client")?; // one for the whole client
/// let connection = client.scope(); // one for each connection
/// let (number, reply) = connection.expect(Duration::from_secs(30))?;
/// assert_eq!(client.waits().snapshot(1).oldest[0].keys, [(0, 1)]);
/// connection.deliver(number, "pong")?;
/// assert_eq!(reply.wait_blocking()?, "pong");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct ReplyScopes<V: Send + 'static> {
    handle: Handle<Requests<RequestId, V>>,
}

/// Construction.
impl<V: Send + 'static> ReplyScopes<V> {
    /// Makes the scopes of a client on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels their metrics.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`](crate::Purgatory::new) does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes the scopes of a client on `timer`, as [`new`](Self::new) does on the shared one. O(shards).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::ReplyScopes;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let client: ReplyScopes<&str> = ReplyScopes::on(&timer, "client")?;
    /// # Ok::<(), purgatory::timer_core::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error as [`Builder::build`](crate::Builder::build) does.
    pub fn on(timer: &Timer, name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).timer(timer).build()
    }

    /// Returns a builder, for other settings such as a shared timer or a bound.
    pub fn builder(name: impl Into<String>) -> Builder<Self> {
        Builder::new(name, ())
    }
}

impl<V: Send + 'static> Form for ReplyScopes<V> {
    type Own = ();

    fn build(settings: Settings, (): ()) -> Result<Self, BuildError> {
        Ok(ReplyScopes {
            handle: Handle::new(settings, Requests::default())?,
        })
    }
}

impl<V: Send + 'static> ReplyScopes<V> {
    /// Makes a scope for the requests of one connection, with its own numbers. O(1).
    pub fn scope(&self) -> ReplyScope<V> {
        let number = self.handle.table.engine.next_scope();
        ReplyScope::new(&self.handle, number)
    }

    /// Fails the requests of all scopes that were expected before this call, as
    /// [`Replies::fail_all`](crate::Replies::fail_all) does; returns how many. The scopes stay
    /// open. O(expected).
    pub fn fail_all(&self, reason: impl Into<Reason>) -> usize {
        let reason = CancelReason::Requested(reason.into());
        self.handle.table.fail_all(reason)
    }

    /// Returns the requests that wait, for metrics, snapshots and the
    /// [shutdown](Waits::shutdown). O(1), one allocation.
    ///
    /// A request is named by the number of its scope, from 0, in the order in which they were made,
    /// and its number in that scope, from 1.
    pub fn waits(&self) -> Waits<(u64, u64)> {
        self.handle.waits()
    }
}

impl<V: Send + 'static> Clone for ReplyScopes<V> {
    fn clone(&self) -> Self {
        ReplyScopes {
            handle: self.handle.clone(),
        }
    }
}

opaque!([V: Send + 'static] ReplyScopes<V>, name: handle.table.name);
