//! async-io's `Timer`: registers with the process's one reactor when it is first polled.

use std::time::Duration;

use async_io::Timer;

use super::polled::Sleeps;

pub(crate) struct AsyncIo;

impl Sleeps for AsyncIo {
    const NAME: &'static str = "async-io";
    type Sleep = Timer;

    fn sleep(delay: Duration) -> Timer {
        Timer::after(delay)
    }

    fn is_pending(sleep: &Timer) -> bool {
        sleep.will_fire()
    }
}
