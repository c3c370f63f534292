//! The self-checks checked: waits that do none of what they should are found out by every row. And
//! of every contender what the rows do not ask for: time-outs, and events that race with a park.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use fastrand::Rng;
use tokio::task::yield_now;

use super::{
    acks_all::{AcksAll, acks_all},
    bytes::parked,
    events::{hot_key, tail},
    expire::{Expire, expire},
    park::{Hire, Share, crew},
    room::{HOUR, Pending, Room, TIMEOUT, all_completed, begin, poll_once},
};
use crate::{
    contender::{Contender, Peer},
    produces::{Partition, Produce, Produces, produces},
    request::{Progress, Request, Wait},
    waits::{Waits, waits},
};

/// A time-out that runs out.
const SOON: Duration = Duration::from_millis(2);

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

impl<const COMPLETED: usize, const GIVEN_UP: usize, const LEFT: usize> Produces
    for Broken<COMPLETED, GIVEN_UP, LEFT>
{
    fn park(&self, _: usize, _: Duration, produce: Produce) -> impl Wait {
        produce.partition.reach(produce.offset);
        (0..COMPLETED).for_each(|_| produce.over(true));
        (0..GIVEN_UP).for_each(|_| produce.over(false));
        poll_fn(|_| Poll::Ready(()))
    }

    fn raise(&self, _: usize, _: u64) {}
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
        waits.park([1, 2, 3], SOON, request).await;
        while progress.ended() == 0 {
            yield_now().await;
        }
    }))?;
    assert_eq!((progress.completed(), progress.ended()), (0, 1), "{}", W::NAME);
    room.nothing_left()
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
        begun.store(number, Ordering::Release);
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
        while begun.load(Ordering::Acquire) < number {
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
    room.nothing_left()
}

#[test]
fn an_event_that_races_with_a_park_loses_nothing_and_leaves_nothing() {
    every_contender(waits!(races));
}

#[test]
fn a_produce_that_is_lost_given_up_ended_twice_or_left_behind_is_noticed() {
    for threads in [1, 2] {
        let row = AcksAll { threads, produces: 20, early: false };
        acks_all::<Broken<1, 0, 0>>(row).unwrap();
        assert!(acks_all::<Broken<0, 0, 0>>(row).is_err());
        assert!(acks_all::<Broken<0, 1, 0>>(row).is_err());
        assert!(acks_all::<Broken<2, 0, 0>>(row).is_err());
        assert!(acks_all::<Broken<1, 0, 1>>(row).is_err());
    }
}

/// Of four produces one partition's high watermark reaches two, whose time-outs are as short.
fn produces_time_out<P: Produces>((): ()) -> anyhow::Result<()> {
    let room = Room::<P>::open(1)?;
    let (waits, partitions) = (room.waits.clone(), Partition::leaked());
    let [reached, unreached] = [&partitions[1], &partitions[2]];
    let parks = room.spawn(async move {
        let mut pending = Pending::new();
        for (at, partition) in [(1, reached), (2, unreached)] {
            for offset in 1..=2 {
                let produce = Produce { partition, offset };
                begin(Box::pin(waits.park(at, SOON, produce)), &mut pending).await;
            }
        }
        reached.reach(2);
        waits.raise(1, 2);
        for wait in pending {
            wait.await;
        }
        while unreached.ended() < 2 {
            yield_now().await;
        }
    });
    room.join(parks)?;
    assert_eq!((reached.ended(), unreached.completed(), unreached.ended()), (2, 0, 2));
    assert_eq!(room.waits.left(), 0, "{}", P::NAME);
    Ok(())
}

#[test]
fn a_produce_that_is_not_reached_times_out_and_leaves_nothing() {
    every_contender(produces!(produces_time_out));
}

/// A high watermark that was raised before.
fn reached_before<P: Produces>((): ()) -> anyhow::Result<()> {
    let room = Room::<P>::open(1)?;
    let (waits, partition) = (room.waits.clone(), &Partition::leaked()[1]);
    room.join(room.spawn(async move {
        partition.reach(2);
        waits.raise(1, 2);
        waits.park(1, TIMEOUT, Produce { partition, offset: 2 }).await;
    }))?;
    assert_eq!((partition.completed(), room.waits.left()), (1, 0), "{}", P::NAME);
    Ok(())
}

#[test]
fn a_produce_that_was_reached_before_it_was_parked_is_over() {
    every_contender(produces!(reached_before));
}

/// A high watermark that is raised while what it reaches is being parked.
fn produces_race<P: Produces>((): ()) -> anyhow::Result<()> {
    acks_all::<P>(AcksAll { threads: 2, produces: 2000, early: true }).map(|_| ())
}

#[test]
fn a_raise_that_races_with_a_park_loses_nothing_and_leaves_nothing() {
    every_contender(produces!(produces_race));
}
