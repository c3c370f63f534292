//! Copies and allocations.
#![cfg(not(loom))]

use crate::support::*;

/// Keys are looked up by any borrowed form, as in a `HashMap`.
#[test]
fn only_awaited_events_in_callbacks_clone_a_key() {
    let (clones, counts) = counting();
    let key = Hooked::new(0, counts);
    let (_timer, purgatory): (_, Purgatory<Hooked>) = by_hand();
    let first = Probe::new();
    let second = Probe::new();
    let inside = purgatory.clone();
    let raise = move |_| {
        for number in [1, 2, 3] {
            assert_eq!(inside.check_and_complete(&number), 0);
        }
    };
    purgatory.park(first.operation().then(raise), &[key.like(0)], NEVER);
    purgatory.park(second.operation(), &[key.like(2)], NEVER);
    assert_eq!(clones.load(SeqCst), 2); // the keys that are stored
    first.make_ready();
    second.make_ready();
    assert_eq!(purgatory.check_and_complete(&0), 1);
    assert_eq!(second.endings(), [Outcome::Completed]);
    assert_eq!(purgatory.len(), 0);
    assert_eq!((clones.load(SeqCst), purgatory.stats().events), (3, 4)); // the nested event of 2
}

/// The watches of up to four keys lie on the parker's stack; a fifth takes an allocation.
#[test]
fn watches_of_up_to_four_keys_take_no_allocation() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let allocations = |keys| {
        let once =
            || _ = waits.complete(waits.park(never(), &["a", "b", "c", "d", "e"][..keys], NEVER));
        for _ in 0..2 {
            once(); // the shards keep memory: two keys may share a shard, whose places grow
        }
        a_hundred_more(once).count_total
    };
    let one = allocations(1); // the boxes
    assert_eq!((allocations(3), allocations(4)), (one, one));
    assert!(allocations(5) > one);
}

/// A wait is only its cell: condition, value and waker lie in it.
#[test]
fn a_wait_takes_one_allocation() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand();
    let task = Woken::task();
    let once = || {
        let mut looks = 0..;
        let mut wait = waits.wait(&[1], NEVER, move || looks.next().filter(|&look| look > 0));
        assert!(task.poll(&mut wait).is_pending());
        assert_eq!(waits.check_and_complete(&1), 1);
        assert_eq!(over(&mut wait), Ok(1));
    };
    let measured = a_hundred_more(once);
    assert_eq!((measured.count_total, measured.bytes_current), (100, 0));
    assert!(size_of::<WaitFuture<u64>>() <= 40);
}

/// The allocations are the shared state, the keys, the values and the parts.
#[test]
fn wait_for_each_takes_four_allocations() {
    let (_timer, _waits, values) = watermarks::<u32>();
    let watermarks: Vec<_> = (0..100).map(|key| (key, 2)).collect();
    for key in 0..100 {
        values.advance(&key, 1).unwrap(); // so that the key keeps the memory of one wait
    }
    drop(values.wait_for_each(&watermarks, NEVER));
    let mut wait = None;
    let made = || wait = Some(values.wait_for_each(&watermarks, NEVER));
    assert_eq!(allocation_counter::measure(made).count_total, 4);
    assert!(wait.is_some());
}

/// A condition that holds at once is not boxed.
#[test]
fn a_wait_that_ends_at_once_takes_no_allocation() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand();
    let at_once = || {
        [
            waits.wait(&[1], NEVER, || Some(7)),
            waits.wait(&[1], Duration::ZERO, || None),
        ]
    };
    drop(at_once()); // for the thread's first memory
    let mut ended = None;
    let measured = allocation_counter::measure(|| ended = Some(at_once()));
    assert_eq!(measured.count_total, 0);
    let [mut held, mut expired] = ended.unwrap();
    assert_eq!(over(&mut held), Ok(7));
    assert_eq!(over(&mut expired), Err(WaitError::Expired));
}

/// All handles share the state that keeps the form open.
#[test]
fn a_handle_of_the_waits_takes_no_allocation() {
    let (_timer, _waits, values) = watermarks::<u32>();
    assert_eq!(a_hundred_more(|| drop(values.waits())).count_total, 0);
}

