//! Replies against everything that can end them.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use loom::thread;
use purgatory::{CancelReason, ReachResult, Replies, ReplyScope, WaitError, Waits};
use timer_core::ManualTimer;

use super::{
    MS,
    answers::{Task, answer, poll},
    beside, check, ending,
    failpoints::Failpoint,
};

/// Creates replies on a manual timer.
pub(super) fn replies<V: Send + 'static>() -> (ManualTimer, Replies<u8, V>) {
    let timer = ManualTimer::new();
    let replies = Replies::on(&timer, "loom").unwrap();
    (timer, replies)
}

/// Creates a client's scopes on a manual timer.
fn client() -> (ManualTimer, ReplyScope<u8>) {
    let timer = ManualTimer::new();
    let client = ReplyScope::on(&timer, "loom").unwrap();
    (timer, client)
}

/// Creates a scope on a manual timer, and its waits.
fn scope() -> (ManualTimer, Waits<(u64, u64)>, ReplyScope<u8>) {
    let (timer, client) = client();
    (timer, client.waits(), client)
}

/// A value races its request's timeout: it is delivered, or handed back because the time ran out.
#[test]
fn reply_against_its_time() {
    check(&[Failpoint::HandsOverInTwoHolds], || {
        let (timer, replies) = replies();
        let mut reply = replies.expect(1, MS).unwrap();
        let network = beside(&replies, |network| network.deliver(&1, 7));
        timer.advance(MS);
        let expected = match network.join().unwrap() {
            Ok(()) => Ok(7),
            Err(_) => Err(WaitError::Expired),
        };
        assert_eq!(ending(&mut reply), Some(expected));
        assert_eq!(replies.waits().len(), 0);
        assert!(replies.expect(1, MS).is_ok());
    });
}

/// A reply whose answer was taken has given its place back, so that another one can be expected.
#[test]
fn place_of_reply_against_its_answer() {
    check(&[Failpoint::AnsweredKeepsPlace], || {
        let timer = ManualTimer::new();
        let replies = Replies::builder("loom").timer(&timer).max_parked(1);
        let replies: Replies<u8, u8> = replies.build().unwrap();
        let mut reply = replies.expect(1, MS).unwrap();
        let network = beside(&replies, |network| network.deliver(&1, 7));
        if ending(&mut reply).is_some() {
            assert!(replies.expect(1, MS).is_ok(), "there is no place");
        }
        network.join().unwrap().unwrap();
    });
}

/// A client drops its request while another expects a reply under the same key: one of the two gets
/// the value, or it is handed back.
#[test]
fn reply_against_its_client_that_goes() {
    check(&[Failpoint::DroppedFutureLeavesOperation], || {
        let (_timer, replies) = replies();
        let value = Arc::new(());
        let reply = replies.expect(1, MS).unwrap();
        let delivered = value.clone();
        let network = beside(&replies, |network| network.deliver(&1, delivered));
        drop(reply);
        let next = replies.expect(1, MS);
        let back = network.join().unwrap();
        let mut next = next.expect("the key is free");
        let got = ending(&mut next);
        assert!(got.is_none() || back.is_ok(), "a value was doubled");
        let there = 1 + usize::from(got.is_some()) + usize::from(back.is_err());
        assert_eq!(Arc::strong_count(&value), there, "a value was lost");
        assert_eq!(replies.waits().len(), usize::from(got.is_none()));
    });
}

/// When two threads expect a reply under one key, one is refused and no value is lost. No fault
/// fits: the key is looked up and taken in one critical section.
#[test]
fn one_key_expected_twice() {
    check(&[], || {
        let (_timer, replies) = replies();
        let other = beside(&replies, |other| other.expect(1, MS).ok());
        let reply = replies.expect(1, MS).ok();
        let ends = [reply, other.join().unwrap()];
        assert_eq!(replies.deliver(&1, 7), Ok(()));
        assert_eq!(replies.deliver(&1, 8), Err(8));
        let told: Vec<_> = ends
            .into_iter()
            .flatten()
            .map(|mut reply| ending(&mut reply))
            .collect();
        assert_eq!(told, [Some(Ok(7))]);
    });
}

/// `fail_all` acts at one moment, although it empties the shards one at a time (that of key 2
/// first): it fails no request that was expected after one that it spared.
#[test]
fn all_fail_against_expecting_two() {
    check(&[Failpoint::FailsWhatCameAfter], || {
        let (_timer, replies) = replies::<u8>();
        let network = beside(&replies, |network| network.fail_all("closed"));
        let mut ends = [2, 1].map(|key| replies.expect(key, MS).unwrap());
        let failed = network.join().unwrap();
        let ends = ends.each_mut().map(|reply| ending(reply).is_some());
        assert_eq!(ends.iter().filter(|&&ended| ended).count(), failed);
        assert_ne!(ends, [false, true]);
    });
}

