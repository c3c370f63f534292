//! The example broker: frames of several connections, with time, followers and hang-ups between
//! them. The body is in the broker, whose tests also feed malformed frames to it.

/// Runs one session; see [`broker_example::fuzz::run`].
///
/// # Panics
/// When a request has no answer or another request's, or something remains at the end.
pub fn run(data: &[u8]) {
    broker_example::fuzz::run(data);
}
