//! The pipeline of one connection: its responses in the order of the requests, whichever is ready
//! first.
//!
//! A request takes a place when it is read and fills it when its answer is known, at once or when
//! its parked operation ends; the connection's writer takes from the front. Both ends are bounded:
//! with all places taken, or too many bytes of requests and responses in them, no further request
//! is read, so a client that does not read its responses is not read from either. The records of a
//! fetch are read when it is their turn, so a connection has one response with records in memory
//! and not one for each place.

use std::{collections::VecDeque, sync::Arc};

use anyhow::Context;
use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{FetchRequest, ResponseHeader};
use kafka_protocol::protocol::{Encodable, HeaderVersion};
use parking_lot::{Condvar, Mutex};

/// Bytes in the places, frames of requests and of responses, above which no further request is
/// read.
const BYTES_MAX: usize = 4 << 20;

pub(crate) struct Pipeline {
    /// The connection's number.
    pub(crate) connection: u64,
    state: Mutex<State>,
    /// The front is filled, a place is free, or it is over.
    changed: Condvar,
    places_max: u16,
}

#[derive(Default)]
struct State {
    /// In the order of the requests.
    places: VecDeque<Place>,
    /// The number of the place at the front.
    front: usize,
    /// In all places.
    bytes: usize,
    /// No more requests come.
    finished: bool,
    /// Nothing can be written any more.
    broken: bool,
}

struct Place {
    /// Of the request (what is parked may hold on to its frame) and of the response.
    bytes: usize,
    /// `None`: not known yet.
    answer: Option<Answer>,
}

/// What fills a place.
pub(crate) enum Answer {
    /// A whole frame.
    Response(BytesMut),
    /// Records to be read now.
    Fetch { request: FetchRequest, version: i16, correlation_id: i32 },
    /// The client expects no response.
    Nothing,
    /// There is no answer where one is due: a panic, or a response that cannot be encoded.
    Lost,
}

