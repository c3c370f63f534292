//! Bounds: of the waits, whose places are given back, and of the work in one lock hold.

use crate::support::*;

/// The number of waits of one key.
const MANY: usize = 200;
/// The most waits that end in one lock hold.
const HOLD: usize = 64;

/// A call that ends many waits of a key unlocks in between: callbacks see the rest wait. (A new
/// epoch and a removal end all waits in one lock hold, so that no later value meets one of them.)
#[test]
fn many_waits_of_a_key_end_in_several_lock_holds() {
    type End = fn(&Watermarks<u32>) -> usize;
    let ends: [(&str, End); 3] = [
        ("advance", |values| values.advance(&1, 10).unwrap()),
        ("kept epoch", |values| {
            values.begin_epoch_and_keep(&1, 1, 10).unwrap()
        }),
        ("close", |values| values.close(&1, "closed")),
    ];
    for (way, end) in ends {
        // Another key came first in the same shard.
        let (_timer, _, values) = watermarks_with::<u32>(|builder| builder.shards(1));
        let mut other = values.wait_for(&0, 99, SECOND);
        let left = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..MANY {
            let left = left.clone();
            let waits = values.waits();
            let see = move |_| left.lock().unwrap().push(waits.len());
            values.park(&1, 10, SECOND, see).unwrap();
        }
        assert_eq!(end(&values), MANY, "{way}");
        let left = left.lock().unwrap();
        let holds = (1..=MANY).map(|ended| 1 + MANY - ended.next_multiple_of(HOLD).min(MANY));
        assert!(left.iter().copied().eq(holds), "{way}: {left:?}");
        assert!(poll(&mut other).is_pending());
    }
}

/// One call runs 1024 callbacks queued behind it; the operations' keys do not count among them.
#[test]
fn call_runs_nested_callbacks_of_all_keys() {
    let later = Later::default();
    let (_timer, purgatory): (_, Purgatory<Hooked>) =
        by_hand_with(|builder| builder.executor(later.clone()));
    let ran = Arc::new(AtomicUsize::new(0));
    for number in 1..=1000 {
        let ran = ran.clone();
        let counts = when(|| false, move |_| _ = ran.fetch_add(1, SeqCst));
        purgatory.park(counts, &[Hooked::plain(number)], NEVER);
    }
    let inside = purgatory.clone();
    let cancels = when(|| false, move |_| _ = inside.cancel_all("over"));
    purgatory.park(cancels, &[Hooked::plain(0)], NEVER);
    assert_eq!(purgatory.complete_for_key(&0), 1);
    assert_eq!((ran.load(SeqCst), later.len()), (1000, 0));
}

/// An event checks its waiters in steps. During the first step, another walk of the shard breaks
/// off and waiters of later steps leave.
#[test]
fn an_event_in_steps_reaches_the_last_waiter() {
    let (_timer, waits): (_, Purgatory<u32>) = by_hand_with(|builder| builder.shards(1));
    let (inside, mut is_parked) = (waits.clone(), false);
    let check = move || {
        if mem::replace(&mut is_parked, true) {
            on_another_thread(|| assert!(inside.check_and_complete_one(&2)));
            inside.cancel_for_key(&3, "gone");
        }
        false
    };
    waits.park(when(check, drop), &[3, 1], NEVER);
    for _ in 0..MANY {
        waits.park(never(), &[3, 1], NEVER);
    }
    let mut last = waits.next_event(&[4, 1], NEVER);
    let _others = [(); 2].map(|()| waits.next_event(&[2], NEVER));
    assert_eq!(waits.check_and_complete(&1), 1);
    assert_eq!((over(&mut last), waits.len()), (Ok(()), 1));
}

