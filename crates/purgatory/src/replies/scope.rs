//! The requests of one connection: [`ReplyScope`].
//!
//! A scope hands out its numbers in rising order. *Asked* are those up to the last one, so it takes
//! no memory to tell a late reply from one that nothing asked for.

use std::sync::Arc;

use timer_core::TimerHandle;

use crate::{
    error::{Refused, RefusedReason},
    operation::{CancelReason, Outcome, Timeout, opaque},
    reason::Reason,
    replies::{
        engine::{Expected, Locked, Requested, Requests, find_to_end, future},
        many::{Buffer, ReplyStream},
        member::Scope,
    },
    table::{Batch, handle::Handle},
    wait::WaitFuture,
};

/// The name of a request: the number of its scope, from 0, in the order in which they were made, and
/// the number of the request in its scope, from 1. The public signatures spell it out.
pub(super) type RequestId = (u64, u64);

/// The requests of one connection: numbers them, matches their replies, and fails them together.
/// All connections of a client share one [`ReplyScopes`](crate::ReplyScopes).
///
/// The scope numbers its requests from 1. A reply therefore reaches only a request of its own
/// connection, however often that reconnects. A reply without a waiter is known to be
/// [late](RefusedReason::Late) or never asked for.
///
/// This is a handle: clones share the same requests. Dropping the last handle ends all of them as
/// [`Dropped`](CancelReason::Dropped). A handle keeps its `ReplyScopes` open.
///
/// ```
/// use std::time::Duration;
/// use purgatory::{RefusedReason, ReplyScopes, WaitError};
///
/// let client = ReplyScopes::new("client")?; // one for the whole client
/// let first = client.scope(); // one for each connection
/// let second = client.scope();
/// let timeout = Duration::from_secs(30);
/// let (number, reply) = first.expect(timeout)?; // registered ...
/// // ... so now send the request with this number.
/// first.deliver(number, "pong")?;
/// assert_eq!(reply.wait_blocking()?, "pong");
///
/// let twice = first.deliver(number, "pong").unwrap_err();
/// assert_eq!(twice.reason, RefusedReason::Late);
/// let unasked = second.deliver(number, "pong").unwrap_err();
/// assert_eq!(unasked.reason, RefusedReason::NotExpected);
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
/// A scope is one allocation of 80 bytes. Its requests share a shard, and so a lock, which is taken
/// once to expect one, once to deliver, once for each poll, and once to fail or close all of them.
/// There is no other allocation. O(1), unless it says otherwise.
///
/// # Locks
/// Wakers run with nothing locked.
pub struct ReplyScope<V: Send + 'static> {
    handle: Handle<Requests<RequestId, V>>,
    scope: Arc<Scope>,
}