/// The walk that an event for one breaks off is forgotten.
#[test]
fn signals_for_one_leave_nothing_behind() {
    let (_timer, waits): (_, Purgatory<&str>) = by_hand();
    let once = || {
        let mut looks = 0..;
        waits.park(when(move || looks.next() > Some(0), drop), &["a"], NEVER);
        waits.park(never(), &["a"], NEVER);
        assert!(waits.check_and_complete_one(&"a"));
        assert_eq!(waits.cancel_for_key(&"a", "over"), 1);
    };
    let measured = a_hundred_more(once);
    assert_eq!(measured.bytes_current, 0);
}

/// A client library may have thousands of purgatories, one for each connection.
#[test]
fn idle_purgatory_takes_592_bytes() {
    let timer = ManualTimer::new();
    let measured = sixth_purgatory(&timer);
    assert!(measured.bytes_current <= 592, "{measured:?}");
    assert!(measured.count_total <= 5, "{measured:?}");

    // A reaper takes the list of new purgatories when it wakes, at any time: for the sixth, the
    // list may be made anew, or its four places of 24 bytes doubled.
    let timer = SystemTimer::new().unwrap();
    let measured = sixth_purgatory(&timer);
    assert!(measured.bytes_current <= 592 + 96, "{measured:?}");
    assert!(measured.count_total <= 6, "{measured:?}");
}

#[test]
fn idle_purgatory_of_many_shards_takes_no_more() {
    let timer = ManualTimer::new();
    let make = |shards| {
        let mut made = None;
        let builder = Purgatory::<u32>::builder("idle").timer(&timer);
        let measured = allocation_counter::measure(|| made = builder.shards(shards).build().ok());
        // A call that only looks makes no shard.
        let idle = made.unwrap();
        let looked = allocation_counter::measure(|| assert!(idle.is_empty() && idle.keys() == 0));
        assert_eq!(looked.count_total, 0);
        let dropped = allocation_counter::measure(|| drop(idle));
        // The drop makes no shard in order to close it, and withdraws nothing that was never
        // published. A manual timer is told of the end.
        assert!(dropped.count_total <= 1, "{dropped:?}");
        (
            measured.bytes_current,
            measured.count_total,
            dropped.bytes_max,
        )
    };
    make(1); // for the first memory of the timer's list
    assert_eq!(make(64), make(1));
}

/// A shard's lines are made, with the limit, when the shard is first used.
#[test]
fn idle_permits_make_no_shard() {
    let timer = ManualTimer::new();
    let make = |shards| {
        let mut made = None;
        let builder = Permits::<u32>::keyed_builder("idle").timer(&timer).limit(3);
        let measured = allocation_counter::measure(|| made = builder.shards(shards).build().ok());
        let permits = made.unwrap();
        assert_eq!((permits.free_for(&1), permits.taken_for(&2)), (3, 0));
        assert_eq!(permits.try_acquire_for(&3, 3).unwrap().weight(), 3);
        (measured.bytes_current, measured.count_total)
    };
    make(1); // for the first memory of the timer's list
    assert_eq!(make(64), make(1));

    // Without keys they take as many blocks as another form.
    let mut lock = None;
    let mut replies = None;
    let ours = allocation_counter::measure(|| lock = Permits::on(&timer, "idle", 1).ok());
    let others = allocation_counter::measure(|| {
        replies = Replies::<u32, u32>::on(&timer, "idle").ok();
    });
    assert_eq!(ours.count_current, others.count_current);
    assert_eq!(lock.unwrap().free(), 1);
    drop(replies);
}

/// A page of 64 entries and whole levels of buckets in each shard would be some hundred kilobytes.
/// The number of shards in use depends on the hashes, which vary from run to run.
#[test]
fn a_hundred_waits_take_little_beside_themselves() {
    for (shards, bytes) in [(32, 57_000), (128, 94_000)] {
        let measured = waits_in_shards(100, shards);
        assert!(measured.bytes_current <= 25_000 + bytes, "{measured:?}");
    }
}

/// Shards without waits are not made, and a shard with one wait has memory for one key.
#[test]
fn one_wait_in_256_shards_makes_one_of_them() {
    let in_few = waits_in_shards(1, 32).bytes_current;
    let in_many = waits_in_shards(1, 256).bytes_current;
    assert!(in_few <= 3_900, "{in_few}");
    // The places and versions of the other shards. Each shard would take 600 bytes more.
    let others = 224 * (16 + 64);
    assert!(in_many <= in_few + others, "{in_many}, {in_few}");
}

