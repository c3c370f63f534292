//! Several replies to one request, on a manual timer.

use crate::support::*;

type Next = Option<Result<&'static str, WaitError>>;

/// Returns the next reply or the end of a stream that has one.
#[track_caller]
fn next(stream: &mut ReplyStream<&'static str>) -> Next {
    let task = Woken::task();
    match task.poll(&mut stream.next_reply()) {
        Poll::Ready(next) => next,
        Poll::Pending => panic!("it waits"),
    }
}

fn waits(stream: &mut ReplyStream<&'static str>) -> bool {
    let task = Woken::task();
    task.poll(&mut stream.next_reply()).is_pending()
}

/// All replies are there, in order, even if no task polls between two of them.
#[test]
fn a_stream_yields_replies_in_order_until_the_count() {
    let (_timer, waits_of, replies) = replies();
    let mut stream = replies.expect_many(1, 3, SECOND).unwrap();
    assert!(waits(&mut stream));
    assert!(stream.id().is_some());
    assert_eq!(replies.deliver(&1, "one"), Ok(()));
    assert_eq!(replies.deliver(&1, "two"), Ok(()));
    assert_eq!((waits_of.len(), waits_of.stats().completed), (1, 0));
    let twice = replies.expect(1, SECOND).unwrap_err();
    assert_eq!(twice.reason, WaitError::AlreadyExpected);
    assert_eq!(replies.deliver(&1, "three"), Ok(()));

    // The last reply ends the request, and frees its key.
    assert_nothing_waits(&waits_of);
    assert_eq!(replies.deliver(&1, "four"), Err("four"));
    let got = [(); 4].map(|()| next(&mut stream));
    let expected = [Some(Ok("one")), Some(Ok("two")), Some(Ok("three")), None];
    assert_eq!(got, expected);
    assert_eq!((next(&mut stream), stream.id()), (None, None));

    // A count of 0 counts as 1.
    let _one = replies.expect_many(2, 0, SECOND).unwrap();
    assert_eq!(replies.deliver(&2, "one"), Ok(()));
    assert_nothing_waits(&waits_of);
}

#[test]
fn each_reply_wakes_the_task_of_a_stream() {
    let (_timer, _, replies) = replies();
    let mut stream = replies.expect_many(1, 9, SECOND).unwrap();
    let task = Woken::task();
    for (times, text) in [(1, "one"), (2, "two"), (3, "three")] {
        assert!(task.poll(&mut stream.next_reply()).is_pending());
        assert_eq!(replies.deliver(&1, text), Ok(()));
        assert_eq!((task.times(), next(&mut stream)), (times, Some(Ok(text))));
    }
}

/// Replies that came in time precede the error, which comes once.
#[test]
fn the_end_of_a_stream_loses_no_reply() {
    let (timer, waits_of, replies) = replies();
    let mut expires = replies.expect_many(1, 9, SECOND).unwrap();
    let mut fails = replies.expect_many(2, 9, MINUTE).unwrap();
    for key in [1, 2] {
        assert_eq!(replies.deliver(&key, "one"), Ok(()));
        assert_eq!(replies.deliver(&key, "two"), Ok(()));
    }
    timer.advance(SECOND);
    assert_eq!(replies.fail_all("closed"), 1);
    assert_nothing_waits(&waits_of);
    let closed = CancelReason::Requested("closed".into());
    let errors = [WaitError::Expired, WaitError::Cancelled(closed)];
    for (stream, error) in [&mut expires, &mut fails].into_iter().zip(errors) {
        let got = [(); 4].map(|()| next(stream));
        let expected = [Some(Ok("one")), Some(Ok("two")), Some(Err(error)), None];
        assert_eq!(got, expected);
    }
    let mut at_once = replies.expect_many(1, 9, Duration::ZERO).unwrap();
    assert_eq!(next(&mut at_once), Some(Err(WaitError::Expired)));
    assert_eq!(next(&mut at_once), None);
}

/// The request is then completed, as its client has not gone. A stream that is dropped is
/// cancelled.
#[test]
fn a_stream_ends_with_the_reply_that_its_test_accepts() {
    let (_timer, waits_of, replies) = replies();
    let until_end = |key| {
        let stream = replies.expect_many(key, usize::MAX, SECOND).unwrap();
        stream.until(|text| *text == "end")
    };
    let mut stream = until_end(1);
    let dropped = until_end(2);
    for text in ["one", "end", "behind"] {
        assert_eq!(replies.deliver(&1, text), Ok(()));
    }
    assert_eq!(replies.deliver(&2, "end"), Ok(()));
    assert_eq!((next(&mut stream), waits_of.len()), (Some(Ok("one")), 2));
    assert_eq!((next(&mut stream), waits_of.len()), (Some(Ok("end")), 1));
    assert_eq!(replies.deliver(&1, "late"), Err("late"));
    assert_eq!(next(&mut stream), None);
    drop((stream, dropped));
    let stats = waits_of.stats();
    assert_eq!((stats.completed, stats.cancelled), (1, 1));
    assert_eq!(stats.cancelled_by_future_drop, 1);
    assert_nothing_waits(&waits_of);
}

