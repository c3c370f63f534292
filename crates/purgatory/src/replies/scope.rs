//! The requests of one connection: [`ReplyScope`].
//!
//! A scope hands out its numbers in rising order. Every number up to the last one was asked for, so
//! it takes no memory to tell a late reply from a reply that was never asked for.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use timer_core::{BuildError, Timer};

use crate::{
    builder::Builder,
    error::{Refused, WaitError},
    operation::{CancelReason, Outcome, Timeout, opaque},
    reason::Reason,
    replies::{
        engine::{Expected, Locked, Requested, Requests, find},
        many::{Buffer, ReplyStream},
        member::Scope,
    },
    settings::{Form, Settings},
    table::{Table, forwarding::Forwarding, handle::Handle},
    wait::WaitFuture,
    waits::Waits,
};

/// The name of a request: the number of its scope, counted from 0 in the order in which scopes are
/// made, and its own number in that scope, from 1. The public signatures spell this type out.
pub(super) type RequestId = (u64, u64);

/// The requests of one connection: a scope numbers them, matches their replies, and fails them
/// together. [`another`](Self::another) makes the scope of the client's next connection, which
/// shares the timer, the bound and the [`waits`](Self::waits).
///
/// The scope numbers its requests from 1. A reply therefore reaches only a request of its own
/// connection, however often that reconnects. A reply without a waiter is reported as
/// [late](WaitError::Late) or as never asked for.
///
/// This is a handle: clones share the same requests. Dropping the last handle ends all of them as
/// [`Dropped`](CancelReason::Dropped).
///
/// ```
/// use std::time::Duration;
/// use purgatory::{ReplyScope, WaitError};
///
/// let first = ReplyScope::new("client")?; // the client's first connection
/// let second = first.another(); // and the next one
/// let timeout = Duration::from_secs(30);
/// let (number, reply) = first.expect(timeout)?; // registered ...
/// // ... so now send the request with this number.
/// first.deliver(number, "pong")?;
/// assert_eq!(reply.wait_blocking()?, "pong");
///
/// let twice = first.deliver(number, "pong").unwrap_err();
/// assert_eq!(twice.reason, WaitError::Late);
/// let unasked = second.deliver(number, "pong").unwrap_err();
/// assert_eq!(unasked.reason, WaitError::NotExpected);
/// assert_eq!(unasked.into_inner(), "pong");
///
/// let (_, lost) = first.expect(timeout)?;
/// let (number, reply) = second.expect(timeout)?;
/// assert_eq!(first.close("connection closed"), 1);
/// let lost: WaitError = lost.wait_blocking().unwrap_err();
/// assert!(lost.is_shutdown());
/// assert_eq!(lost.to_string(), "cancelled: connection closed");
/// assert!(first.expect(timeout).unwrap_err().is_shutdown());
/// second.deliver(number, "another connection goes on")?;
/// # drop(reply);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Cost
/// A scope is one allocation of 64 bytes. Its requests share a shard, and so a lock, which is taken
/// once to expect a reply, once to deliver it, once for each poll, and once to fail or close all of
/// them. A request for one reply allocates nothing, unless it is reassigned. A method takes O(1)
/// unless it says otherwise.
///
/// # Locks
/// Wakers run with nothing locked.
pub struct ReplyScope<V: Send + 'static> {
    handle: Handle<Requests<RequestId, V>>,
    scope: Arc<Scope>,
}

/// Construction.
impl<V: Send + 'static> ReplyScope<V> {
    /// Makes the first scope of a client on the timer that the process
    /// [shares](crate::Purgatory::new); `name` labels the metrics of all its scopes.
    ///
    /// # Errors
    /// Returns an error as [`Purgatory::new`](crate::Purgatory::new) does.
    pub fn new(name: impl Into<String>) -> Result<Self, BuildError> {
        Self::builder(name).build()
    }

    /// Makes the first scope of a client on `timer`, as [`new`](Self::new) does on the shared one.
    /// O(1).
    ///
    /// ```
    /// use purgatory::timer_core::ManualTimer;
    /// use purgatory::ReplyScope;
    ///
    /// let timer = ManualTimer::new(); // in a program: a SystemTimer, Timer::tokio()?, ...
    /// let connection: ReplyScope<&str> = ReplyScope::on(&timer, "client")?;
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

    /// Makes the scope of another connection of the same client, with numbers of its own. O(1).
    pub fn another(&self) -> Self {
        Self::make(self.handle.clone())
    }

    fn make(handle: Handle<Requests<RequestId, V>>) -> Self {
        let number = handle.table.engine.scopes.fetch_add(1, Relaxed);
        let hash = handle.table.hash(&number);
        ReplyScope {
            handle,
            scope: Arc::new(Scope::new(number, hash)),
        }
    }
}

