//! The numbers that papers, course notes and Kafka's documentation work out by hand, and Kafka's
//! own tests of its wheel, on `TimingWheel`.

use timer_core::{TaskId, TimingWheel, WheelSize};

fn kafka(start: u64) -> TimingWheel<u64> {
    TimingWheel::new(WheelSize::KAFKA, start)
}

fn wheel_of(slots: usize, start: u64) -> TimingWheel<u64> {
    TimingWheel::new(WheelSize::new(slots).unwrap(), start)
}

/// Inserts a task that carries its deadline.
fn add(wheel: &mut TimingWheel<u64>, deadline: u64) -> TaskId {
    let id = wheel.insert(deadline, deadline).unwrap().id;
    wheel.assert_valid();
    id
}

/// Turns the wheel bucket by bucket; returns what fired, as (time, deadline), and how many buckets
/// were visited.
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

fn level_and_slot(wheel: &TimingWheel<u64>, id: TaskId) -> (usize, usize) {
    wheel.bucket_of(id).unwrap()
}

// A hierarchical wheel of 1 ms x 20 (S7).

#[test]
fn short_deadlines_reuse_slots_of_level_1() {
    let mut wheel = kafka(0);
    let two = add(&mut wheel, 2);
    assert_eq!(level_and_slot(&wheel, two), (0, 2));
    assert_eq!(run(&mut wheel, 2).0, [(2, 2)]);
    let (eight, nineteen) = (add(&mut wheel, 2 + 8), add(&mut wheel, 2 + 19));
    assert_eq!(level_and_slot(&wheel, eight), (0, 10));
    assert_eq!(level_and_slot(&wheel, nineteen), (0, 1));
    assert_eq!(run(&mut wheel, 30).0, [(10, 10), (21, 21)]);
}

#[test]
fn deadline_350_waits_in_slot_17_of_level_2() {
    let mut wheel = kafka(0);
    let id = add(&mut wheel, 350);
    assert_eq!(level_and_slot(&wheel, id), (1, 17));
    assert_eq!(wheel.next_due(), Some(340));
    assert_eq!(run(&mut wheel, 400).0, [(350, 350)]);
}

#[test]
fn deadline_450_is_handed_down_twice() {
    let mut wheel = kafka(0);
    let id = add(&mut wheel, 450);
    assert_eq!((level_and_slot(&wheel, id), wheel.next_due()), ((2, 1), Some(400)));
    assert!(run(&mut wheel, 400).0.is_empty());
    assert_eq!((level_and_slot(&wheel, id), wheel.next_due()), ((1, 2), Some(440)));
    assert!(run(&mut wheel, 440).0.is_empty());
    assert_eq!((level_and_slot(&wheel, id), wheel.next_due()), ((0, 10), Some(450)));
    assert_eq!(run(&mut wheel, 449).0, []);
    assert_eq!(run(&mut wheel, 450).0, [(450, 450)]);
}

#[test]
fn deadlines_406_455_and_473_share_a_bucket_then_part() {
    let mut wheel = kafka(0);
    let ids = [450, 406, 455, 473].map(|deadline| add(&mut wheel, deadline));
    assert!(ids.iter().all(|&id| level_and_slot(&wheel, id) == (2, 1)));
    run(&mut wheel, 400);
    let places = ids.map(|id| level_and_slot(&wheel, id));
    assert_eq!(places, [(1, 2), (0, 6), (1, 2), (1, 3)]); // [440, 460), 406, [440, 460), [460, 480)
    let (fired, _) = run(&mut wheel, 500);
    assert_eq!(fired, [(406, 406), (450, 450), (455, 455), (473, 473)]);
}

#[test]
fn thirty_seconds_need_four_levels() {
    let mut wheel = kafka(0);
    assert_eq!(wheel.level_count(), 0);
    add(&mut wheel, 19);
    assert_eq!(wheel.level_count(), 1);
    add(&mut wheel, 30_000);
    assert_eq!(wheel.level_count(), 4);
    let last = add(&mut wheel, 159_999);
    assert_eq!((level_and_slot(&wheel, last).0, wheel.level_count()), (3, 4));
    add(&mut wheel, 160_000);
    assert_eq!(wheel.level_count(), 5);
}

