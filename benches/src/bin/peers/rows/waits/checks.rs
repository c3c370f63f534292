//! The self-checks checked: waits that do none of what they should are found out by every row.

use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::task::yield_now;

use super::{
    bytes::Parked,
    crew::{Hire, Share},
    hot_key::HotKey,
    room::Room,
    tail::Tail,
};
use crate::{
    request::{Progress, Request},
    waits::{Contender, Visit, Waits},
};

/// Tells requests that they are over as soon as they are parked: once for each of these.
struct Broken<const COMPLETED: usize, const GIVEN_UP: usize, const LEFT: usize>;

impl<const COMPLETED: usize, const GIVEN_UP: usize, const LEFT: usize> Waits
    for Broken<COMPLETED, GIVEN_UP, LEFT>
{
    const NAME: &'static str = "broken";
    const LOOKS: u64 = 0;

    fn start() -> anyhow::Result<Self> {
        Ok(Broken)
    }

    fn park<const K: usize>(
        &self,
        _: [u64; K],
        _: Duration,
        request: Request,
    ) -> impl Future<Output = ()> + Send {
        (0..COMPLETED).for_each(|_| request.over(true));
        (0..GIVEN_UP).for_each(|_| request.over(false));
        poll_fn(|_| Poll::Ready(()))
    }

    fn event(&self, _: u64) {}

    fn left(&self) -> Option<usize> {
        Some(LEFT)
    }
}

/// Whether each row fails.
fn noticed<W: Waits>() -> [bool; 4] {
    let hire = Hire { threads: 1, keys: 1, share: Share::Same, half_foreign: false, others: 0 };
    let mut crew = hire.visit::<W>().unwrap();
    let worked = crew.work(8);
    let crew = worked.is_err() || crew.go_home().is_err();
    let bytes = Parked { requests: 8, keys: 1 }.visit::<W>().is_err();
    let hot_key = HotKey { requests: 8, events: 1 }.visit::<W>().is_err();
    let tail = Tail { events: 8 }.visit::<W>().is_err();
    [crew, bytes, hot_key, tail]
}

#[test]
fn a_request_that_is_given_up_is_noticed() {
    assert_eq!(noticed::<Broken<0, 1, 0>>(), [true; 4]);
}

#[test]
fn a_request_that_ends_twice_is_noticed() {
    assert_eq!(noticed::<Broken<2, 0, 0>>(), [true; 4]);
}

#[test]
fn what_is_left_behind_is_noticed() {
    assert_eq!(noticed::<Broken<1, 0, 1>>(), [true; 4]);
}

/// Lets a request time out.
struct TimesOut;

impl Visit for TimesOut {
    type Output = ();

    fn visit<W: Waits>(&self) {
        let room = Room::<W>::open(1).unwrap();
        let (waits, progress) = (room.waits.clone(), Progress::leaked());
        let parks = room.spawn(async move {
            let request = Request { progress, required: 1 };
            waits.park([1, 2, 3], Duration::from_millis(2), request).await;
            while progress.ended() == 0 {
                yield_now().await;
            }
        });
        room.join(parks).unwrap();
        assert_eq!((progress.completed(), progress.ended()), (0, 1), "{}", W::NAME);
        room.close().unwrap();
    }
}

#[test]
fn what_nobody_completes_times_out_and_leaves_nothing() {
    let contenders = Contender::FORMS.iter().flat_map(|(_, contenders)| *contenders);
    contenders.for_each(|contender| contender.visit(&TimesOut));
}
