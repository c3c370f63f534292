//! The memory of ended waits, idle keys and peaks is given back.
#![cfg(not(loom))]

use allocation_counter::measure;

use crate::support::*;

const MANY: u32 = 20_000;

/// The most that a shard and a thread keep for the next peak. It does not grow with `MANY`.
const KEPT: i64 = 64 << 10;

/// Checks that `work` leaves little of the memory that it takes.
#[track_caller]
fn leaves_nothing(work: impl FnOnce()) {
    let measured = measure(work);
    assert!(measured.bytes_current < KEPT, "{measured:?}");
    assert!(
        measured.bytes_max > MANY.into(),
        "it took some: {measured:?}"
    );
}

fn values(timer: &ManualTimer) -> Watermarks<u32> {
    Watermarks::builder("test")
        .timer(timer)
        .shards(1)
        .build()
        .unwrap()
}

#[test]
fn keys_whose_values_were_removed_leave_nothing() {
    let values = values(&ManualTimer::new());
    leaves_nothing(|| {
        for key in 0..MANY {
            values.advance(&key, 1).unwrap();
        }
        for key in 0..MANY {
            values.remove(&key);
            drop(values.wanted(&key, MINUTE));
        }
    });
}

#[test]
fn callbacks_that_ended_leave_nothing() {
    let timer = ManualTimer::new();
    let values = values(&timer);
    let waits = values.waits();
    let ends: [&dyn Fn(); 3] = [
        &|| assert_eq!(waits.cancel_all("gone"), MANY as usize),
        &|| timer.advance(MINUTE),
        &|| {
            values.advance(&1, MANY.into()).unwrap();
            values.remove(&1);
        },
    ];
    for end in ends {
        leaves_nothing(|| {
            for threshold in 1..=MANY {
                values.park(&1, threshold.into(), MINUTE, drop).unwrap();
            }
            assert!(!waits.is_empty());
            end();
        });
        assert!(waits.is_empty());
    }
}

#[test]
fn keys_whose_permits_came_back_leave_nothing() {
    let timer = ManualTimer::new();
    let permits = Permits::<u32>::keyed_builder("test")
        .timer(&timer)
        .shards(1);
    let permits = permits.build().unwrap();
    leaves_nothing(|| {
        let take = |key| permits.try_acquire_for(&key, 1).unwrap();
        let held: Vec<_> = (0..MANY).map(take).collect();
        drop(held);
    });
    // Leases, and requests that are refused.
    leaves_nothing(|| {
        let lease = |key| over(&mut permits.lease_for(&key, 1, MINUTE, MINUTE)).unwrap();
        let held: Vec<_> = (0..MANY).map(lease).collect();
        assert!((0..MANY).all(|key| permits.try_acquire_for(&key, 1).is_none()));
        timer.advance(MINUTE);
        drop(held);
    });
}

#[test]
fn requests_that_are_over_leave_nothing() {
    let replies = Replies::<u32, u32>::builder("test")
        .timer(&ManualTimer::new())
        .shards(1);
    let replies = replies.build().unwrap();
    leaves_nothing(|| {
        let expect = |key| replies.expect(key, MINUTE).unwrap();
        let mut expected: Vec<_> = (0..MANY).map(expect).collect();
        for key in 0..MANY / 2 {
            replies.deliver(&key, key).unwrap();
        }
        replies.fail_all("closed");
        let ended = expected.iter_mut().map(over);
        assert_eq!(ended.filter(Result::is_ok).count() as u32, MANY / 2);
    });
}

/// The first move leaves an entry by which the future finds its request. The entry goes when the
/// future is dropped or takes the answer.
#[test]
fn requests_that_moved_leave_nothing() {
    let client = ReplyScope::<&str>::builder("test").timer(&ManualTimer::new());
    let client = client.shards(2).build().unwrap();
    let scopes: [_; 16] = std::array::from_fn(|_| client.another());
    let ask_and_move = |_| {
        let (mut number, reply) = client.expect(MINUTE).unwrap();
        let mut scope = &client;
        for next in &scopes {
            number = scope.reassign(number, next).unwrap();
            scope = next;
        }
        (number, reply)
    };
    leaves_nothing(|| {
        let mut asked: Vec<_> = (0..MANY / 16).map(ask_and_move).collect();
        drop(asked.split_off(asked.len() / 2));
        for (number, reply) in &mut asked {
            scopes[15].deliver(*number, "reply").unwrap();
            assert_eq!(over(reply), Ok("reply"));
        }
    });
}

/// A request that moves on leaves no entry behind, whether it was polled or not.
#[test]
fn a_request_that_moves_often_takes_no_memory() {
    let client = ReplyScope::<&str>::builder("test").timer(&ManualTimer::new());
    let mut scope = client.shards(2).build().unwrap();
    let (mut number, mut replies) = scope.expect_many(2, NEVER).unwrap();
    assert!(poll(&mut replies.next_reply()).is_pending());
    let mut move_on = || {
        let moved = measure(|| {
            for _ in 0..MANY {
                let next = scope.another();
                number = scope.reassign(number, &next).unwrap();
                scope = next;
            }
        });
        assert!(moved.bytes_current < KEPT, "{moved:?}");
        scope.deliver(number, "reply").unwrap();
    };
    move_on();
    assert_eq!(over(&mut replies.next_reply()), Some(Ok("reply")));
    move_on();
    assert_eq!(over(&mut replies.next_reply()), Some(Ok("reply")));
}

/// The queue of a thread holds callbacks whose operations end inside another callback.
#[test]
fn a_queue_of_callbacks_leaves_nothing() {
    let values = values(&ManualTimer::new());
    leaves_nothing(|| {
        for _ in 0..MANY {
            values.park(&1, 1, MINUTE, drop).unwrap();
        }
        let inside = values.clone();
        let cancels = move |_| _ = inside.remove(&1);
        values.park(&2, 1, MINUTE, cancels).unwrap();
        values.advance(&2, 1).unwrap();
        values.remove(&2);
    });
}