/// A request is refused, or the shutdown ends it.
#[test]
fn expecting_against_shutdown() {
    check(&[Failpoint::ShutdownClosesNoShard], || {
        let (_timer, replies) = replies::<u8>();
        let network = beside(&replies, |network| network.waits().shutdown(Duration::ZERO));
        let expected = replies.expect(1, MS);
        network.join().unwrap();
        match expected {
            Ok(mut reply) => {
                let shutdown = WaitError::Cancelled(CancelReason::Shutdown);
                assert_eq!(ending(&mut reply), Some(Err(shutdown)));
            }
            Err(refused) => assert_eq!(refused.reason, WaitError::Closed),
        }
    });
}

/// A request comes while its scope closes: it fails or is refused, so that none waits for a reply
/// that cannot come. The close counts the requests that it failed.
#[test]
fn closing_scope_against_expect() {
    check(&[Failpoint::ClosedScopeExpects], || {
        let (_timer, waits, scope) = scope();
        let network = beside(&scope, |network| network.close("closed"));
        let asked = scope.expect(MS);
        let failed = network.join().unwrap();
        match asked {
            Ok((_, mut reply)) => {
                let ended = ending(&mut reply).expect("it cannot come");
                assert!(ended.is_err_and(|error| error.is_shutdown()) && failed == 1);
            }
            Err(refused) => assert_eq!((refused, failed), (WaitError::ScopeClosed, 0)),
        }
        assert_eq!((waits.len(), waits.keys()), (0, 0));
    });
}

/// The set of requests that fail is fixed at one moment: none fails without the earlier ones of its
/// scope, and one that does not fail can get its reply. No fault fits: the list is emptied under
/// one lock.
#[test]
fn fail_scope_against_expect() {
    check(&[], || {
        let (_timer, waits, scope) = scope();
        let (_, mut before) = scope.expect(MS).unwrap();
        let network = beside(&scope, |network| network.fail_all("closed"));
        let asked = [(); 3].map(|()| scope.expect(MS).unwrap());
        network.join().unwrap();
        assert!(ending(&mut before).is_some(), "it was there before");
        let failed = asked.map(|(number, mut reply)| {
            let failed = ending(&mut reply).is_some();
            assert_eq!(scope.deliver(number, 7).is_err(), failed);
            assert!(failed || ending(&mut reply) == Some(Ok(7)));
            failed
        });
        assert!(failed.windows(2).all(|two| two != [false, true]));
        assert_eq!((waits.len(), waits.keys()), (0, 0));
    });
}

/// A request gets its reply, or fails, and the reply is handed back as late.
#[test]
fn fail_scope_against_deliver() {
    check(&[Failpoint::HandsOverInTwoHolds], || {
        let (_timer, waits, scope) = scope();
        let (number, mut reply) = scope.expect(MS).unwrap();
        let network = beside(&scope, move |network| network.deliver(number, 7));
        let failed = scope.fail_all("closed");
        let ended = ending(&mut reply);
        match network.join().unwrap() {
            Ok(()) => assert!(failed == 0 && [None, Some(Ok(7))].contains(&ended)),
            Err(late) => {
                assert!(late.reason == WaitError::Late && failed == 1 && ended.is_some())
            }
        }
        assert_eq!((waits.len(), waits.keys()), (0, 0));
    });
}

/// A peer guesses the number of a request: its reply is delivered, or it is refused and the request
/// goes on. No fault fits: a request gets its number and its place under one lock.
#[test]
fn guessed_reply_against_expect() {
    check(&[], || {
        let (_timer, waits, scope) = scope();
        let network = beside(&scope, |network| network.deliver(1, 6).is_ok());
        let (number, mut reply) = scope.expect(MS).unwrap();
        let guessed = network.join().unwrap();
        assert_eq!(scope.deliver(number, 7).is_ok(), !guessed);
        assert_eq!(ending(&mut reply), Some(Ok(if guessed { 6 } else { 7 })));
        assert_eq!((waits.len(), waits.keys()), (0, 0));
    });
}

