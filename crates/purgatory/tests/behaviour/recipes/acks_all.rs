//! acks=all: when a produce is answered, and how.

use std::sync::{Arc, mpsc};

use purgatory::{
    CancelReason, EndResult, OperationId,
    Outcome::{self, Cancelled, Completed, Expired},
    ParkResult, Purgatory, RefusedReason,
};

use super::{
    MS, SECOND, by_hand, by_hand_and_late,
    guide::acks_all::{DelayedProduce, Partition},
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
        match self.produce(offset) {
            Ok(ParkResult::Parked(id)) => id,
            over => panic!("it does not wait: {over:?}"),
        }
    }

    #[track_caller]
    fn told(&self, expected: &[(u64, Outcome)]) {
        assert_eq!(self.answers.try_iter().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_rise_answers_what_it_reaches() {
    let (_timer, produces) = by_hand();
    let orders = Orders::over(produces);
    for offset in [3, 1, 2] {
        orders.waits(offset);
    }
    // Twice, or lower, it answers nothing; and the watermark does not fall.
    assert_eq!([2, 2, 1].map(|offset| orders.partition.replicated(offset)), [2, 0, 0]);
    orders.told(&[(1, Completed), (2, Completed)]);
    assert_eq!(orders.produce(2), Ok(ParkResult::Ended(Completed)));
    assert_eq!(orders.partition.replicated(9), 1);
    orders.told(&[(2, Completed), (3, Completed)]);
    super::nothing_is_left(&orders.partition.produces);
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
    orders.told(&[(1, Expired)]);
    assert_eq!(orders.partition.replicated(2), 0);
    super::nothing_is_left(&orders.partition.produces);
}

#[test]
fn gone_clients_and_changed_leaders_leave_nothing() {
    let (_timer, produces) = by_hand();
    let orders = Orders::over(produces);
    let gone = orders.waits(2);
    assert_eq!(orders.partition.produces.cancel(gone, "connection closed"), EndResult::Ended);
    orders.waits(1);
    let moved = || Cancelled(CancelReason::Requested("not the leader".into()));
    assert_eq!(orders.partition.produces.cancel_for_key(&"orders-0", "not the leader"), 1);
    orders.waits(1); // once more, of the new leader
    assert_eq!(orders.partition.replicated(1), 1);
    let closed = Cancelled(CancelReason::Requested("connection closed".into()));
    orders.told(&[(2, closed), (1, moved()), (1, Completed)]);
    let Orders { partition, answers, .. } = orders;
    drop(answers);
    partition.produce(2, |_| ()).unwrap();
    assert_eq!(partition.replicated(2), 1);
    super::nothing_is_left(&partition.produces);
}

#[test]
fn a_shutdown_answers_what_waits() {
    let (_timer, produces) = by_hand();
    let orders = Orders::over(produces);
    orders.partition.replicated(1);
    orders.waits(2);
    orders.partition.produces.shutdown(SECOND);
    assert_eq!(orders.produce(2), Err(RefusedReason::Closed));
    assert_eq!(orders.produce(1), Ok(ParkResult::Ended(Completed)));
    orders.told(&[(2, Cancelled(CancelReason::Shutdown)), (1, Completed)]);
    super::nothing_is_left(&orders.partition.produces);
}

/// The watermark has risen by the time an answer is given.
#[test]
fn a_produce_inside_an_answer_is_answered() {
    let (_timer, produces) = by_hand();
    let orders = Orders::over(produces);
    let inside = orders.partition.clone();
    let client = orders.client.clone();
    let again = move |_| {
        let answer = move |outcome| client.send((2, outcome)).unwrap();
        assert!(matches!(inside.produce(2, answer), Ok(ParkResult::Ended(Completed))));
    };
    orders.partition.produce(1, again).unwrap();
    assert_eq!(orders.partition.replicated(2), 1);
    orders.told(&[(2, Completed)]);
}