/// The stream's replies are dropped with it, and its key is free.
#[test]
fn a_dropped_stream_leaves_nothing() {
    let (_timer, _, replies) = replies();
    let value = Hooked::plain(7);
    let stream = replies.expect_many(1, 2, SECOND).unwrap();
    replies.deliver(&1, value.clone()).unwrap();
    assert_eq!(value.alive(), 2);
    drop(stream);
    assert_eq!(value.alive(), 1);
    let stream = replies.expect_many(1, 2, SECOND).unwrap();
    replies.deliver(&1, value.clone()).unwrap();
    replies.deliver(&1, value.clone()).unwrap();
    assert_nothing_waits(&replies.waits());
    drop(stream);
    assert_eq!(value.alive(), 1);
}

/// A subscription may get a new timeout between two of its messages.
#[test]
fn a_stream_is_given_more_time_until_it_has_ended() {
    for by_key in [false, true] {
        let (timer, _, replies) = replies();
        let mut stream = replies.expect_many(1, 2, SECOND).unwrap();
        let more = |stream: &ReplyStream<_>| match by_key {
            true => replies.reschedule(&1, SECOND),
            false => stream.reschedule(SECOND),
        };
        for _ in 0..3 {
            timer.advance(SECOND - MS);
            assert!(more(&stream));
        }
        assert!(waits(&mut stream) && !replies.reschedule(&2, SECOND));
        timer.advance(SECOND);
        assert!(!more(&stream));
        assert_eq!(next(&mut stream), Some(Err(WaitError::Expired)));
    }
}

/// Replies come every 40 ms and are taken every 150 ms: the server is never silent for 100 ms.
#[test]
fn the_reader_of_a_connection_limits_the_silence() {
    let timer = ManualTimer::new();
    let scope = ReplyScope::on(&timer, "test").unwrap();
    let idle_max = 100 * MS;
    let (number, mut stream) = scope.expect_many(usize::MAX, idle_max).unwrap();
    let mut taken = 0;
    for now_ms in (10..=600).step_by(10) {
        timer.advance(10 * MS);
        if now_ms % 40 == 0 {
            assert!(scope.reschedule(number, idle_max), "{now_ms}");
            scope.deliver(number, "row").unwrap();
        }
        if now_ms % 150 == 0 {
            assert_eq!(next(&mut stream), Some(Ok("row")));
            taken += 1;
        }
    }
    // The server is silent. The replies that came are still there.
    timer.advance(idle_max);
    assert!(!scope.reschedule(number, idle_max));
    for _ in taken..15 {
        assert_eq!(next(&mut stream), Some(Ok("row")));
    }
    assert_eq!(next(&mut stream), Some(Err(WaitError::Expired)));

    // A number that was not handed out, or that is another scope's, is not rescheduled.
    let (number, _reply) = scope.expect(SECOND).unwrap();
    assert!(!scope.reschedule(number + 1, SECOND));
    assert!(!scope.another().reschedule(number, SECOND));
}

#[test]
fn a_scope_has_streams_which_its_close_ends() {
    let timer = ManualTimer::new();
    let client = ReplyScope::on(&timer, "test").unwrap();
    let scope = client.another();
    let (number, mut stream) = scope.expect_many(2, SECOND).unwrap();
    scope.deliver(number, "one").unwrap();
    assert_eq!((scope.is_closed(), scope.close("closed")), (false, 1));
    assert!(scope.is_closed() && !client.is_closed());
    assert_eq!(next(&mut stream), Some(Ok("one")));
    assert!(next(&mut stream).unwrap().unwrap_err().is_shutdown());
    assert_eq!(next(&mut stream), None);
    assert!(scope.expect_many(2, SECOND).is_err());
    assert_nothing_waits(&client.waits());
}

/// The time is up, and the executor has still to finish the request.
#[test]
fn replies_that_were_not_taken_go_with_their_stream() {
    let executor = Later::default();
    let timer = ManualTimer::new();
    let replies = Replies::<u32, Hooked>::builder("test").timer(&timer);
    let replies = replies.executor(executor.clone()).build().unwrap();
    let stream = replies.expect_many(1, 3, SECOND).unwrap();
    let value = Hooked::plain(7);
    replies.deliver(&1, value.clone()).unwrap();
    timer.advance(SECOND);
    assert_eq!((executor.len(), value.alive()), (1, 2));
    drop(stream);
    assert_eq!(value.alive(), 1);
}
