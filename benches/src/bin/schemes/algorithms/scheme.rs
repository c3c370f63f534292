//! The interface of a timer algorithm: [`Scheme`].

use std::{error::Error, fmt};

/// The value that a timer hands over when it fires.
pub(crate) type Task = u64;

/// A timer algorithm. Time is told in ticks, and its present begins at 0.
///
/// `Default` makes it as it is measured: for ticks of a second and delays below a day.
pub(crate) trait Scheme: Default {
    /// The name in the output.
    const NAME: &'static str;
    /// Its cost among `n` pending timers, by the book.
    const CLAIM: Claim;
    /// Names a timer, and never another one later.
    type Handle: Copy + fmt::Debug;

    /// Starts a timer that fires on the `delay`-th tick from now. The present tick is over, so 0
    /// counts as 1; a deadline beyond `u64` counts as its end.
    fn start(&mut self, delay: u64, task: Task) -> Result<Self::Handle, Refused>;

    /// Stops a timer. False when it has fired or was stopped before.
    fn stop(&mut self, handle: Self::Handle) -> bool;

    /// Moves the present on by one tick; due tasks join `fired`. A scheme has this or the next.
    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.advance(1, fired);
    }

    /// Moves the present on by `ticks`; due tasks join `fired` in order of deadline. A scheme that
    /// knows its next deadline does not stop in between.
    fn advance(&mut self, ticks: u64, fired: &mut Vec<Task>) {
        (0..ticks).for_each(|_| self.tick(fired));
    }

    /// How many timers are pending.
    fn pending(&self) -> usize;
}

/// The claimed cost of each measure: a start, a stop, a tick in which nothing falls due or is
/// handed down, and the expiry of one timer, from its start on, without the empty ticks.
pub(crate) type Claim = [&'static str; 4];

/// A delay that the scheme has no place for. The task comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct Refused {
    pub(crate) delay: u64,
    /// The longest delay that is taken: MaxInterval.
    pub(crate) delay_max: u64,
    pub(crate) task: Task,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused {
            delay,
            delay_max,
            task,
        } = self;
        write!(
            f,
            "task {task}: a delay of {delay} ticks where at most {delay_max} are taken"
        )
    }
}

impl Error for Refused {}
