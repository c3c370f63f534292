//! The example broker: frames of several connections, with time, followers and hang-ups between
//! them. The body is the broker's own; its tests feed malformed frames to it, too.

/// Runs one session; see [`broker_example::fuzz::run`].
///
/// # Panics
/// When a request has no answer, or another's, or something remains at the end.
pub fn run(data: &[u8]) {
    broker_example::fuzz::run(data);
}
