//! The example broker: frames of several connections, with time, followers and hang-ups between
//! them. The body is the broker's own, which its tests throw malformed frames through, too.

/// Runs one session; see [`broker_example::fuzz::run`].
///
/// # Panics
/// When a request has no answer or two, or something stays behind.
pub fn run(data: &[u8]) {
    broker_example::fuzz::run(data);
}
