//! The pipeline of one connection: its responses in the order of the requests, whichever is ready
//! first.
//!
//! A request takes a place when it is read and fills it when its answer is known, at once or when
//! its parked operation ends; the connection's writer takes from the front. Both ends are bounded:
//! with all places taken, or too many bytes of requests in them, no further request
//! is read, so a client that does not read its responses is not read from either. A response is
//! made when it is its turn, so a connection has one of them in memory and not one for each place.
//!
//! Over all connections both are bounded by [`Memory`]: a request has its share from the moment it
//! is read until its response is written, a response from when it is made.

use std::{collections::VecDeque, mem, sync::Arc};

use anyhow::{Context, Result};
use bytes::{BufMut, BytesMut};
use kafka_protocol::{messages::ResponseHeader, protocol::Encodable, protocol::HeaderVersion};
use parking_lot::{Condvar, Mutex};

use crate::memory::{Account, Memory, Share};

/// Requests of one connection that wait for their answers; no further one is read.
pub(crate) const PLACES_MAX: usize = 32;
/// Bytes of the requests in the places above which no further request is read.
pub(crate) const BYTES_MAX: usize = 4 << 20;
/// Of a response: the length, the correlation id.
const HEADER_BYTES: usize = 4 + 4;

pub(crate) struct Pipeline {
    pub(crate) requests: Arc<Account>,
    pub(crate) responses: Arc<Account>,
    state: Mutex<State>,
    /// The front is filled, a place is free, or it is over.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of the requests: the memory that the request has (what is parked may hold on to
    /// its frame), and its answer once it is known.
    places: VecDeque<(Share, Option<Answer>)>,
    /// The number of the place at the front.
    front: usize,
    /// In all places.
    bytes: usize,
    /// No more requests come.
    finished: bool,
}

pub(crate) type InTurn = dyn FnOnce(&mut Share) -> Result<BytesMut> + Send;

/// What fills a place.
pub(crate) enum Answer {
    /// To be made now: a whole frame.
    Response(Box<InTurn>),
    /// The client expects no response.
    Nothing,
    /// There is no answer where one is due: a panic, or a client that is gone.
    Lost,
}

impl Pipeline {
    /// Of the connection with this number; with the memory that requests may take, and responses.
    pub(crate) fn new(connection: u64, memory: &[Arc<Memory>; 2]) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let [requests, responses] = memory.each_ref().map(|memory| memory.account(connection));
        Arc::new(Pipeline { requests, responses, state, changed })
    }

    /// Takes the next place, for a request with this share of memory, after waiting for one;
    /// `None`: nothing can be written any more.
    pub(crate) fn place(self: &Arc<Self>, share: Share, version: i16, id: i32) -> Option<Reply> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| {
            let full = state.places.len() >= PLACES_MAX || state.bytes > BYTES_MAX;
            full && !state.finished
        });
        if state.finished {
            return None;
        }
        let place = state.front + state.places.len();
        state.bytes += share.bytes;
        state.places.push_back((share, None));
        let pipeline = Arc::clone(self);
        Some(Reply { pipeline, place, version, correlation_id: id })
    }

    /// The answer at the front, after waiting for it, and what its request has of the memory;
    /// `None` after the last.
    pub(crate) fn next(&self) -> Option<(Answer, Share)> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| match state.places.front() {
            Some((_, answer)) => answer.is_none(),
            None => !state.finished,
        });
        let (share, answer) = state.places.pop_front()?;
        state.front += 1;
        state.bytes -= share.bytes;
        self.changed.notify_all();
        Some((answer?, share))
    }

    /// The first answer counts. A place leaves at the front with it, or was given up: then it is
    /// too late.
    fn fill(&self, number: usize, answer: Answer) {
        let mut state = self.state.lock();
        let index = number.wrapping_sub(state.front);
        if let Some((_, place @ None)) = state.places.get_mut(index) {
            *place = Some(answer);
            self.changed.notify_all();
        }
    }

    /// No more requests come, and nobody waits for the answers: [`Pipeline::next`] ends where one
    /// is not known yet.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        state.finished = true;
        for (_, answer) in &mut state.places {
            answer.get_or_insert(Answer::Lost);
        }
        self.changed.notify_all();
    }

    /// Nothing can be written any more: nothing is waited for, and what is there is given up.
    pub(crate) fn break_off(&self) {
        let mut state = self.state.lock();
        state.finished = true;
        state.front += state.places.len();
        let given_up = mem::take(&mut state.places);
        drop(state);
        drop(given_up);
        self.changed.notify_all();
        self.requests.cut();
        self.responses.cut();
    }
}

/// The place of one request's answer. Dropped without one, the connection is closed.
pub(crate) struct Reply {
    pub(crate) pipeline: Arc<Pipeline>,
    place: usize,
    pub(crate) version: i16,
    correlation_id: i32,
}

