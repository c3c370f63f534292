//! Requests and replies on a manual timer. (Random orders are compared with a reference in
//! `models/replies`.)

use crate::support::*;

type Texts = Replies<u32, &'static str>;

/// An expired request has ended even if the executor has not yet run its callback.
#[test]
fn keys_are_free_at_once_though_the_executor_is_late() {
    let (timer, later) = (ManualTimer::new(), Later::default());
    let builder = Replies::builder("test").timer(&timer);
    let replies: Texts = builder.executor(later.clone()).build().unwrap();
    let mut expired = replies.expect(1, SECOND).unwrap();
    let woken = Woken::task();
    assert!(woken.poll(&mut expired).is_pending());
    timer.advance(SECOND);
    assert_eq!(woken.times(), 0); // the executor wakes its task
    assert_eq!(replies.deliver(&1, "late"), Err("late"));
    let mut again = replies.expect(1, SECOND).unwrap();
    drop(replies.expect(2, SECOND).unwrap());
    assert_eq!(replies.deliver(&2, "gone"), Err("gone"));
    let mut second = replies.expect(2, SECOND).unwrap();
    later.run(); // the ends of the old requests leave the present ones alone
    assert_eq!(woken.times(), 1);
    assert_eq!(over(&mut expired), Err(WaitError::Expired));
    let twice = replies.expect(1, SECOND).unwrap_err();
    assert_eq!(twice.reason.clone(), WaitError::AlreadyExpected);
    assert_eq!(twice.into_inner(), 1);
    assert_eq!(replies.deliver(&1, "again"), Ok(()));
    assert_eq!(replies.deliver(&2, "second"), Ok(()));
    assert_eq!(over(&mut again), Ok("again"));
    assert_eq!(over(&mut second), Ok("second"));
    later.run();
    // No request waits, and each key is free.
    assert_nothing_waits(&replies.waits());
    for key in [1, 2] {
        assert_eq!(replies.deliver(&key, "late"), Err("late"));
        assert!(replies.expect(key, Duration::ZERO).is_ok());
    }
}

/// The answer is stored in the request's entry.
#[test]
fn a_reply_takes_no_allocation() {
    let (_timer, _waits, replies) = replies();
    let ask = || {
        let mut reply = replies.expect(1, SECOND).unwrap();
        assert_eq!(replies.deliver(&1, "one"), Ok(()));
        assert_eq!(over(&mut reply), Ok("one"));
    };
    let counted = a_hundred_more(ask);
    assert_eq!((counted.count_total, counted.count_current), (0, 0));
}

#[test]
fn an_answer_outlives_what_gave_it() {
    let (timer, waits, replies) = replies();
    let mut reply = replies.expect(1, SECOND).unwrap();
    assert_eq!(replies.deliver(&1, "one"), Ok(()));
    assert_eq!(timer.next_due_in(), None, "it is no work");
    timer.advance(SECOND);
    assert_eq!(waits.shutdown(Duration::ZERO), 0, "it delays nothing");
    drop((waits, replies, timer));
    assert_eq!(over(&mut reply), Ok("one"));
}

#[test]
fn keys_are_moved_in_and_go_with_their_reply() {
    let builder = Replies::<Hooked, Hooked>::builder("test").timer(&ManualTimer::new());
    let replies = builder.build().unwrap();
    let (clones, counts) = counting();
    let key = Hooked::new(0, counts);
    let mut reply = replies.expect(key.like(1), SECOND).unwrap();
    drop(replies.expect(key.like(2), SECOND).unwrap());
    assert_eq!(replies.deliver(&1, Hooked::plain(7)), Ok(()));
    assert_eq!((key.alive(), clones.load(SeqCst)), (1, 0));
    assert_eq!(over(&mut reply), Ok(Hooked::plain(7)));
}
