//! Waits for a high watermark: acks=all, and two waits with one deadline.

use purgatory::{Monitor, Outcome::Completed, ParkResult, WaitError};

use super::{
    guide::{acks_all::Partition, deadline::Produces},
    *,
};

/// A produce inside an answer finds the watermark that completed it.
#[test]
fn an_advance_answers_the_produces_it_reaches() {
    let (client, answers) = mpsc::channel();
    let orders = Arc::new(Partition {
        name: "orders-0",
        high_watermark: Arc::default(),
        produces: by_hand().1,
    });
    let answer = |offset| {
        let client = client.clone();
        move |outcome| client.send((offset, outcome)).unwrap()
    };
    for offset in [3, 1, 2] {
        assert!(matches!(
            orders.produce(offset, answer(offset)),
            Ok(ParkResult::Parked(_))
        ));
    }
    let inside = orders.clone();
    let inner = answer(9);
    let again = move |_| {
        assert!(matches!(
            inside.produce(9, inner),
            Ok(ParkResult::Ended(Completed))
        ));
    };
    orders.produce(4, again).unwrap();
    // Twice, or lower, it answers nothing; and the watermark does not fall.
    assert_eq!([2, 2, 1].map(|offset| orders.replicated(offset)), [2, 0, 0]);
    reported(&answers, &[(1, Completed), (2, Completed)]);
    assert!(matches!(
        orders.produce(2, answer(2)),
        Ok(ParkResult::Ended(Completed))
    ));
    assert_eq!(orders.replicated(9), 2);
    reported(&answers, &[(2, Completed), (3, Completed), (9, Completed)]);
    nothing_is_left(&orders.produces);
}

#[test]
fn a_refused_produce_is_left_to_its_caller() {
    let (client, answers) = mpsc::channel();
    let orders = Partition {
        name: "orders-0",
        high_watermark: Arc::default(),
        produces: by_hand().1,
    };
    orders.produces.shutdown(SECOND);
    let answer = move |outcome| client.send(outcome).unwrap();
    let refused = orders.produce(1, answer).unwrap_err();
    reported::<_, Outcome>(&answers, &[]);
    refused.into_inner().on_complete(Outcome::Expired);
    reported(&answers, &[Outcome::Expired]);
}

fn produces() -> (ManualTimer, Produces) {
    let timer = ManualTimer::new();
    let waits = || Purgatory::builder("waits").timer(&timer).build().unwrap();
    let produces = Produces {
        timer: timer.clone().into(),
        places: Monitor::over(waits(), 0),
        high_watermark: Monitor::over(waits(), 0),
    };
    (timer, produces)
}

/// Whichever of the two waits uses the time up; and the place is returned.
#[test]
fn a_produce_has_one_deadline_for_both_its_waits() {
    for (place_after, replicated_at) in [(8, None), (10, None), (11, Some(7)), (11, Some(6))] {
        let (timer, produces) = produces();
        let mut produce = Box::pin(produces.produce(7, 10 * SECOND));
        assert!(poll(&mut produce).is_pending());
        // At 11 its place was won in time, and its task comes to run only after the deadline.
        if let Some(at) = replicated_at {
            produces.places.update(|free| *free += 1);
            produces
                .high_watermark
                .update(|high_watermark| *high_watermark = at);
        }
        timer.advance(place_after * SECOND);
        if place_after == 8 {
            produces.places.update(|free| *free += 1);
            assert!(poll(&mut produce).is_pending());
            timer.advance(2 * SECOND - MS);
            assert!(poll(&mut produce).is_pending());
            timer.advance(MS);
        }
        let ended = if replicated_at == Some(7) {
            Ok(7)
        } else {
            Err(WaitError::Expired)
        };
        assert_eq!(over(&mut produce), ended);
        assert_eq!(
            produces.places.read(|free| *free),
            u32::from(place_after != 10)
        );
    }
}

/// Its place is won, and its task has not run since.
#[test]
fn a_client_that_goes_returns_its_place() {
    let (_timer, produces) = produces();
    let mut produce = Box::pin(produces.produce(7, SECOND));
    assert!(poll(&mut produce).is_pending());
    produces.places.update(|free| *free += 1);
    assert_eq!(produces.places.read(|free| *free), 0);
    drop(produce);
    assert_eq!(produces.places.read(|free| *free), 1);
}