impl Pipeline {
    pub(crate) fn new(connection: u64, places_max: u16) -> Arc<Pipeline> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Pipeline { connection, state, changed, places_max })
    }

    /// Takes the next place, for a request of so many bytes, after waiting for one; `None`: nothing
    /// can be written any more.
    pub(crate) fn place(self: &Arc<Self>, bytes: usize, version: i16, id: i32) -> Option<Reply> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| {
            (state.places.len() >= self.places_max.into() || state.bytes > BYTES_MAX)
                && !state.broken
        });
        if state.broken {
            return None;
        }
        let place = state.front + state.places.len();
        state.places.push_back(Place { bytes, answer: None });
        state.bytes += bytes;
        let pipeline = Arc::clone(self);
        Some(Reply { pipeline, place, version, correlation_id: id })
    }

    /// The answer at the front, after waiting for it; `None` after the last.
    pub(crate) fn next(&self) -> Option<Answer> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| match state.places.front() {
            Some(place) => place.answer.is_none(),
            None => !state.finished,
        });
        let place = state.places.pop_front()?;
        state.front += 1;
        state.bytes -= place.bytes;
        self.changed.notify_all();
        place.answer
    }

    /// The first answer counts. A place leaves at the front with it, or was given up: then it is
    /// too late.
    fn fill(&self, number: usize, answer: Answer) {
        let bytes = if let Answer::Response(frame) = &answer { frame.len() } else { 0 };
        let mut state = self.state.lock();
        let index = number.wrapping_sub(state.front);
        if let Some(place) = state.places.get_mut(index).filter(|place| place.answer.is_none()) {
            place.bytes += bytes;
            place.answer = Some(answer);
            state.bytes += bytes;
            self.changed.notify_all();
        }
    }

    /// No more requests come, and nobody waits for the answers: [`Pipeline::next`] ends where one
    /// is not known yet.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        state.finished = true;
        for place in &mut state.places {
            place.answer.get_or_insert(Answer::Lost);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing can be written any more: [`Pipeline::place`] waits for nothing.
    pub(crate) fn break_off(&self) {
        self.state.lock().broken = true;
        self.changed.notify_all();
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
    pub(crate) fn send<T: Encodable + HeaderVersion>(self, body: &T) {
        match response(body, self.version, self.correlation_id) {
            Ok(frame) => self.fill(Answer::Response(frame)),
            Err(error) => tracing::error!("a response cannot be encoded: {error:#}"),
        }
    }

    pub(crate) fn send_fetch(self, request: FetchRequest) {
        let (version, correlation_id) = (self.version, self.correlation_id);
        self.fill(Answer::Fetch { request, version, correlation_id });
    }

    pub(crate) fn send_nothing(self) {
        self.fill(Answer::Nothing);
    }

    fn fill(self, answer: Answer) {
        self.pipeline.fill(self.place, answer);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.pipeline.fill(self.place, Answer::Lost);
    }
}

/// A whole frame. Encoding is strict: a field that the version lacks must not be set.
pub(crate) fn response<T: Encodable + HeaderVersion>(
    body: &T,
    version: i16,
    correlation_id: i32,
) -> anyhow::Result<BytesMut> {
    let mut frame = BytesMut::new();
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
            self.state.lock().places.front().is_some_and(|place| place.answer.is_some())
        }
    }

    /// The correlation id of the next answer.
    fn next_id(pipeline: &Pipeline) -> Option<u8> {
        match pipeline.next()? {
            Answer::Response(frame) => Some(frame[7]),
            _ => Some(0),
        }
    }

    #[test]
    fn answers_leave_in_the_order_of_the_places_and_a_lost_one_is_told() {
        let pipeline = Pipeline::new(0, 4);
        let [first, second, lost, nothing] =
            [1, 2, 3, 4].map(|id| pipeline.place(0, 0, id).unwrap());
        nothing.send_nothing();
        drop(lost);
        second.send(&ApiVersionsResponse::default());
        assert!(!pipeline.is_ready());
        first.send(&ApiVersionsResponse::default());
        assert_eq!((next_id(&pipeline), next_id(&pipeline)), (Some(1), Some(2)));
        assert!(matches!(pipeline.next(), Some(Answer::Lost)));
        assert!(matches!(pipeline.next(), Some(Answer::Nothing)));
        // There is no such version to encode it in.
        pipeline.place(0, 99, 5).unwrap().send(&ApiVersionsResponse::default());
        assert!(matches!(pipeline.next(), Some(Answer::Lost)));
        pipeline.finish();
        assert!(pipeline.next().is_none());
    }

    #[test]
    fn what_has_no_answer_when_the_client_is_gone_is_given_up() {
        let pipeline = Pipeline::new(0, 4);
        let [first, waits] = [1, 2].map(|id| pipeline.place(0, 0, id).unwrap());
        first.send(&ApiVersionsResponse::default());
        pipeline.finish();
        assert_eq!(next_id(&pipeline), Some(1));
        assert!(matches!(pipeline.next(), Some(Answer::Lost)));
        waits.send(&ApiVersionsResponse::default());
        assert!(pipeline.next().is_none(), "too late");
    }

    #[test]
    fn no_place_is_given_while_all_are_taken_or_too_many_bytes_wait() {
        let pipeline = Pipeline::new(0, 2);
        let large = ApiVersionsResponse::default()
            .with_api_keys(vec![Default::default(); BYTES_MAX / 6 + 1]);
        for taken in [vec![1_u8, 2], vec![3]] {
            let mut replies: Vec<_> =
                taken.iter().map(|id| pipeline.place(0, 0, i32::from(*id)).unwrap()).collect();
            if let Some(large_reply) = replies.pop_if(|_| taken.len() == 1) {
                large_reply.send(&large);
            }
            thread::scope(|scope| {
                let next = scope.spawn(|| pipeline.place(0, 0, 9).unwrap());
                replies.into_iter().for_each(|reply| reply.send(&ApiVersionsResponse::default()));
                assert_eq!(next_id(&pipeline), Some(taken[0]));
                next.join().unwrap().send_nothing();
            });
            while pipeline.is_ready() {
                pipeline.next();
            }
        }
        let _taken = [pipeline.place(0, 0, 1), pipeline.place(0, 0, 2)];
        pipeline.break_off();
        assert!(pipeline.place(0, 0, 3).is_none(), "nothing to wait for any more");
    }
}