/// A shard with many due waits is unlocked in between, in the kernel and in the table.
#[test]
fn many_that_are_due_expire_in_several_lock_holds() {
    let hand = ManualTimer::new();
    let timer = system_timer(|builder| builder.clock(hand.clock()).inline());
    let values = Watermarks::<u32>::on(&timer, "test").unwrap();
    let parked = Purgatory::<u32>::on(&timer, "test").unwrap();
    let (seen_by_values, of_values) = mpsc::channel();
    let (seen_by_parked, of_parked) = mpsc::channel();
    for _ in 0..MANY {
        let (seen, waits) = (seen_by_values.clone(), values.waits());
        let see = move |_| seen.send(waits.len()).unwrap();
        values.park(&1, 10, SECOND, see).unwrap();
        let (seen, waits) = (seen_by_parked.clone(), parked.clone());
        let see = move |_| seen.send(waits.len()).unwrap();
        let parked = parked.try_complete_else_watch(when(|| false, see), &[1], SECOND);
        assert!(matches!(parked, Ok(Some(_))));
    }
    hand.pass(2 * SECOND);
    for seen in [of_values, of_parked] {
        let left: Vec<usize> = seen.iter().take(MANY).collect();
        assert!(left[0] >= MANY - HOLD, "{left:?}");
    }
}

/// Checks, callbacks and wakers may panic on any thread; the timer's hook is told of each panic.
#[test]
fn a_timers_panic_hook_hears_of_checks_and_callbacks() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hook = heard.clone();
    let hears = move |message: &str| hook.lock().unwrap().push(message.to_owned());
    let timer = SystemTimer::builder().on_panic(hears).build().unwrap();
    let purgatory = Purgatory::<u32>::on(&timer, "test").unwrap();
    let values = Watermarks::<u32>::on(&timer, "test").unwrap();
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = is_armed.clone();
    let check = move || {
        assert!(!armed.load(SeqCst), "check");
        false
    };
    let parked = purgatory.try_complete_else_watch(when(check, drop), &[1], SECOND * 600);
    parked.unwrap();
    is_armed.store(true, SeqCst);
    purgatory.check_and_complete(&1);
    let callback = when(|| false, |_| panic!("callback"));
    let parked = purgatory.try_complete_else_watch(callback, &[1], SECOND * 600);
    parked.unwrap();
    purgatory.cancel_all("gone");
    let parked = values.park(&1, 1, SECOND * 600, |_| panic!("value"));
    parked.unwrap();
    values.advance(&1, 1).unwrap();
    assert_eq!(*heard.lock().unwrap(), ["check", "callback", "value"]);
}

/// A place is taken until the callback begins; the place of a future is free once its wait has
/// ended.
#[test]
fn late_callbacks_take_places() {
    let (timer, later) = (ManualTimer::new(), Later::default());
    let builder = Purgatory::builder("few").timer(&timer).max_parked(1);
    let waits: Purgatory<u32> = builder.executor(later.clone()).build().unwrap();
    let builder = Watermarks::builder("few").timer(&timer).max_parked(1);
    let values: Watermarks<u32> = builder.executor(later.clone()).build().unwrap();
    assert_eq!(values.waits().max_parked(), Some(1));
    let mut future = values.wait_for(&1, 1, MS);
    timer.advance(MS);
    assert_eq!(over(&mut future), Err(WaitError::Expired));
    waits.park(never(), &[1], MS);
    values.park(&1, 1, MS, drop).unwrap();
    timer.advance(MS);
    assert_eq!(later.len(), 3);
    let full = WaitError::Full { limit: 1 };
    assert_eq!(refused(&waits, never(), &[1]).0, full);
    assert_eq!(values.park(&1, 1, MS, drop).unwrap_err().reason, full);
    later.run();
    waits.park(never(), &[1], MS);
    values.park(&1, 1, MS, drop).unwrap();
    values.advance(&1, 1).unwrap();
    values.park(&1, 2, MS, drop).unwrap();
}

