//! Feature `stream`: an [`Interval`] as a stream of its ticks.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::Stream;

use crate::timers::interval::Interval;

/// The ticks, as [`Interval::tick`] yields them: when each was due, in nanoseconds. It ends where
/// `tick` yields an error, when the timer was shut down or is full.
impl Stream for Interval {
    type Item = u64;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        self.poll_tick(context).map(Result::ok)
    }
}