// Buckets drive the clock (S9).

#[test]
fn buckets_due_at_200_and_840_take_2_advances_not_840() {
    let mut wheel = wheel_of(1000, 0);
    add(&mut wheel, 200);
    add(&mut wheel, 840);
    assert_eq!(run(&mut wheel, 1000), (vec![(200, 200), (840, 840)], 2));
}

// The clock of hours, minutes and seconds (S14 b): at 22:20:30 a timer of 50 min 10 s.

#[test]
fn fifty_minutes_ten_seconds_take_two_slots() {
    let seconds = |hours: u64, minutes: u64, seconds: u64| hours * 3600 + minutes * 60 + seconds;
    for (start, due) in [((22, 20, 30), (23, 10, 40)), ((21, 20, 30), (22, 10, 40))] {
        let start = seconds(start.0, start.1, start.2);
        let due = seconds(due.0, due.1, due.2);
        assert_eq!(start + 50 * 60 + 10, due);
        let mut wheel = wheel_of(60, start);
        let id = add(&mut wheel, due);
        assert_eq!(level_and_slot(&wheel, id), (1, 10));
        assert_eq!(wheel.next_due(), Some(due - 40));
        assert!(run(&mut wheel, due - 40).0.is_empty());
        assert_eq!(level_and_slot(&wheel, id), (0, 40));
        assert_eq!(run(&mut wheel, due).0, [(due, due)]);
    }
}

// The level table of Kafka's documentation for u = 1, n = 3 (S15):
//
//   level  buckets at creation, c = 0
//   1      [c, c]      [c+1, c+1]  [c+2, c+2]
//   2      [c, c+2]    [c+3, c+5]  [c+6, c+8]
//   3      [c, c+8]    [c+9, c+17] [c+18, c+26]

#[test]
fn the_level_table_for_u_1_n_3() {
    let place = |start: u64, deadline: u64| {
        let mut wheel = wheel_of(3, start);
        let id = add(&mut wheel, deadline);
        (level_and_slot(&wheel, id).0 + 1, wheel.next_due().unwrap())
    };
    // (deadline, level, the first tick of its bucket)
    let at_c = [
        (0, 1, 0),
        (1, 1, 1),
        (2, 1, 2),
        (3, 2, 3),
        (5, 2, 3),
        (6, 2, 6),
        (8, 2, 6),
        (9, 3, 9),
        (17, 3, 9),
        (18, 3, 18),
        (26, 3, 18),
        (27, 4, 27),
    ];
    for (deadline, level, begins) in at_c {
        assert_eq!(place(0, deadline), (level, begins), "deadline {deadline} at c");
    }
    // At c+1, c+2 and c+3 level 1 has moved on by one tick each; level 2 only at c+3.
    let later = [
        (1, 3, 1, 3),
        (1, 4, 2, 3),
        (1, 8, 2, 6),
        (2, 4, 1, 4),
        (2, 5, 2, 3),
        (3, 5, 1, 5),
        (3, 6, 2, 6),
        (3, 11, 2, 9),
        (3, 12, 3, 9),
        (3, 26, 3, 18),
    ];
    for (now, deadline, level, begins) in later {
        assert_eq!(place(now, deadline), (level, begins), "deadline {deadline} at c+{now}");
    }
}

// Kafka's own wheel test: tick 10 ms, 5 slots, start 1000 ms; so ticks count tens of milliseconds.