impl Reply {
    pub(crate) fn send<T: Encodable + HeaderVersion + Send + 'static>(self, body: T) {
        self.send_in_turn(|_| Ok(body));
    }

    /// For what may be large: its body, too, is made when it is its turn, in memory that is taken.
    pub(crate) fn send_in_turn<T: Encodable + HeaderVersion>(
        self,
        body: impl FnOnce(&mut Share) -> Result<T> + Send + 'static,
    ) {
        let (version, id) = (self.version, self.correlation_id);
        let in_turn = move |share: &mut Share| {
            let body = body(share)?;
            share.take(body.compute_size(version)?)?;
            response(&body, version, id)
        };
        self.pipeline.fill(self.place, Answer::Response(Box::new(in_turn)));
    }

    pub(crate) fn send_nothing(self) {
        self.pipeline.fill(self.place, Answer::Nothing);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.pipeline.fill(self.place, Answer::Lost);
    }
}

/// A whole frame. A field that the version lacks is left out; encoding fails where the protocol
/// does not allow that.
pub(crate) fn response<T: Encodable + HeaderVersion>(
    body: &T,
    version: i16,
    correlation_id: i32,
) -> Result<BytesMut> {
    let mut frame = BytesMut::with_capacity(body.compute_size(version)? + HEADER_BYTES);
    frame.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    header.encode(&mut frame, T::header_version(version))?;
    body.encode(&mut frame, version)?;
    let length = i32::try_from(frame.len() - 4).context("response too large")?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use kafka_protocol::messages::ApiVersionsResponse;

    use super::*;

    impl Pipeline {
        /// Whether [`Pipeline::next`] would not wait.
        pub(crate) fn is_ready(&self) -> bool {
            self.state.lock().places.front().is_some_and(|(_, answer)| answer.is_some())
        }
    }

    fn pipeline() -> Arc<Pipeline> {
        Pipeline::new(0, &[usize::MAX; 2].map(Memory::new))
    }

    fn place(pipeline: &Arc<Pipeline>, version: i16, id: i32) -> Option<Reply> {
        pipeline.place(pipeline.requests.share(), version, id)
    }

    /// The correlation id of the next answer.
    fn next_id(pipeline: &Pipeline) -> Option<u8> {
        match pipeline.next()?.0 {
            Answer::Response(frame) => Some(frame(&mut pipeline.responses.share()).unwrap()[7]),
            _ => Some(0),
        }
    }

    #[test]
    fn answers_leave_in_the_order_of_the_places_and_one_that_is_lost_or_given_up_is_told() {
        let pipeline = pipeline();
        let [first, second, lost, nothing] =
            [1, 2, 3, 4].map(|id| place(&pipeline, 0, id).unwrap());
        nothing.send_nothing();
        drop(lost);
        second.send(ApiVersionsResponse::default());
        assert!(!pipeline.is_ready());
        first.send(ApiVersionsResponse::default());
        assert_eq!((next_id(&pipeline), next_id(&pipeline)), (Some(1), Some(2)));
        assert!(matches!(pipeline.next(), Some((Answer::Lost, _))));
        assert!(matches!(pipeline.next(), Some((Answer::Nothing, _))));
        // There is no such version to encode it in.
        place(&pipeline, 99, 5).unwrap().send(ApiVersionsResponse::default());
        let Some((Answer::Response(response), _)) = pipeline.next() else { panic!("no response") };
        assert!(response(&mut pipeline.responses.share()).is_err());
        // What has no answer when the client is gone is given up.
        let [first, waits] = [1, 2].map(|id| place(&pipeline, 0, id).unwrap());
        first.send(ApiVersionsResponse::default());
        pipeline.finish();
        assert_eq!(next_id(&pipeline), Some(1));
        assert!(matches!(pipeline.next(), Some((Answer::Lost, _))));
        waits.send(ApiVersionsResponse::default());
        assert!(pipeline.next().is_none(), "too late");
    }

    #[test]
    fn no_place_is_given_while_all_are_taken_or_too_many_bytes_wait() {
        let pipeline = pipeline();
        for (places, bytes) in [(PLACES_MAX as u8, 0), (1, BYTES_MAX + 1)] {
            let place = |id: u8| {
                let mut share = pipeline.requests.share();
                share.take(bytes).unwrap();
                pipeline.place(share, 0, id.into()).unwrap()
            };
            let replies: Vec<_> = (1..=places).map(place).collect();
            thread::scope(|scope| {
                let next = scope.spawn(|| super::tests::place(&pipeline, 0, 9).unwrap());
                replies.into_iter().for_each(|reply| reply.send(ApiVersionsResponse::default()));
                assert_eq!(next_id(&pipeline), Some(1));
                next.join().unwrap().send_nothing();
            });
            while pipeline.is_ready() {
                pipeline.next();
            }
        }
        let _taken = [(); PLACES_MAX].map(|()| place(&pipeline, 0, 1));
        pipeline.break_off();
        assert!(place(&pipeline, 0, 3).is_none(), "nothing to wait for any more");
        assert!(pipeline.next().is_none(), "what is there is given up");
    }
}
