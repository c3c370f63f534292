//! Tests of the self-checks: every row detects waits that do nothing right.

use std::{future::poll_fn, task::Poll, time::Duration};

use super::{
    operations::{bytes_parked, hot_key},
    park::{Work, park},
};
use crate::{
    contender::Peer,
    request::{Request, Wait},
    waits::Waits,
};

/// Waits that end a request as soon as it is parked, `C` times as completed and `G` times as given
/// up, and then hold `R`.
struct Broken<const C: usize, const G: usize, const R: usize>;

impl<const C: usize, const G: usize, const R: usize> Peer for Broken<C, G, R> {
    const NAME: &'static str = "broken";

    fn start() -> anyhow::Result<Self> {
        Ok(Broken)
    }

    fn remaining(&self) -> usize {
        R
    }
}

impl<const C: usize, const G: usize, const R: usize> Waits for Broken<C, G, R> {
    const VAIN_CHECKS: u64 = 0;
    const CALLS_BACK: bool = true;

    fn park<const K: usize>(&self, _: [u64; K], _: Duration, request: Request) -> impl Wait {
        for _ in 0..C {
            request.end(true);
        }
        for _ in 0..G {
            request.end(false);
        }
        poll_fn(|_| Poll::Ready(()))
    }

    fn signal(&self, _: u64) {}
}

/// Returns whether each row fails.
fn noticed<W: Waits>() -> [bool; 3] {
    // The smallest work of each row.
    let work = Work {
        threads: 1,
        keys: 1,
        others: 0,
        operations: 8,
    };
    [
        park::<W>(work).is_err(),
        bytes_parked::<W>(8).is_err(),
        hot_key::<W>(8).is_err(),
    ]
}

#[test]
fn request_that_does_not_end_once_is_noticed() {
    assert_eq!(noticed::<Broken<0, 1, 0>>(), [true; 3], "given up");
    assert_eq!(noticed::<Broken<2, 0, 0>>(), [true; 3], "ended twice");
    assert_eq!(noticed::<Broken<1, 0, 1>>(), [true; 3], "still held");
}
