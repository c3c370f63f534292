//! Waits for a high watermark: acks=all, and two waits with one deadline.

use purgatory::{
    EndResult, Monitor, OperationId,
    Outcome::{Cancelled, Completed, Expired},
    ParkResult, RefusedReason, WaitError,
};

use super::{
    guide::{
        acks_all::{DelayedProduce, Partition},
        deadline::Produces,
    },
    *,
};

/// A partition, and a client that is told the offset of each of its produces and how it ended.
struct Orders {
    partition: Arc<Partition>,
    client: mpsc::Sender<(u64, Outcome)>,
    answers: mpsc::Receiver<(u64, Outcome)>,
}

impl Orders {
    fn over(produces: Purgatory<&'static str, DelayedProduce>) -> Orders {
        let (client, answers) = mpsc::channel();
        let partition = Partition { name: "orders-0", high_watermark: Arc::default(), produces };
        Orders { partition: Arc::new(partition), client, answers }
    }

    fn produce(&self, offset: u64) -> Result<ParkResult, RefusedReason> {
        let client = self.client.clone();
        let answer = move |outcome| _ = client.send((offset, outcome)); // it may have gone
        self.partition.produce(offset, answer).map_err(RefusedReason::from)
    }

    #[track_caller]
    fn waits(&self, offset: u64) -> OperationId {
        let Ok(ParkResult::Parked(id)) = self.produce(offset) else { panic!("it does not wait") };
        id
    }
}

/// And a produce inside an answer finds the watermark that completed it.
#[test]
fn a_rise_answers_what_it_reaches() {
    let orders = Orders::over(by_hand().1);
    for offset in [3, 1, 2] {
        orders.waits(offset);
    }
    let (inside, client) = (orders.partition.clone(), orders.client.clone());
    let again = move |_| {
        let answer = move |outcome| client.send((9, outcome)).unwrap();
        assert!(matches!(inside.produce(9, answer), Ok(ParkResult::Ended(Completed))));
    };
    orders.partition.produce(4, again).unwrap();
    // Twice, or lower, it answers nothing; and the watermark does not fall.
    assert_eq!([2, 2, 1].map(|offset| orders.partition.replicated(offset)), [2, 0, 0]);
    told(&orders.answers, &[(1, Completed), (2, Completed)]);
    assert_eq!(orders.produce(2), Ok(ParkResult::Ended(Completed)));
    assert_eq!(orders.partition.replicated(9), 2);
    told(&orders.answers, &[(2, Completed), (3, Completed), (9, Completed)]);
    orders.partition.produces.nothing_is_left();
}

/// A rise that comes too late changes nothing, before the answer was given and after it.
#[test]
fn a_produce_never_replicated_expires() {
    let (timer, produces, later) = by_hand_and_late();
    let orders = Orders::over(produces);
    orders.waits(1);
    timer.advance(30 * SECOND - MS);
    assert_eq!(later.run(), 0);
    timer.advance(MS);
    assert_eq!(orders.partition.replicated(1), 0);
    later.run();
    told(&orders.answers, &[(1, Expired)]);
    assert_eq!(orders.partition.replicated(2), 0);
    orders.partition.produces.nothing_is_left();
}

#[test]
fn gone_clients_changed_leaders_and_a_shutdown() {
    let orders = Orders::over(by_hand().1);
    let produces = &orders.partition.produces;
    let gone = orders.waits(2);
    assert_eq!(produces.cancel(gone, "connection closed"), EndResult::Ended);
    orders.waits(1);
    assert_eq!(produces.cancel_for_key(&"orders-0", "not the leader"), 1);
    orders.waits(1); // once more, of the new leader
    assert_eq!(orders.partition.replicated(1), 1);
    let cancelled = [(2, requested("connection closed")), (1, requested("not the leader"))];
    told(&orders.answers, &[&cancelled[..], &[(1, Completed)]].concat());
    orders.waits(2);
    produces.shutdown(SECOND);
    assert_eq!(orders.produce(2), Err(RefusedReason::Closed));
    assert_eq!(orders.produce(1), Ok(ParkResult::Ended(Completed)));
    told(&orders.answers, &[(2, Cancelled(CancelReason::Shutdown)), (1, Completed)]);
    produces.nothing_is_left();
}

fn produces() -> (ManualTimer, Produces<ManualTimer>) {
    let timer = ManualTimer::new();
    let waits = || Purgatory::builder("waits").timer(&timer).build().unwrap();
    let (places, high_watermark) = (Monitor::with(waits(), 0), Monitor::with(waits(), 0));
    (timer.clone(), Produces { timer, places, high_watermark })
}

/// Whichever of the two waits takes it; and the place is given back.
#[test]
fn a_produce_has_one_deadline_for_both_its_waits() {
    for (place_after, replicated_at) in [(8, None), (10, None), (11, Some(7)), (11, Some(6))] {
        let (timer, produces) = produces();
        let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
        assert!(poll(&mut produce).is_pending());
        // At 11 its place was won in time, and its task comes to run only after the deadline.
        if let Some(at) = replicated_at {
            produces.places.update(|free| *free += 1);
            produces.high_watermark.update(|high_watermark| *high_watermark = at);
        }
        timer.advance(place_after * SECOND);
        if place_after == 8 {
            produces.places.update(|free| *free += 1);
            assert!(poll(&mut produce).is_pending());
            timer.advance(2 * SECOND - MS);
            assert!(poll(&mut produce).is_pending());
            timer.advance(MS);
        }
        let ended = if replicated_at == Some(7) { Ok(7) } else { Err(WaitError::Expired) };
        assert_eq!(over(&mut produce), ended);
        assert_eq!(produces.places.read(|free| *free), u32::from(place_after != 10));
    }
}

#[test]
fn a_client_that_goes_gives_its_place_back() {
    let (_timer, produces) = produces();
    let [mut first, mut second] = [(); 2].map(|()| Box::pin(produces.produce(7, SECOND)));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    produces.places.update(|free| *free += 1);
    assert!(poll(&mut first).is_pending()); // it waits for the replicas
    drop(first);
    produces.high_watermark.update(|at| *at = 7);
    assert_eq!((over(&mut second), produces.places.read(|free| *free)), (Ok(7), 1));
}
