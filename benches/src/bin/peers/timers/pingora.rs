//! pingora-timeout's `fast_sleep`, for time-outs that rarely fire: registered when it is polled, in
//! steps of 10 ms, those of a thread and step together; one that is dropped leaves its step behind.
//! Its longer sleeps are tokio's by default; here all are its own.

use std::{
    pin::{Pin, pin},
    task::Waker,
    time::Duration,
};

use pingora_timeout::fast_timeout::{
    fast_sleep, fast_timeout, set_fast_timeout_to_tokio_threshold,
};

use super::{
    first_poll::{answer, at_once, register},
    polled::Sleeps,
};

pub(crate) struct Pingora;

impl Sleeps for Pingora {
    const NAME: &'static str = "pingora-timeout";
    type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn set_up() {
        set_fast_timeout_to_tokio_threshold(None);
    }

    fn sleep(delay: Duration) -> Self::Sleep {
        Box::pin(fast_sleep(delay))
    }

    /// On the stack.
    fn schedule_cancel(delay: Duration) -> bool {
        register(pin!(fast_sleep(delay)), Waker::noop());
        true
    }

    fn timeout_ready(limit: Duration) -> bool {
        at_once(pin!(fast_timeout(limit, answer())))
    }
}