impl<V: Send + 'static> Form for ReplyScope<V> {
    type Own = ();

    fn build(settings: Settings, (): ()) -> Result<Self, BuildError> {
        Ok(Self::make(Handle::new(settings, Requests::default())?))
    }
}

impl<V: Send + 'static> ReplyScope<V> {
    /// Expects a reply to a new request, and returns the request's number with the reply's future.
    /// The reply is registered when this returns, so send the request after that. The timeout
    /// counts from here. O(1).
    ///
    /// Numbers rise by 1, in the order of the calls. A refused request uses no number.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. Dropping the future ends the request, and [`deliver`](Self::deliver)
    /// hands a late reply back.
    ///
    /// # Errors
    /// [`ScopeClosed`](WaitError::ScopeClosed) if the scope was [closed](Self::close),
    /// [`Closed`](WaitError::Closed) after a shutdown, [`Full`](WaitError::Full) if too many
    /// requests wait. Then do not send the request.
    pub fn expect(&self, timeout: impl Into<Timeout>) -> Result<(u64, WaitFuture<V>), WaitError> {
        self.park(timeout.into(), || None)
    }

    /// Expects up to `count` replies to a new request, as
    /// [`Replies::expect_many`](crate::Replies::expect_many) does; returns its number with their
    /// stream. O(1).
    ///
    /// # Errors
    /// Same as [`expect`](Self::expect).
    pub fn expect_many(
        &self,
        count: usize,
        timeout: impl Into<Timeout>,
    ) -> Result<(u64, ReplyStream<V>), WaitError> {
        let buffer = Arc::new(Buffer::new(count));
        let (number, last) = self.park(timeout.into(), || Some(buffer.clone()))?;
        Ok((number, ReplyStream::new(buffer, last, self.handle.share())))
    }

    /// Parks a request; returns its number and its future.
    #[inline(always)]
    fn park(
        &self,
        timeout: Timeout,
        buffer: impl FnOnce() -> Option<Arc<Buffer<V>>>,
    ) -> Result<(u64, WaitFuture<V>), WaitError> {
        let arrival = self.table().arrival(timeout);
        let mut shard = self.lock();
        // 1. Admit the request, unless its scope is closed or the form refuses it.
        let number = self.scope.last_number() + 1;
        if self.scope.is_closed() && !failpoint!(ClosedScopeExpects) {
            drop(shard);
            return Err(self.refused(WaitError::ScopeClosed));
        }
        match self.table().admit(&mut shard, arrival, |_| Ok(())) {
            Ok(()) => {}
            Err(WaitError::Expired) => {
                self.scope.set_last_number(number);
                return Ok((number, WaitFuture::ready(Err(WaitError::Expired))));
            }
            Err(reason) => {
                drop(shard);
                return Err(self.refused(reason));
            }
        }
        // 2. Park it at the end of the list.
        let hash = self.scope.hash_of(number);
        let request = |failures| Expected {
            key: self.id(number),
            hash,
            failures,
            member: Some(self.scope.place_at_end(None)),
            buffer: buffer(),
        };
        let table = self.table();
        let at = table.park_request(&mut shard, arrival, hash, request);
        self.scope.append(&mut *shard, at.index());
        self.scope.set_last_number(number);
        drop(shard);
        Ok((number, self.handle.future(at)))
    }

    #[cold]
    fn refused(&self, reason: WaitError) -> WaitError {
        self.table().frame.report_refusal(&reason);
        reason
    }

    /// Delivers a reply to the request with this number, and wakes its task. When this returns, the
    /// request has the value. O(1).
    ///
    /// # Errors
    /// Hands the value back if the request does not wait for it: [`Late`](WaitError::Late) if it
    /// ever did, else [`NotExpected`](WaitError::NotExpected). Neither is counted as refused.
    pub fn deliver(&self, number: u64, value: V) -> Result<(), Refused<V>> {
        let ended_at = self.table().frame.ending_at();
        let shard = self.lock();
        let last_number = self.scope.last_number();
        let id = self.id(number);
        let is_it = |_, key: &RequestId| *key == id;
        let hash = self.scope.hash_of(number);
        let table = self.table();
        let delivered = table.hand_over(shard, hash, is_it, value, ended_at);
        delivered.map_err(|value| {
            let reason = if (1..=last_number).contains(&number) {
                WaitError::Late
            } else {
                WaitError::NotExpected
            };
            Refused::new(value, reason)
        })
    }

    /// Sets a new timeout, counted from now, for the request with this number; returns false if no
    /// request waits under it. O(levels of the wheel), with one lock.
    ///
    /// This lets the thread that reads the connection limit how long the server may stay silent,
    /// however slowly the task takes the replies. The thread reschedules before it delivers, so
    /// that the old timeout never expires after a reply that came in time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::{ReplyScope, timer_core::ManualTimer};
    ///
    /// let timer = ManualTimer::new(); // in a program: leave the timer out
    /// let connection = ReplyScope::on(&timer, "client")?;
    /// let idle_max = Duration::from_millis(100);
    /// let (number, mut rows) = connection.expect_many(usize::MAX, idle_max)?;
    /// for row in ["one", "two", "three"] {
    ///     timer.advance(Duration::from_millis(60)); // and none is taken
    ///     connection.reschedule(number, idle_max);
    ///     connection.deliver(number, row)?;
    /// }
    /// timer.advance(idle_max); // the server is silent
    /// assert!(!connection.reschedule(number, idle_max));
    /// # drop(rows);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reschedule(&self, number: u64, timeout: impl Into<Timeout>) -> bool {
        let arrival = self.table().arrival(timeout.into());
        let id = self.id(number);
        let hash = self.scope.hash_of(number);
        Table::reschedule_request(self.lock(), hash, |_, key| *key == id, arrival)
    }

    /// Delivers this value to each waiting request with this number or a lower one, as one
    /// confirmation of all messages so far; returns the number of those requests. A request that
    /// [expects several](Self::expect_many) replies ends with it, too. All these requests end
    /// before the first task is woken. O(n) for n requests, with one lock to count them and one to
    /// deliver.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::ReplyScope;
    ///
    /// let channel = ReplyScope::new("publishers")?;
    /// let mut publish = || channel.expect(Duration::from_secs(30));
    /// let (first, second, third) = (publish()?, publish()?, publish()?);
    /// assert_eq!(channel.deliver_up_to(second.0, "stored"), 2);
    /// assert_eq!(first.1.wait_blocking()?, "stored");
    /// assert_eq!(second.1.wait_blocking()?, "stored");
    /// assert_eq!(channel.deliver_up_to(third.0, "stored"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics only if `V`'s own `Clone` panics, which runs with nothing locked. Then nothing was
    /// delivered.
    pub fn deliver_up_to(&self, number: u64, value: V) -> usize
    where
        V: Clone,
    {
        // 1. Count the requests that wait now: later ones have higher numbers.
        let shard = self.lock();
        let number = number.min(self.scope.last_number());
        let count = self.count_up_to(&shard, number);
        drop(shard);
        // 2. Clone the value for each, with nothing locked.
        let table = self.table();
        if count == 0 {
            table.call_in_turn(&table.frame.enter(), || drop(value));
            return 0;
        }
        let mut values = vec![value; count];

        // 3. Deliver to the requests that still wait.
        let call = table.frame.enter();
        let mut batch = table.batch();
        let mut shard = self.lock();
        while let Some(first) = self.scope.first() {
            let (_, first_number) = shard.wait(first).key;
            if first_number > number {
                break;
            }
            let Some(value) = values.pop() else { break };
            let id = shard.wheel.id_at(first);
            let completed = &Outcome::Completed;
            shard.end_with(&table.engine, id, || Ok(value), completed, &mut batch);
        }
        drop(shard);
        let delivered = batch.ended.len();
        table.finish_all(&call, batch);
        table.drop_each(&call, values);
        delivered
    }

    /// Returns how many requests up to this number wait.
    fn count_up_to(&self, shard: &Locked<'_, RequestId, V>, number: u64) -> usize {
        let mut count = 0;
        let mut at = self.scope.first();
        while let Some(index) = at {
            let request = shard.wait(index);
            let (_, request_number) = request.key;
            if request_number > number {
                break;
            }
            count += 1;
            at = request.member.as_ref().and_then(|member| member.next());
        }
        count
    }

    /// Moves the request with this number to another scope of the same client, for when a
    /// connection is replaced and its requests are sent again; returns its number there. The
    /// request keeps its task, its deadline and its [id](WaitFuture::id). A
    /// [snapshot](crate::Waits::snapshot) may show another id from then on, which reaches the
    /// request until it moves again. A reply under the old number is late from here on. A
    /// [`cancel_all`](crate::Waits::cancel_all) that runs meanwhile may miss the request. O(levels
    /// of the wheel), under the locks of both scopes. However often a request moves, it takes two
    /// entries, one allocation, and its one place under [`max_parked`](crate::Builder::max_parked).
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::ReplyScope;
    ///
    /// let lost = ReplyScope::new("client")?;
    /// let (number, reply) = lost.expect(Duration::from_secs(30))?; // sent over the connection ...
    ///
    /// let next = lost.another(); // ... which is lost
    /// let again = lost.reassign(number, &next)?; // registered, so now send it again
    /// assert_eq!(lost.close("connection lost"), 0);
    /// next.deliver(again, "pong")?;
    /// assert_eq!(reply.wait_blocking()?, "pong");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotExpected`](WaitError::NotExpected) if no request waits under this number.
    /// [`ScopeClosed`](WaitError::ScopeClosed), [`Closed`](WaitError::Closed) or
    /// [`Full`](WaitError::Full) as for [`expect`](Self::expect), if `to` cannot take the request;
    /// then it stays where it is.
    ///
    /// # Panics
    /// Panics if `to` is a scope of another client.
    pub fn reassign(&self, number: u64, to: &ReplyScope<V>) -> Result<u64, WaitError> {
        let table = self.table();
        let is_same = Arc::ptr_eq(table, to.table());
        assert!(is_same, "the scopes are not of the same client");
        // 1. Keep both shards locked, so that the request is in one of the scopes at any time. Read
        //    the clock before that.
        let now_tick = table.arrival(Timeout::Never).now_tick;
        let (mut from, other) = table.lock_two(self.scope.hash, to.scope.hash);
        let id = self.id(number);
        let hash = self.scope.hash_of(number);
        let Some(index) = find(&from, hash, |_, key| *key == id) else {
            return Err(WaitError::NotExpected);
        };
        if to.scope.is_closed() {
            drop((from, other));
            return Err(to.refused(WaitError::ScopeClosed));
        }
        // 2. In the same shard, the request keeps its entry.
        let Some(mut other) = other else {
            let forwarding = take_off_list(&mut from, index);
            return Ok(to.put_on_list(&mut from, index, forwarding));
        };
        if let Some(reason) = other.refuses() {
            drop((from, other));
            return Err(to.refused(reason));
        }
        let forwarding = take_off_list(&mut from, index);
        let (index, forwarding) = from.move_to(index, &mut other, now_tick, forwarding);
        let number = to.put_on_list(&mut other, index, Some(forwarding));
        // 3. Unlock the other shard last: that may signal the reaper.
        drop(from);
        drop(other);
        Ok(number)
    }

    /// Adds a request that is in no scope, under the next number. Called under the lock.
    fn put_on_list(
        &self,
        shard: &mut Locked<'_, RequestId, V>,
        index: u32,
        forwarding: Option<Arc<Forwarding>>,
    ) -> u64 {
        let number = self.scope.last_number() + 1;
        let hash = self.scope.hash_of(number);
        let request = shard.wait_mut(index);
        request.key = self.id(number);
        request.hash = hash;
        request.member = Some(self.scope.place_at_end(forwarding));
        shard.records.insert(hash, index);
        self.scope.append(&mut **shard, index);
        self.scope.set_last_number(number);
        number
    }

    /// Fails the requests of this scope that were expected before this call, as
    /// [`Requested`](CancelReason::Requested) with this reason; returns how many. Requests expected
    /// later, and those of other scopes, are not touched. O(n) for n requests of the scope, under
    /// one lock.
    ///
    /// All of them end, in the order of their numbers, before the first task is woken. Use
    /// [`close`](Self::close) for a connection that does not come back.
    pub fn fail_all(&self, reason: impl Into<Reason>) -> usize {
        self.fail(CancelReason::Requested(reason.into()), false)
    }

    /// Fails the requests of this scope as [`Closed`](CancelReason::Closed) with this reason, and
    /// refuses requests from now on. Returns how many this call failed.
    ///
    /// A request that another thread is expecting meanwhile is either failed or refused: in both
    /// cases `is_shutdown` is true for its error. Make a new scope for the next connection. O(n)
    /// for n requests of the scope, under one lock.
    pub fn close(&self, reason: impl Into<Reason>) -> usize {
        self.fail(CancelReason::Closed(reason.into()), true)
    }

    /// Returns the waiting requests of all scopes of the client, for metrics, snapshots and the
    /// [shutdown](Waits::shutdown). O(1).
    ///
    /// A request is named by the number of its scope, counted from 0 in the order in which scopes
    /// are made, and by its own number in that scope, from 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::ReplyScope;
    ///
    /// let connection: ReplyScope<&str> = ReplyScope::new("client")?;
    /// let (_, _reply) = connection.another().expect(Duration::from_secs(30))?;
    /// assert_eq!(connection.waits().len(), 0); // that connection was dropped
    /// let (_, _reply) = connection.expect(Duration::from_secs(30))?;
    /// assert_eq!(connection.waits().snapshot(1).oldest[0].keys, [(0, 1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waits(&self) -> Waits<(u64, u64)> {
        self.handle.waits()
    }

    /// Returns true once the scope was [closed](Self::close). O(1), without a lock.
    pub fn is_closed(&self) -> bool {
        self.scope.is_closed()
    }

    /// Ends all requests that are on the list now.
    fn fail(&self, reason: CancelReason, closes: bool) -> usize {
        let call = self.table().frame.enter();
        let outcome = Outcome::Cancelled(reason);
        let mut batch = self.table().batch();
        let mut shard = self.lock();
        if closes {
            self.scope.close();
        }
        while let Some(first) = self.scope.first() {
            let id = shard.wheel.id_at(first);
            shard.end(&self.table().engine, id, &outcome, &mut batch);
        }
        drop(shard);
        let count = batch.ended.len();
        self.table().finish_all(&call, batch);
        count
    }

    /// Returns the name of a request.
    fn id(&self, number: u64) -> RequestId {
        (self.scope.number, number)
    }

    fn table(&self) -> &Arc<Requested<RequestId, V>> {
        &self.handle.table
    }

    /// Locks the shard of this scope.
    fn lock(&self) -> Locked<'_, RequestId, V> {
        self.table().shard_of(self.scope.hash)
    }
}