#[test]
fn kafkas_wheel_test() {
    let mut wheel = wheel_of(5, 100);
    let valid = add(&mut wheel, 101);
    assert_eq!(wheel.bucket_of(valid), Some((0, 1)));
    let expired = add(&mut wheel, 99); // at 999 ms: taken, and due at once
    assert_eq!(wheel.next_due(), Some(100));
    assert_eq!(wheel.cancel(expired), Some(99)); // cancelled: refused by Kafka, gone here
    assert_eq!((wheel.cancel(expired), wheel.len()), (None, 1));
    // 1005 ms is within Kafka's current tick, so expired there; here it rounds up to 1010.
    let tick = timer_core::TickLength::new(std::time::Duration::from_millis(10)).unwrap();
    assert_eq!(tick.round_up(1_005_000_000), 101);
    // Advancing within a tick does not move, one tick does.
    assert_eq!(tick.round_down(1_009_999_999), 100);
    assert_eq!(run(&mut wheel, 101).0, [(101, 101)]);
    assert_eq!((wheel.now(), wheel.level_count()), (101, 1)); // no overflow wheel yet
    add(&mut wheel, 106);
    assert_eq!(wheel.level_count(), 2); // made on demand
    let reused = add(&mut wheel, 124);
    assert_eq!((wheel.level_count(), level_and_slot(&wheel, reused).0), (2, 1));
    assert_eq!(wheel.next_due(), Some(105)); // 1050 ms: the overflow wheel counts in 50 ms
    run(&mut wheel, 106);
    assert_eq!(wheel.next_due(), Some(120));
}

// What has wedged or fooled other wheels.

#[test]
fn deadlines_that_wedge_other_timers() {
    for slots in [3, 20, 60, 64] {
        let mut wheel = wheel_of(slots, 0);
        let far = [20u64.pow(14), 1 << 30, 1 << 36, 1 << 61, u64::MAX - 1, u64::MAX];
        let ids = far.map(|deadline| add(&mut wheel, deadline));
        add(&mut wheel, 5);
        assert_eq!(run(&mut wheel, 5).0, [(5, 5)]);
        assert_eq!(wheel.cancel(ids[5]), Some(u64::MAX));
        let mut left = far[..5].to_vec();
        left.sort_unstable();
        let (fired, _) = run(&mut wheel, u64::MAX);
        assert!(fired.iter().copied().eq(left.into_iter().map(|deadline| (deadline, deadline))));
    }
}

/// Caffeine's wheel chose the level by the delay but the slot by the absolute time, so a timer just
/// past a boundary waited a whole turn more.
#[test]
fn caffeine_a_deadline_past_a_boundary_is_on_time() {
    for now in [63, 4095, 262_143, 19, 399] {
        for delay in 0..200 {
            let mut wheel = TimingWheel::new(WheelSize::default(), now);
            add(&mut wheel, now + delay);
            assert_eq!(run(&mut wheel, now + delay).0, [(now + delay, now + delay)]);
        }
    }
}

#[test]
fn a_budget_bounds_each_call() {
    let mut wheel = kafka(0);
    let ids: Vec<_> = (0..100).map(|_| add(&mut wheel, 450)).collect();
    let turn = wheel.advance(450, 30, |_| unreachable!("handed down first"));
    assert_eq!((turn.fired, turn.cascaded, turn.next_due), (0, 30, Some(400)));
    let mut fired = 0;
    assert_eq!(wheel.cancel(ids[99]), Some(450)); // in the bucket being emptied
    assert_eq!(wheel.reschedule(ids[98], 460), Some(460));
    while wheel.next_due().is_some_and(|due| due <= 450) {
        let turn = wheel.advance(450, 30, |task| {
            task.take();
            fired += 1;
        });
        assert!(turn.fired + turn.cascaded <= 30);
        wheel.assert_valid();
    }
    assert_eq!((fired, wheel.len()), (98, 1));
    assert_eq!(run(&mut wheel, 500).0, [(460, 450)]);
}

#[test]
fn the_present_comes_to_the_last_tick_of_all() {
    let mut wheel = kafka(7);
    wheel.advance(u64::MAX, usize::MAX, |_| unreachable!("nothing is there"));
    assert_eq!(wheel.now(), u64::MAX);
    add(&mut wheel, 8); // long past
    let turn = wheel.advance(9, usize::MAX, |task| assert_eq!(task.take(), 8));
    assert_eq!(turn.fired, 1, "a time in the past counts as the present");
}
