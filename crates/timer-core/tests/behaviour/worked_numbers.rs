//! Numbers worked out by hand in papers, course notes and Kafka's documentation, and Kafka's own
//! tests of its wheel, on `TimingWheel`.

use crate::support::*;

fn wheel_of(slots: usize, start: u64) -> TimingWheel<u64> {
    TimingWheel::new(WheelSize::new(slots).unwrap(), start)
}

/// Inserts a task that carries its deadline.
fn add(wheel: &mut TimingWheel<u64>, deadline: u64) -> TaskId {
    let id = wheel.insert(deadline, deadline).unwrap().id;
    wheel.assert_valid();
    id
}

/// Turns the wheel bucket by bucket; returns the fired tasks as (time, deadline), and the number of
/// visited buckets.
fn run(wheel: &mut TimingWheel<u64>, until: u64) -> (Vec<(u64, u64)>, usize) {
    let (mut fired, mut advances) = (Vec::new(), 0);
    while let Some(due) = wheel.next_due().filter(|&due| due <= until) {
        wheel.advance(due, usize::MAX, |task| fired.push((due, task.take())));
        wheel.assert_valid();
        advances += 1;
    }
    wheel.advance(until, usize::MAX, |_| unreachable!("nothing more is due"));
    (fired, advances)
}

/// Inserts a task into a wheel of its own; returns the level and slot of its bucket, and the tick
/// at which the bucket begins.
fn bucket_of(slots: usize, now: u64, deadline: u64) -> ((usize, usize), u64) {
    let mut wheel = wheel_of(slots, now);
    let id = add(&mut wheel, deadline);
    let place = wheel.bucket_of(id).unwrap();
    let begins = wheel.next_due().unwrap();
    assert_eq!(wheel.level_count(), place.0 + 1, "made on demand");
    assert_eq!(run(&mut wheel, deadline).0, [(deadline, deadline)]);
    (place, begins)
}

/// The table: slots a level, the present, a deadline, and its bucket.
#[test]
fn deadlines_are_where_papers_and_notes_have_them() {
    let at = |hours: u64, minutes: u64, seconds: u64| hours * 3600 + minutes * 60 + seconds;
    #[rustfmt::skip]
    let table = [
        // A wheel of 1 ms x 20 (S7).
        (20, 0, 2, (0, 2), 2),
        (20, 2, 10, (0, 10), 10),
        (20, 2, 21, (0, 1), 21),
        (20, 0, 350, (1, 17), 340),
        (20, 0, 450, (2, 1), 400),
        (20, 400, 406, (0, 6), 406),
        (20, 400, 450, (1, 2), 440),
        (20, 400, 455, (1, 2), 440),
        (20, 400, 473, (1, 3), 460),
        (20, 440, 450, (0, 10), 450),
        (20, 0, 30_000, (3, 3), 24_000),
        (20, 0, 159_999, (3, 19), 152_000),
        (20, 0, 160_000, (4, 1), 160_000),
        // The clock of hours, minutes and seconds (S14 b): at 22:20:30, a timer of 50 min 10 s.
        (60, at(22, 20, 30), at(23, 10, 40), (1, 10), at(23, 10, 0)),
        (60, at(21, 20, 30), at(22, 10, 40), (1, 10), at(22, 10, 0)),
        (60, at(23, 10, 0), at(23, 10, 40), (0, 40), at(23, 10, 40)),
    ];
    for (slots, now, deadline, place, begins) in table {
        let found = bucket_of(slots, now, deadline);
        assert_eq!(found, (place, begins), "{deadline} at {now}, {slots} slots");
    }
}

/// Buckets advance the clock (S9).
#[test]
fn buckets_due_at_200_and_840_take_2_advances_not_840() {
    let mut wheel = wheel_of(1000, 0);
    add(&mut wheel, 200);
    add(&mut wheel, 840);
    assert_eq!(run(&mut wheel, 1000), (vec![(200, 200), (840, 840)], 2));
}

// The level table of Kafka's documentation for u = 1, n = 3 (S15):
//
//   level  buckets at creation, c = 0
//   1      [c, c]      [c+1, c+1]  [c+2, c+2]
//   2      [c, c+2]    [c+3, c+5]  [c+6, c+8]
//   3      [c, c+8]    [c+9, c+17] [c+18, c+26]

