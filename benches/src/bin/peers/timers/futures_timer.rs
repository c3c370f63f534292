//! futures-timer's `Delay`: registered with the process's one helper thread when it is made.

use std::time::Duration;

use futures_timer::Delay;

use super::polled::Sleeps;

pub(crate) struct FuturesTimer;

impl Sleeps for FuturesTimer {
    const NAME: &'static str = "futures-timer";
    type Sleep = Delay;

    fn sleep(delay: Duration) -> Delay {
        Delay::new(delay)
    }
}
