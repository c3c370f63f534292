//! The self-checks checked: waits that do none of what they should are found out by every row. And
//! of every contender what the rows do not ask for: time-outs, and events that race with a park.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
    task::Poll,
    time::Duration,
};

use fastrand::Rng;
use tokio::task::yield_now;

use super::{
    bytes::parked,
    crew::{Hire, Share, crew},
    expire::{Expire, expire},
    hot_key::hot_key,
    room::{HOUR, Pending, Room, all_completed, begin, poll_once},
    tail::tail,
};
use crate::{
    contender::Contender,
    request::{Progress, Request, Wait},
    waits::{Waits, waits},
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

    fn park<const K: usize>(&self, _: [u64; K], _: Duration, request: Request) -> impl Wait {
        (0..COMPLETED).for_each(|_| request.over(true));
        (0..GIVEN_UP).for_each(|_| request.over(false));
        poll_fn(|_| Poll::Ready(()))
    }

    fn event(&self, _: u64) {}

    fn left(&self) -> usize {
        LEFT
    }
}

/// Whether each row fails.
fn noticed<W: Waits>() -> [bool; 5] {
    let hire = Hire { threads: 1, keys: 1, share: Share::Same, half_foreign: false, others: 0 };
    let mut crew = crew::<W>(hire).unwrap();
    let worked = crew.work(8);
    let (window, lead) = (Duration::ZERO, Duration::from_secs(1));
    [
        worked.is_err() || crew.go_home().is_err(),
        parked::<W>((8, 1)).is_err(),
        hot_key::<W>((8, 1)).is_err(),
        tail::<W>(8).is_err(),
        expire::<W>(Expire { requests: 8, keys: 1, window, lead }).is_err(),
    ]
}

#[test]
fn a_request_that_is_given_up_is_noticed() {
    assert_eq!(noticed::<Broken<0, 1, 0>>(), [true; 5]);
}

#[test]
fn a_request_that_ends_twice_is_noticed() {
    assert_eq!(noticed::<Broken<2, 0, 0>>(), [true; 5]);
}

#[test]
fn what_is_left_behind_is_noticed() {
    assert_eq!(noticed::<Broken<1, 0, 1>>(), [true; 5]);
}

fn every_contender(forms: [(&str, Vec<Contender<(), ()>>); 2]) {
    let mut contenders = forms.into_iter().flat_map(|(_, contenders)| contenders);
    contenders.try_for_each(|one| (one.measure)(())).unwrap();
}

/// Lets a request time out.
fn times_out<W: Waits>((): ()) -> anyhow::Result<()> {
    let room = Room::<W>::open(1)?;
    let (waits, progress) = (room.waits.clone(), Progress::leaked());
    room.join(room.spawn(async move {
        let request = Request { progress, required: 1 };
        waits.park([1, 2, 3], Duration::from_millis(2), request).await;
        while progress.ended() == 0 {
            yield_now().await;
        }
    }))?;
    assert_eq!((progress.completed(), progress.ended()), (0, 1), "{}", W::NAME);
    room.close()
}

#[test]
fn what_nobody_completes_times_out_and_leaves_nothing() {
    every_contender(waits!(times_out));
}

const REQUESTS: u64 = 1000;

fn keys(number: u64) -> [u64; 20] {
    std::array::from_fn(|at| (number + at as u64) % 24)
}

async fn park<W: Waits>(waits: &W, progress: &'static Progress, begun: &AtomicU64) {
    let mut pending = Pending::new();
    for number in 1..=REQUESTS {
        begun.store(number, Release);
        let request = Request { progress, required: number };
        begin(Box::pin(waits.park(keys(number), HOUR, request)), &mut pending).await;
        let may_wait = if number < REQUESTS { number % 2 } else { 0 };
        while number.saturating_sub(progress.ended()) > may_wait {
            if let Some(mut wait) = pending.pop_front()
                && poll_once(wait.as_mut()).await.is_pending()
            {
                pending.push_front(wait);
            }
            yield_now().await;
        }
    }
}

async fn raise<W: Waits>(waits: &W, progress: &'static Progress, begun: &AtomicU64) {
    let mut random = Rng::with_seed(1);
    for number in 1..=REQUESTS {
        while begun.load(Acquire) < number {
            yield_now().await;
        }
        (0..random.u32(0..200)).for_each(|_| std::hint::spin_loop());
        progress.reach(number);
        waits.event(keys(number)[0]);
    }
}

/// Under the same few keys one thread parks requests, and another makes each ready and raises the
/// event of its first key, as often as not while it is being parked: twenty keys take a while.
fn races<W: Waits>((): ()) -> anyhow::Result<()> {
    let room = Room::<W>::open(2)?;
    let (progress, begun) = (Progress::leaked(), Arc::new(AtomicU64::new(0)));
    let (waits, announces) = (room.waits.clone(), begun.clone());
    let parks = room.spawn(async move { park(&*waits, progress, &announces).await });
    let waits = room.waits.clone();
    let raises = room.spawn(async move { raise(&*waits, progress, &begun).await });
    room.join(parks)?;
    room.join(raises)?;
    all_completed::<W>(progress, REQUESTS)?;
    room.close()
}

#[test]
fn an_event_that_races_with_a_park_loses_nothing_and_leaves_nothing() {
    every_contender(waits!(races));
}
