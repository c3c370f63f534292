//! The self-checks checked: waits that do none of what they should are found out by every row.

use std::{future::poll_fn, task::Poll, time::Duration};

use super::{
    operations::{hot_key, parked_under},
    park::{Work, park},
};
use crate::{
    contender::Peer,
    request::{Request, Wait},
    waits::Waits,
};

/// Tells requests that they are over as soon as they are parked: once for each of these.
struct Broken<const COMPLETED: usize, const GIVEN_UP: usize, const LEFT: usize>;

impl<const COMPLETED: usize, const GIVEN_UP: usize, const LEFT: usize> Peer
    for Broken<COMPLETED, GIVEN_UP, LEFT>
{
    const NAME: &'static str = "broken";

    fn start() -> anyhow::Result<Self> {
        Ok(Broken)
    }

    fn left(&self) -> usize {
        LEFT
    }
}

impl<const COMPLETED: usize, const GIVEN_UP: usize, const LEFT: usize> Waits
    for Broken<COMPLETED, GIVEN_UP, LEFT>
{
    const LOOKS: u64 = 0;

    fn park<const K: usize>(&self, _: [u64; K], _: Duration, request: Request) -> impl Wait {
        (0..COMPLETED).for_each(|_| request.over(true));
        (0..GIVEN_UP).for_each(|_| request.over(false));
        poll_fn(|_| Poll::Ready(()))
    }

    fn event(&self, _: u64) {}
}

/// Whether each row fails.
fn noticed<W: Waits>() -> [bool; 3] {
    let (apart, half_foreign, others) = (false, false, 0);
    let work = Work {
        threads: 1,
        keys: 1,
        apart,
        half_foreign,
        others,
        operations: 8,
    };
    [
        park::<W>(work).is_err(),
        parked_under::<W>((8, 1)).is_err(),
        hot_key::<W>(8).is_err(),
    ]
}

#[test]
fn request_that_does_not_end_once_is_noticed() {
    assert_eq!(noticed::<Broken<0, 1, 0>>(), [true; 3]); // given up
    assert_eq!(noticed::<Broken<2, 0, 0>>(), [true; 3]); // twice
    assert_eq!(noticed::<Broken<1, 0, 1>>(), [true; 3]); // left behind
}
