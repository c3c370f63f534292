//! The small doors: the next event without a condition, values made on delivery, values that count,
//! futures that are given more time, and a purgatory that is small.

use std::{task::Poll, time::Duration};

use crate::support::{MS, SECOND, by_hand, by_hand_with, poll};
use purgatory::{CancelReason, Purgatory, RefusedReason, Replies, WaitError, WaitFuture, Watches};
use timer_core::{ManualTimer, SystemTimer};

type Waits = Purgatory<&'static str>;

fn ready(future: &mut WaitFuture<()>) -> Option<Result<(), WaitError>> {
    match poll(future) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[test]
fn next_event_ends_at_an_event_after_registration() {
    let (_timer, waits): (_, Waits) = by_hand();
    waits.check_and_complete(&"a"); // before: not the next
    let mut next = waits.next_event(&["a", "b"], SECOND);
    let mut other = waits.next_event(&["c"], SECOND);
    assert_eq!((ready(&mut next), waits.len()), (None, 2));
    assert_eq!(waits.check_and_complete(&"b"), 1);
    assert_eq!((ready(&mut next), ready(&mut other)), (Some(Ok(())), None));
    drop(other);
    assert_eq!((waits.len(), waits.watched(), waits.keys()), (0, 0, 0));
}

#[test]
fn next_event_ends_at_a_rise_of_its_watermark() {
    let (_timer, waits): (_, Waits) = by_hand();
    let until = [("a", 5)];
    let mut next = waits.next_event(Watches::up_to(&until).checked(), SECOND);
    assert_eq!((waits.complete_up_to(&"a", 4), ready(&mut next)), (0, None));
    assert_eq!((waits.complete_up_to(&"a", 5), ready(&mut next)), (1, Some(Ok(()))));
}

#[test]
fn next_event_without_an_event_says_why() {
    let (timer, waits): (_, Waits) = by_hand_with(|builder| builder.max_parked(1));
    let mut expires = waits.next_event(&["a"], 10 * MS);
    let full = WaitError::Refused(RefusedReason::Full { limit: 1 });
    assert_eq!(ready(&mut waits.next_event(&["a"], SECOND)), Some(Err(full.clone())));
    timer.advance(10 * MS);
    assert_eq!(ready(&mut expires), Some(Err(WaitError::Expired)));
    assert_eq!(ready(&mut waits.next_event(&["a"], Duration::ZERO)), Some(Err(WaitError::Expired)));
    let keyless = WaitError::Refused(RefusedReason::NoKeys);
    assert_eq!(ready(&mut waits.next_event(&[], SECOND)), Some(Err(keyless.clone())));
    let mut parked = waits.next_event(&["a"], SECOND);
    waits.shutdown(SECOND);
    let shut_down = WaitError::Cancelled(CancelReason::Shutdown);
    assert_eq!(ready(&mut parked), Some(Err(shut_down.clone())));
    let closed = WaitError::Refused(RefusedReason::Closed);
    assert_eq!(ready(&mut waits.next_event(&["a"], SECOND)), Some(Err(closed.clone())));
    assert!(WaitError::Expired.is_expired());
    assert!([full, keyless, shut_down, closed].iter().all(|error| !error.is_expired()));
}

/// There is no condition that could have come true without an event.
#[test]
fn next_event_is_never_a_missed_event() {
    let (timer, waits): (_, Waits) = by_hand_with(|builder| builder.check_at_expiry(|_| ()));
    let mut next = waits.next_event(&["a"], 10 * MS);
    timer.advance(10 * MS);
    assert_eq!(ready(&mut next), Some(Err(WaitError::Expired)));
    assert_eq!((waits.stats().missed_events, waits.len()), (0, 0));
}

#[test]
fn deliver_with_makes_no_value_in_vain() {
    let (_timer, waits) = by_hand();
    let replies: Replies<u32, &str> = Replies::from(waits);
    assert!(!replies.deliver_with(&1, || unreachable!("nothing is expected")));
    let mut reply = replies.expect(1, SECOND).unwrap();
    assert!(replies.deliver_with(&1, || "one"));
    assert!(!replies.deliver_with(&1, || unreachable!("it was delivered")));
    assert_eq!(poll(&mut reply), Poll::Ready(Ok("one")));
}

#[test]
fn a_future_is_given_more_time_until_it_is_over() {
    let (timer, waits): (_, Waits) = by_hand();
    let mut wait = waits.wait(&["a"], 10 * MS, || None::<()>);
    timer.advance(9 * MS);
    assert!(wait.reschedule(10 * MS));
    timer.advance(9 * MS);
    assert_eq!(ready(&mut wait), None);
    timer.advance(MS);
    assert_eq!(ready(&mut wait), Some(Err(WaitError::Expired)));
    assert!(!wait.reschedule(SECOND));
    assert!(!waits.wait(&["a"], SECOND, || Some(())).reschedule(SECOND)); // over at once
}

#[cfg(feature = "keyed")]
#[test]
fn bumps_add_up_over_threads() {
    let votes: purgatory::Watermarks<String> = purgatory::Watermarks::new("votes").unwrap();
    let elected = votes.wait_for(&"term".to_owned(), 4000, SECOND * 60);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| _ = votes.bump("term", 1).unwrap()));
        }
    });
    assert_eq!((elected.wait_blocking(), votes.value("term")), (Ok(4000), Some(4000)));
    assert_eq!(votes.bump("term", u64::MAX), Ok(0));
    assert_eq!(votes.value("term"), Some(u64::MAX));
}

/// A client library has thousands of them.
#[test]
fn a_purgatory_with_one_room_takes_8_kb() {
    let timer = SystemTimer::new().unwrap();
    let bytes_of = |build: &dyn Fn() -> Purgatory<u64>| {
        let mut built = None;
        let measured = allocation_counter::measure(|| built = Some(build()));
        assert!(built.is_some_and(|built| built.is_empty()));
        measured.bytes_current
    };
    let shared = bytes_of(&|| Purgatory::builder("one").timer(&timer).rooms(1).build().unwrap());
    let by_hand = ManualTimer::new();
    let turned = bytes_of(&|| Purgatory::builder("one").timer(&by_hand).rooms(1).build().unwrap());
    assert!(shared <= 8 << 10 && turned <= 8 << 10, "{shared} and {turned} bytes");
}