#[test]
fn the_level_table_for_u_1_n_3() {
    // (now, deadline, level, the first tick of its bucket). At c+1, c+2 and c+3 level 1 has moved
    // on by one tick each, level 2 only at c+3.
    #[rustfmt::skip]
    let table = [
        (0, 0, 1, 0), (0, 1, 1, 1), (0, 2, 1, 2), (0, 3, 2, 3), (0, 5, 2, 3), (0, 6, 2, 6),
        (0, 8, 2, 6), (0, 9, 3, 9), (0, 17, 3, 9), (0, 18, 3, 18), (0, 26, 3, 18), (0, 27, 4, 27),
        (1, 3, 1, 3), (1, 4, 2, 3), (1, 8, 2, 6), (2, 4, 1, 4), (2, 5, 2, 3), (3, 5, 1, 5),
        (3, 6, 2, 6), (3, 11, 2, 9), (3, 12, 3, 9), (3, 26, 3, 18),
    ];
    for (now, deadline, level, begins) in table {
        let ((found, _), found_begins) = bucket_of(3, now, deadline);
        assert_eq!(
            (found + 1, found_begins),
            (level, begins),
            "{deadline} at c+{now}"
        );
    }
}

// Kafka's own wheel test: tick 10 ms, 5 slots, start 1000 ms. Ticks are therefore tens of
// milliseconds.

#[test]
fn kafkas_wheel_test() {
    let mut wheel = wheel_of(5, 100);
    let valid = add(&mut wheel, 101);
    assert_eq!(wheel.bucket_of(valid), Some((0, 1)));
    let expired = add(&mut wheel, 99); // at 999 ms: accepted, and due at once
    assert_eq!(wheel.next_due(), Some(100));
    assert_eq!(wheel.cancel(expired), Some(99)); // Kafka refuses a cancelled task; here it is gone
    assert_eq!((wheel.cancel(expired), wheel.len()), (None, 1));
    // 1005 ms is within Kafka's current tick, so it is expired there. Here it rounds up to 1010.
    let tick = timer_core::TickLength::new(std::time::Duration::from_millis(10)).unwrap();
    assert_eq!(tick.round_up(1_005_000_000), 101);
    // An advance within a tick does not move the wheel; one tick does.
    assert_eq!(tick.round_down(1_009_999_999), 100);
    assert_eq!(run(&mut wheel, 101).0, [(101, 101)]);
    assert_eq!((wheel.now(), wheel.level_count()), (101, 1)); // no overflow wheel yet
    add(&mut wheel, 106);
    assert_eq!(wheel.level_count(), 2); // made on demand
    let reused = add(&mut wheel, 124);
    assert_eq!(wheel.level_count(), 2);
    assert_eq!(wheel.bucket_of(reused).unwrap().0, 1);
    assert_eq!(wheel.next_due(), Some(105)); // 1050 ms: the overflow wheel counts in 50 ms
    run(&mut wheel, 106);
    assert_eq!(wheel.next_due(), Some(120));
}

#[test]
fn an_id_names_a_task_by_its_insertion() {
    let mut wheel = wheel_of(20, 0);
    let id = add(&mut wheel, 8);
    assert_eq!(id.sequence(), 1);
    assert_eq!(wheel.deadline(id), Some(8));
    assert!(!wheel.is_empty());
    wheel.follow(7);
    assert_eq!(add(&mut wheel, 8).sequence(), 8);
}

/// A free node has the sequence 0, too.
#[test]
fn an_id_with_the_sequence_0_names_no_task() {
    let mut wheel = wheel_of(20, 0);
    for kept in [0, 1] {
        let ids: Vec<_> = (0..2).map(|_| add(&mut wheel, 8)).collect();
        for id in &ids[kept..] {
            assert!(wheel.cancel(*id).is_some());
        }
        for id in ids {
            let zero = TaskId::from_parts(id.index(), 0);
            assert_eq!(wheel.get(zero), None);
            assert_eq!(wheel.get_mut(zero), None);
            assert_eq!((wheel.deadline(zero), wheel.bucket_of(zero)), (None, None));
            assert_eq!(
                (wheel.reschedule(zero, 9), wheel.cancel(zero)),
                (None, None)
            );
            assert!(!wheel.unschedule(zero));
            wheel.assert_valid();
            assert_eq!((wheel.len(), wheel.scheduled_count()), (kept, kept));
        }
    }
}