/// Asking for times, as a scrape does, makes no shard either; a shard that is made later is timed.
#[test]
fn times_of_an_idle_purgatory_make_no_shard() {
    let timer = ManualTimer::new();
    let builder = Purgatory::builder("idle").timer(&timer).shards(256);
    let waits: Purgatory<u32> = builder.build().unwrap();
    let looks = || {
        #[cfg(feature = "metrics")]
        waits.publish();
        assert_eq!(waits.snapshot(1).times, waits.times());
    };
    let kept = allocation_counter::measure(looks).bytes_current;
    assert!(kept <= 16_384, "{kept}"); // for the series of the metrics

    waits.park(never(), &[1], Duration::from_millis(1));
    timer.advance(Duration::from_secs(1));
    let times = waits.times();
    assert_eq!((times.expired.count(), times.lateness.count()), (1, 1));
}

/// A change of the limit makes one shard of 256, and a close none. A shard that is first used later
/// has the new limit, or is closed.
#[test]
fn limits_and_closes_of_keyed_permits_make_no_shards() {
    let timer = ManualTimer::new();
    let builder = Permits::<u32>::keyed_builder("rows").timer(&timer);
    let rows = builder.shards(256).limit(3).build().unwrap();
    let held = rows.try_acquire_for(&0, 3).unwrap();
    let changed = allocation_counter::measure(|| {
        rows.resize(4);
        rows.add(3);
        assert_eq!(rows.remove(2), 2);
    });
    let permits_of = |key| rows.free_for(&key) + rows.taken_for(&key);
    assert!((0..9).all(|key| permits_of(key) == 5));
    let closed = allocation_counter::measure(|| rows.close());
    assert!(
        changed.bytes_current + closed.bytes_current <= 1024,
        "{changed:?}, {closed:?}"
    );
    assert!(rows.is_closed());
    assert!((0..200).all(|key| rows.try_acquire_for(&key, 1).is_none()));
    drop(held);
}

/// Measures waits with 250 bytes each, under keys of their own.
fn waits_in_shards(count: u32, shards: usize) -> AllocationInfo {
    let timer = ManualTimer::new();
    let builder = Purgatory::builder("few").timer(&timer).shards(shards);
    let waits: Purgatory<u32> = builder.build().unwrap();
    allocation_counter::measure(|| {
        for key in 0..count {
            let payload = [1_u8; 250];
            let operation = when(|| false, move |_| assert_eq!(payload[0], 1));
            let timeout = Duration::from_secs(30);
            let parked = waits.try_complete_else_watch(operation, &[key], timeout);
            parked.unwrap();
        }
    })
}

/// Measures one purgatory. The fifth has made the timer's list grow to eight places.
fn sixth_purgatory(timer: &Timer) -> AllocationInfo {
    let _five: Vec<_> = (0..5).map(|_| with_one_shard(timer)).collect();
    let mut sixth = None;
    allocation_counter::measure(|| sixth = Some(with_one_shard(timer)))
}

fn with_one_shard(timer: &Timer) -> Purgatory<u32> {
    let one = Purgatory::builder("one").timer(timer).shards(1);
    one.build().unwrap()
}

/// A wheel's present follows the clock when a wait comes, even after idle time: a short timeout
/// goes into a bucket of its own, and is not handed down.
#[test]
fn short_wait_after_idle_time_is_not_handed_down() {
    let timer = ManualTimer::new();
    let waits: Purgatory<u32> = Purgatory::on(&timer, "waits").unwrap();
    let values: Watermarks<u32> = Watermarks::on(&timer, "values").unwrap();
    let places = Permits::on(&timer, "places", 1).unwrap();
    let parked = waits.park(never(), &[1], NEVER);
    let waiting = values.wait_for(&1, 1, NEVER);
    let lent = RefCell::new(None);
    let acts: [&dyn Fn(); 5] = [
        &|| _ = waits.park(never(), &[1], 20 * MS),
        &|| assert!(waits.reschedule(parked, 20 * MS)),
        &|| _ = values.park(&1, 1, 20 * MS, drop).unwrap(),
        &|| assert!(values.waits().reschedule(waiting.id().unwrap(), 20 * MS)),
        &|| _ = lent.replace(over(&mut places.lease(1, 20 * MS, HOUR)).ok()),
    ];
    for (number, act) in acts.into_iter().enumerate() {
        timer.advance(HOUR);
        act();
        timer.advance(20 * MS);
        assert_eq!(timer.stats().cascaded, 0, "act {number}");
    }
    assert_eq!(waits.len(), 0);
    assert_eq!(values.waits().len(), 0);
    assert_eq!(places.taken(), 0);
}