/// Removes a request that moves on from the table and from the list of its scope; returns its
/// forwarding.
fn take_off_list<V: Send + 'static>(
    shard: &mut Locked<'_, RequestId, V>,
    index: u32,
) -> Option<Arc<Forwarding>> {
    let request = shard.wait_mut(index);
    let hash = request.hash;
    let member = request.member.take();
    shard.records.remove(hash, index);
    member?.leave_list(&mut **shard)
}

impl<V: Send + 'static> Clone for ReplyScope<V> {
    fn clone(&self) -> Self {
        self.scope.add_handle();
        ReplyScope {
            handle: self.handle.clone(),
            scope: self.scope.clone(),
        }
    }
}

impl<V: Send + 'static> Drop for ReplyScope<V> {
    fn drop(&mut self) {
        if self.scope.remove_handle() {
            self.fail(CancelReason::Dropped, true);
        }
    }
}

opaque!([V: Send + 'static] ReplyScope<V>, scope: scope.number);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use timer_core::ManualTimer;

    use super::*;

    /// Most of these scopes are in other shards, where their requests have entries of their own.
    #[test]
    fn request_that_moved_leaves_no_entry_behind() {
        let timer = ManualTimer::new();
        let lost = ReplyScope::on(&timer, "client").unwrap();
        for _ in 0..20 {
            let next = lost.another();
            let (number, reply) = lost.expect(Duration::from_secs(1)).unwrap();
            let again = lost.reassign(number, &next).unwrap();
            next.deliver(again, 7).unwrap();
            assert_eq!(timer.next_due_in(), None, "an answer is no work");
            assert_eq!(reply.wait_blocking(), Ok(7));
        }
        let table = lost.table();
        for number in table.shards.made() {
            assert_eq!(table.lock(number).wheel.len(), 0);
        }
    }
}