impl<V: Send + 'static> ReplyScope<V> {
    /// Makes the first handle of a scope.
    pub(super) fn new(handle: &Handle<Requests<RequestId, V>>, number: u64) -> Self {
        let hash = handle.table.hash(&number);
        ReplyScope {
            handle: handle.clone(),
            scope: Arc::new(Scope::new(number, hash)),
        }
    }

    /// Expects a reply to a new request, and returns the request's number with the reply. It is
    /// registered when this returns, so send the request after that. The timeout counts from here.
    /// O(1).
    ///
    /// Numbers rise by 1, in the order of the calls. A refused request uses none up.
    ///
    /// # Cancel safety
    /// See [`WaitFuture`]. Dropping the future ends the request, and [`deliver`](Self::deliver)
    /// hands a late reply back.
    ///
    /// # Errors
    /// [`ScopeClosed`](RefusedReason::ScopeClosed) if the scope was [closed](Self::close),
    /// [`Closed`](RefusedReason::Closed) after a shutdown, [`Full`](RefusedReason::Full) at the
    /// bound. Send nothing then.
    pub fn expect(
        &self,
        timeout: impl Into<Timeout>,
    ) -> Result<(u64, WaitFuture<V>), RefusedReason> {
        let (number, at) = self.park(timeout.into(), || None)?;
        Ok((number, future(&self.handle, at)))
    }

    /// Expects up to `count` replies to a new request, as
    /// [`Replies::expect_many`](crate::Replies::expect_many) does; returns its number with them.
    /// O(1).
    ///
    /// # Errors
    /// An error as of [`expect`](Self::expect).
    pub fn expect_many(
        &self,
        count: usize,
        timeout: impl Into<Timeout>,
    ) -> Result<(u64, ReplyStream<V>), RefusedReason> {
        let buffer = Arc::new(Buffer::new(count, &self.handle.table.executor));
        let (number, at) = self.park(timeout.into(), || Some(buffer.clone()))?;
        let replies = ReplyStream::new(buffer, future(&self.handle, at));
        Ok((number, replies))
    }

    /// Parks a request; returns its number and its place. `None` if it had no time to wait.
    #[inline(always)]
    fn park(
        &self,
        timeout: Timeout,
        buffer: impl FnOnce() -> Option<Arc<Buffer<V>>>,
    ) -> Result<(u64, Option<TimerHandle>), RefusedReason> {
        let arrival = self.table().arrival(timeout);
        let mut shard = self.lock();
        // 1. A scope that was closed refuses all, and so does a form.
        let number = self.scope.last_number() + 1;
        if self.scope.is_closed() && !failpoint!(ClosedScopeExpects) {
            drop(shard);
            return Err(self.refused(RefusedReason::ScopeClosed));
        }
        if arrival.is_over && !shard.closed {
            self.scope.set_last_number(number);
            shard.count_at_once();
            return Ok((number, None));
        }
        if let Some(reason) = shard.refuses().or_else(|| self.table().take_place()) {
            drop(shard);
            return Err(self.refused(reason));
        }
        // 2. Park it at the end of the list.
        let hash = self.scope.hash_of(number);
        let request = |failures| Expected {
            key: self.id(number),
            hash,
            failures,
            member: Some(self.scope.place_at_end()),
            buffer: buffer(),
        };
        let table = self.table();
        let at = table.park_request(&mut shard, arrival, hash, request);
        self.scope.append(&mut *shard, at.index());
        self.scope.set_last_number(number);
        Ok((number, Some(at)))
    }

    #[cold]
    fn refused(&self, reason: RefusedReason) -> RefusedReason {
        self.table().report_refusal(reason);
        reason
    }

    /// Delivers a reply to the request with this number, and wakes its task. When this returns, the
    /// request has the value. O(1).
    ///
    /// # Errors
    /// Hands the value back if the request does not wait for it: [`Late`](RefusedReason::Late) if it
    /// ever did, else [`NotExpected`](RefusedReason::NotExpected). Neither is counted as refused.
    pub fn deliver(&self, number: u64, value: V) -> Result<(), Refused<V>> {
        let now_ns = self.table().ending_at();
        let mut shard = self.lock();
        let id = self.id(number);
        match find_to_end(&mut shard, self.scope.hash_of(number), |key| *key == id) {
            Some(found) => {
                self.table().hand_over_found(shard, found, value, now_ns);
                Ok(())
            }
            None => {
                let was_asked = (1..=self.scope.last_number()).contains(&number);
                let reason = if was_asked {
                    RefusedReason::Late
                } else {
                    RefusedReason::NotExpected
                };
                Err(Refused::new(value, reason))
            }
        }
    }

    /// Delivers this value to each request with this number or a lower one that waits, as one
    /// confirmation for all messages before it; returns how many those are. All of them end before
    /// the first task is woken. O(n) for n requests, under one lock each for counting and for
    /// delivering them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::ReplyScopes;
    ///
    /// let publishers = ReplyScopes::new("publishers")?;
    /// let channel = publishers.scope();
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
        // 2. A value for each, made with nothing locked.
        let mut values = vec![value; count];

        // 3. Deliver it to the requests that still wait.
        let call = self.table().enter();
        let now_ns = self.table().ending_at();
        let mut batch = Batch::new();
        let mut shard = self.lock();
        while let Some(first) = self.scope.first() {
            let (_, first_number) = shard.wait(first).key;
            if first_number > number {
                break;
            }
            let Some(value) = values.pop() else { break };
            let table = self.table();
            table.answer_into(&mut shard, first, value, now_ns, &mut batch);
        }
        drop(shard);
        let delivered = batch.len();
        self.table().finish_all(&call, batch);
        self.table().call_in_turn(&call, || drop(values));
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

    /// Moves the request with this number to another scope of the same client, as a connection is
    /// replaced and its requests are sent again; returns its number there. Its task, its deadline
    /// and its [id](WaitFuture::id) stay. A reply under the old number is late from here on. A
    /// [`cancel_all`](crate::Waits::cancel_all) that runs meanwhile may pass it by. O(levels of the
    /// wheel), under the locks of both scopes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use purgatory::ReplyScopes;
    ///
    /// let client = ReplyScopes::new("client")?;
    /// let lost = client.scope();
    /// let (number, reply) = lost.expect(Duration::from_secs(30))?; // sent over the connection ...
    ///
    /// let next = client.scope(); // ... which is lost
    /// let again = lost.reassign(number, &next)?; // registered, so now send it again
    /// assert_eq!(lost.close("connection lost"), 0);
    /// next.deliver(again, "pong")?;
    /// assert_eq!(reply.wait_blocking()?, "pong");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotExpected`](RefusedReason::NotExpected) if no request waits under this number, or if a
    /// [`fail_all`](crate::ReplyScopes::fail_all) is about to fail it.
    /// [`ScopeClosed`](RefusedReason::ScopeClosed), [`Closed`](RefusedReason::Closed) or
    /// [`Full`](RefusedReason::Full) as of [`expect`](Self::expect) if `to` cannot take it; then it
    /// stays where it is.
    ///
    /// # Panics
    /// Panics if `to` is a scope of other [`ReplyScopes`](crate::ReplyScopes).
    pub fn reassign(&self, number: u64, to: &ReplyScope<V>) -> Result<u64, RefusedReason> {
        let table = self.table();
        let is_same = Arc::ptr_eq(table, to.table());
        assert!(is_same, "the scopes are not of the same `ReplyScopes`");
        // 1. Both shards stay locked, so that the request is in one of the scopes at any time.
        let (mut from, other) = table.lock_two(self.scope.hash, to.scope.hash);
        let index = self.find(&from, number);
        let Some(index) = index.filter(|&index| !table.is_failing(from.wait(index))) else {
            return Err(RefusedReason::NotExpected);
        };
        if to.scope.is_closed() {
            return Err(RefusedReason::ScopeClosed);
        }
        // 2. One in the same shard has its entry already.
        let Some(mut other) = other else {
            take_off_list(&mut from, index);
            return Ok(to.put_on_list(&mut from, index));
        };
        if let Some(reason) = other.refuses() {
            return Err(reason);
        }
        take_off_list(&mut from, index);
        let moved = from.move_to(index, &mut other);
        let number = to.put_on_list(&mut other, moved.id().index());
        // 3. The second may signal the reaper once it is unlocked.
        drop(from);
        drop(other);
        Ok(number)
    }

    /// Adds a request that is in no scope, under the next number. Called under the lock.
    fn put_on_list(&self, shard: &mut Locked<'_, RequestId, V>, index: u32) -> u64 {
        let number = self.scope.last_number() + 1;
        let hash = self.scope.hash_of(number);
        let request = shard.wait_mut(index);
        request.key = self.id(number);
        request.hash = hash;
        request.member = Some(self.scope.place_at_end());
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
    /// refuses those expected from now on. Returns how many this call failed.
    ///
    /// A request that another thread is expecting meanwhile is failed or refused. For both
    /// `is_shutdown` is true. Make a new scope for the next connection. O(n) for n requests of the
    /// scope, under one lock.
    pub fn close(&self, reason: impl Into<Reason>) -> usize {
        self.fail(CancelReason::Closed(reason.into()), true)
    }

    /// Returns true once the scope was [closed](Self::close). O(1), without a lock.
    pub fn is_closed(&self) -> bool {
        self.scope.is_closed()
    }

    /// Ends all requests that are on the list now.
    fn fail(&self, reason: CancelReason, closes: bool) -> usize {
        let call = self.table().enter();
        let now_ns = self.table().ending_at();
        let outcome = Outcome::Cancelled(reason);
        let mut batch = Batch::new();
        let mut shard = self.lock();
        if closes {
            self.scope.close();
        }
        while let Some(first) = self.scope.first() {
            let id = shard.wheel.id_at(first);
            shard.end(&self.table().engine, id, &outcome, now_ns, &mut batch);
        }
        drop(shard);
        let count = batch.len();
        self.table().finish_all(&call, batch);
        count
    }

    /// Finds the request with this number that waits. O(1).
    #[inline(always)]
    fn find(&self, shard: &Locked<'_, RequestId, V>, number: u64) -> Option<u32> {
        let id = self.id(number);
        let is_it = |index| shard.wait(index).key == id;
        shard.records.find(self.scope.hash_of(number), is_it)
    }

    /// Returns the name of a request.
    fn id(&self, number: u64) -> RequestId {
        (self.scope.number, number)
    }

    fn table(&self) -> &Arc<Requested<RequestId, V>> {
        &self.handle.table
    }

    /// Locks the shard of this scope.
    #[inline]
    fn lock(&self) -> Locked<'_, RequestId, V> {
        self.table().shard_of(self.scope.hash)
    }
}

/// Takes a request that goes on off the table and the list of its scope.
fn take_off_list<V: Send + 'static>(shard: &mut Locked<'_, RequestId, V>, index: u32) {
    let request = shard.wait_mut(index);
    let hash = request.hash;
    let member = request.member.take();
    shard.records.remove(hash, index);
    if let Some(member) = member {
        member.leave_list(&mut **shard);
    }
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