/// A request moves while its reply comes under the old number: it gets the reply, or goes on under
/// the new number. Its task is woken for either.
#[test]
fn reassign_against_deliver() {
    check(&[Failpoint::HandsOverInTwoHolds], || {
        let (_timer, client) = client();
        let [old, new] = [client.clone(), client.another()];
        let (number, mut reply) = old.expect(MS).unwrap();
        let network = beside(&old, move |network| network.deliver(number, 7).is_ok());
        let moved = old.reassign(number, &new);
        let delivered = network.join().unwrap();
        assert_ne!(delivered, moved.is_ok());
        if let Ok(number) = moved {
            assert!(new.deliver(number, 7).is_ok());
        }
        assert_eq!(ending(&mut reply), Some(Ok(7)));
        assert_eq!((client.waits().len(), client.waits().keys()), (0, 0));
    });
}

/// A request moves to another shard, and in one case back, while its task polls: the task is woken
/// for the reply there.
#[test]
fn reassign_against_poll() {
    for (and_back, fault) in [
        (false, Failpoint::PollStaysBehind),
        (true, Failpoint::MovedIsLookedForOnce),
    ] {
        check(&[fault], move || {
            let (_timer, client) = client();
            let [old, new] = [client.clone(), client.another()];
            let (number, mut reply) = old.expect(MS).unwrap();
            let network = thread::spawn(move || {
                let number = old.reassign(number, &new).unwrap();
                if and_back {
                    let number = new.reassign(number, &old).unwrap();
                    old.deliver(number, 7).unwrap();
                } else {
                    new.deliver(number, 7).unwrap();
                }
                (old, new)
            });
            let polled = poll(&mut reply);
            let _scopes = network.join().unwrap();
            assert_eq!(answer(&mut reply, polled), Ok(7));
            assert!(client.waits().is_empty());
        });
    }
}

/// A request moves to another shard and back while it is dropped, cancelled or rescheduled by its
/// id: it is found.
#[test]
fn reassign_back_against_reach() {
    for act in ["drop", "cancel", "reschedule"] {
        check(&[Failpoint::MovedIsLookedForOnce], move || {
            let (_timer, client) = client();
            let [old, new] = [client.clone(), client.another()];
            let (number, reply) = old.expect(MS).unwrap();
            let network = thread::spawn(move || {
                let number = old.reassign(number, &new);
                let _ = number.and_then(|number| new.reassign(number, &old));
                (old, new)
            });
            let mut reply = Some(reply);
            let mut waiting = 0;
            match (act, &reply) {
                ("cancel", Some(reply)) => {
                    let cancelled = client.waits().cancel(reply.id().unwrap(), "loom");
                    assert_eq!(cancelled, ReachResult::Reached(()));
                }
                ("reschedule", Some(reply)) => {
                    assert!(reply.reschedule(2 * MS));
                    waiting = 1;
                }
                _ => reply = None,
            }
            let _scopes = network.join().unwrap();
            assert_eq!(client.waits().len(), waiting);
            drop(reply);
        });
    }
}

/// A request moves while its future is dropped or its time runs out: nothing is left in either
/// shard.
#[test]
fn reassign_against_its_end() {
    for expires in [true, false] {
        let fault = [Failpoint::DroppedFutureLeavesOperation];
        let faults: &[Failpoint] = if expires { &[] } else { &fault };
        check(faults, move || {
            let (timer, client) = client();
            let [old, new] = [client.clone(), client.another()];
            let (number, reply) = old.expect(MS).unwrap();
            let to = new.clone();
            let network = beside(&old, move |from| from.reassign(number, &to).is_ok());
            let mut reply = Some(reply);
            if expires {
                timer.advance(MS);
            } else {
                reply = None;
            }
            network.join().unwrap();
            if let Some(reply) = &mut reply {
                // Once more, in case it moved to a shard whose wheel had already advanced.
                timer.advance(MS);
                assert_eq!(ending(reply), Some(Err(WaitError::Expired)));
            }
            assert_eq!((client.waits().len(), client.waits().keys()), (0, 0));
            assert_eq!((old.fail_all("none"), new.fail_all("none")), (0, 0));
        });
    }
}

/// A request moves while its scope fails: it fails there, or has moved. No fault fits: both calls
/// lock the scope that it moves from.
#[test]
fn reassign_against_fail_all() {
    check(&[], || {
        let (_timer, client) = client();
        let [new, old] = [client.clone(), client.another()];
        let (number, mut reply) = old.expect(MS).unwrap();
        let network = beside(&old, |old| old.fail_all("closed"));
        let moved = old.reassign(number, &new).is_ok();
        let failed = network.join().unwrap();
        assert_eq!(
            (failed == 1, ending(&mut reply).is_some()),
            (!moved, !moved)
        );
    });
}