/// One call runs 1024 callbacks queued behind it, and leaves the rest to the executor.
#[test]
fn callbacks_left_to_the_executor_take_places() {
    const MAX: usize = 2000;
    let later = Later::default();
    let (_timer, _, values) =
        watermarks_with::<u32>(|builder| builder.executor(later.clone()).max_parked(MAX));
    let inside = values.clone();
    let advances = move |_| _ = inside.advance(&2, 1);
    values.park(&1, 1, NEVER, advances).unwrap();
    for _ in 1..MAX {
        values.park(&2, 1, NEVER, drop).unwrap();
    }
    values.advance(&1, 1).unwrap();
    assert_eq!(later.len(), 1);
    let come = std::iter::from_fn(|| values.park(&2, 2, NEVER, drop).ok());
    assert_eq!(come.count(), 1 + 1024, "they have begun");
    later.run();
    assert!(values.park(&2, 2, NEVER, drop).is_ok());
}

/// An operation that ended at once takes a place, too, while the executor has its callback.
#[test]
fn late_callbacks_of_what_ended_at_once_take_places() {
    let (timer, later) = (ManualTimer::new(), Later::default());
    let builder = Purgatory::<u32>::builder("few").timer(&timer).max_parked(2);
    let waits = builder.executor(later.clone()).build().unwrap();
    let builder = Purgatory::<u32>::builder("all").timer(&timer).max_parked(2);
    let builder = builder.executor(later.clone()).callbacks_on_executor();
    let all = builder.build().unwrap();
    let true_now = || when(|| true, drop);
    for _ in 0..3 {
        let over = waits.try_complete_else_watch(never(), &[1], Duration::ZERO);
        assert_eq!(over.unwrap(), None);
        let over = waits.try_complete_else_watch(true_now(), &[1], MS); // called back here
        assert_eq!(over.unwrap(), None);
        let over = all.try_complete_else_watch(true_now(), &[1], MS);
        assert_eq!(over.unwrap(), None);
    }
    let full = WaitError::Full { limit: 2 };
    for purgatory in [&waits, &all] {
        assert_eq!(purgatory.stats().callbacks_waiting, 3);
        assert_eq!(refused(purgatory, never(), &[1]).0, full);
    }
    later.run();
    for purgatory in [&waits, &all] {
        purgatory.park(never(), &[1], MS);
        purgatory.park(never(), &[1], MS);
        assert_eq!(refused(purgatory, never(), &[1]).0, full);
    }
}

/// One call runs 1024 callbacks queued behind it, and leaves the rest to the executor.
#[test]
fn nested_callbacks_of_unparked_waits_take_places() {
    let later = Later::default();
    let timer = ManualTimer::new();
    let builder = Purgatory::<u32>::builder("few").timer(&timer).max_parked(2);
    let waits = builder.executor(later.clone()).build().unwrap();
    let inside = waits.clone();
    let ends_others = move |_| {
        for _ in 0..2000 {
            let over = inside.try_complete_else_watch(when(|| true, drop), &[1], NEVER);
            assert_eq!(over.unwrap(), None);
        }
    };
    let over = waits.try_complete_else_watch(when(|| true, ends_others), &[1], NEVER);
    assert_eq!(over.unwrap(), None);
    assert_eq!(later.len(), 1);
    let full = WaitError::Full { limit: 2 };
    assert_eq!(refused(&waits, never(), &[1]).0, full);
    later.run();
    waits.park(never(), &[1], MS);
    waits.park(never(), &[1], MS);
    assert_eq!(refused(&waits, never(), &[1]).0, full);
}

/// The watches of operations with many keys are released in several jobs, with others in between.
#[test]
fn a_job_releases_a_bounded_number_of_watches() {
    let (timer, later) = (SystemTimer::new().unwrap(), Later::default());
    let builder = Purgatory::<u32>::builder("test").timer(&timer);
    let waits = builder.executor(later.clone()).build().unwrap();
    let keys: Vec<u32> = (0..1000).collect();
    let probes = [(); 3].map(|()| Probe::parked(&waits, &keys, NEVER));
    assert_eq!(waits.shutdown(Duration::ZERO), 3);
    for ended in [2, 3] {
        assert_eq!(later.run(), 1);
        assert_eq!(probes.iter().filter(|probe| probe.ended()).count(), ended);
    }
    assert_eq!(later.len(), 0);
}