/// Two scopes exchange requests without a deadlock. No fault fits: loom itself finds deadlocks.
#[test]
fn reassign_against_reassign() {
    check(&[], || {
        let (_timer, client) = client();
        let [one, other] = [client.clone(), client.another()];
        let (first, _first) = one.expect(MS).unwrap();
        let (second, _second) = other.expect(MS).unwrap();
        let to = one.clone();
        let network = beside(&other, move |from| from.reassign(second, &to));
        assert_eq!(one.reassign(first, &other), Ok(2));
        assert_eq!(network.join().unwrap(), Ok(2));
        assert_eq!(client.waits().len(), 2);
    });
}

/// A request moves while the client shuts down: it ends in one shard or the other, and a refusal is
/// counted.
#[test]
fn reassign_against_shutdown() {
    check(&[Failpoint::ShutdownClosesNoShard], || {
        let (_timer, client) = client();
        let [new, old] = [client.clone(), client.another()];
        let (number, mut reply) = old.expect(MS).unwrap();
        let network = beside(&client, |all| all.waits().shutdown(Duration::ZERO));
        let moved = old.reassign(number, &new);
        network.join().unwrap();
        let refused = u64::from(moved == Err(WaitError::Closed));
        assert_eq!(client.waits().stats().refused_closed, refused);
        let shutdown = WaitError::Cancelled(CancelReason::Shutdown);
        assert_eq!(ending(&mut reply), Some(Err(shutdown)));
    });
}

/// One confirmation of two requests races the reply to the second: each request gets one answer.
#[test]
fn deliver_up_to_against_deliver() {
    check(&[Failpoint::HandsOverInTwoHolds], || {
        let (_timer, waits, scope) = scope();
        let (_, mut first) = scope.expect(MS).unwrap();
        let (number, mut second) = scope.expect(MS).unwrap();
        let network = beside(&scope, move |network| network.deliver(number, 7).is_ok());
        let confirmed = scope.deliver_up_to(number, 5);
        let delivered = network.join().unwrap();
        assert_eq!(confirmed, 2 - usize::from(delivered));
        let second_has = if delivered { 7 } else { 5 };
        assert_eq!(ending(&mut first), Some(Ok(5)));
        assert_eq!(ending(&mut second), Some(Ok(second_has)));
        assert_eq!((waits.len(), waits.keys()), (0, 0));
    });
}

/// A reply that comes while the task polls a stream is yielded or wakes the task, and so is the end
/// that follows it.
#[test]
fn stream_against_deliver_and_end() {
    for ends in [false, true] {
        check(&[Failpoint::PollLeavesNoWaker], move || {
            let (_timer, replies) = replies();
            let mut stream = replies.expect_many(1, 9, MS).unwrap();
            let network = beside(&replies, move |network| {
                network.deliver(&1, 7).unwrap();
                if ends {
                    network.fail_all("closed");
                }
            });
            let task = Arc::new(Task::default());
            let waker = Waker::from(task.clone());
            let polled = stream.poll_next(&mut Context::from_waker(&waker));
            network.join().unwrap();
            if polled.is_pending() {
                assert!(task.woken() > 0, "it sleeps on");
            }
            let mut got: Vec<_> = match polled {
                Poll::Ready(next) => vec![next],
                Poll::Pending => Vec::new(),
            };
            got.extend((got.len()..2).map_while(|_| ending(&mut stream.next_reply())));
            assert_eq!(got[0], Some(Ok(7)));
            assert_eq!(
                got.get(1).is_some_and(|next| matches!(next, Some(Err(_)))),
                ends
            );
        });
    }
}

/// A stream finds its end while a reply comes that precedes it: the reply is yielded first.
#[test]
fn stream_end_against_its_last_replies() {
    check(&[Failpoint::StreamLooksOnce], || {
        let (_timer, replies) = replies();
        let mut stream = replies.expect_many(1, 2, MS).unwrap();
        let network = beside(&replies, |network| {
            network.deliver(&1, 6).unwrap();
            network.deliver(&1, 7).unwrap();
        });
        let mut got = Vec::new();
        got.extend(ending(&mut stream.next_reply()));
        network.join().unwrap();
        got.extend((got.len()..3).map_while(|_| ending(&mut stream.next_reply())));
        assert_eq!(got, [Some(Ok(6)), Some(Ok(7)), None]);
    });
}
