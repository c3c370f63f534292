//! Checks without an event: the last check of an operation whose time is up (`check_at_expiry`),
//! and sweeps over operations that wait for long (`recheck_every`). If such a check finds the
//! condition true, an event was missed.
#![cfg(not(loom))]

use crate::support::*;

/// A check without an event comes after this time.
const EVERY: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A last check: the time is up.
    Last,
    /// A sweep: two intervals remain.
    Again,
}

const BOTH: [Kind; 2] = [Kind::Last, Kind::Again];

/// Both kinds, each with a condition that becomes true and one that does not.
const BOTH_EITHER_WAY: [(Kind, bool); 4] = [
    (Kind::Last, true),
    (Kind::Last, false),
    (Kind::Again, true),
    (Kind::Again, false),
];

struct World {
    kind: Kind,
    timer: ManualTimer,
    purgatory: Waiting,
    /// The operations that the hook of last checks was called for.
    missed: Arc<Mutex<Vec<Parked<&'static str>>>>,
}

impl World {
    fn new(kind: Kind) -> Self {
        World::with(kind, |builder| builder)
    }

    fn late(kind: Kind) -> (Self, Later) {
        let later = Later::default();
        (
            World::with(kind, |builder| {
                builder.executor(later.clone()).max_parked(1)
            }),
            later,
        )
    }

    fn with(
        kind: Kind,
        build: impl FnOnce(Builder<Purgatory<&'static str, Op>>) -> Builder<Purgatory<&'static str, Op>>,
    ) -> Self {
        let missed = Arc::<Mutex<Vec<_>>>::default();
        let told = missed.clone();
        let hook = move |parked: &Parked<_>| told.lock().unwrap().push(parked.clone());
        let (timer, purgatory) = by_hand_with(|builder| match kind {
            Kind::Last => build(builder.check_at_expiry(hook)),
            Kind::Again => build(builder.recheck_every(EVERY)),
        });
        World {
            kind,
            timer,
            purgatory,
            missed,
        }
    }

    #[track_caller]
    fn park(&self, operation: Op, keys: &[&'static str]) -> OperationId {
        let intervals = if self.kind == Kind::Last { 1 } else { 3 };
        self.purgatory.park(operation, keys, intervals * EVERY)
    }

    #[track_caller]
    fn parked(&self, keys: &[&'static str]) -> Probe {
        let probe = Probe::new();
        self.park(probe.operation(), keys);
        probe
    }

    /// Creates an operation whose first check without an event lets another thread do this; the
    /// check holds if `ready`.
    fn at_check(
        &self,
        probe: &Probe,
        ready: bool,
        mut act: impl FnMut(&Waiting) + Send + 'static,
    ) -> Op {
        let purgatory = self.purgatory.clone();
        let seen = probe.clone();
        probe.operation().on_check(move || {
            if seen.checks() != 2 {
                return; // this is the check of the park, or a later one
            }
            if ready {
                seen.make_ready();
            }
            let act = &mut act;
            let purgatory = &purgatory;
            on_another_thread(|| act(purgatory));
        })
    }

    /// Checks that nothing remains, and how many events were missed.
    #[track_caller]
    fn assert_over(&self, missed: u64) {
        let stats = self.purgatory.stats();
        assert_eq!((stats.missed_events, stats.callbacks_waiting), (missed, 0));
        let told = self.missed.lock().unwrap().len() as u64;
        assert_eq!(told, if self.kind == Kind::Last { missed } else { 0 });
        assert_empty(&self.purgatory);
    }
}

#[test]
fn a_forgotten_event_costs_at_most_two_intervals() {
    let last = World::new(Kind::Last);
    let [again, never] =
        [(); 2].map(|()| World::with(Kind::Last, |builder| builder.recheck_every(EVERY)));
    for (world, timeout, left) in [
        (last, Timeout::After(EVERY), Some(Duration::ZERO)),
        (again, Timeout::After(30 * EVERY), Some(29 * EVERY)),
        (never, NEVER, None),
    ] {
        let probe = Probe::new();
        let id = world
            .purgatory
            .park(probe.operation(), &["a", "b"], timeout);
        probe.make_ready();
        world.timer.advance(EVERY - MS);
        assert!(!probe.ended());
        world.timer.advance(MS);
        assert_eq!((probe.endings(), probe.checks()), (vec![Completed], 2));
        let missed = world.missed.lock().unwrap()[0].clone();
        assert_eq!(missed.id, id);
        assert_eq!(missed.keys, ["a", "b"]);
        assert_eq!(missed.age, EVERY);
        assert_eq!(missed.expires_in, left);
        assert_eq!(world.purgatory.stats().checks, 2);
        world.assert_over(1);
    }
    // An operation is parked just after another: the first sweep finds it too young.
    let world = World::new(Kind::Again);
    world.parked(&["a"]);
    world.timer.advance(MS);
    let probe = Probe::parked(&world.purgatory, &["b"], NEVER);
    probe.make_ready();
    world.timer.advance(2 * EVERY - 2 * MS);
    assert!(!probe.ended());
    world.timer.advance(MS);
    assert_eq!((probe.endings(), probe.checks()), (vec![Completed], 2));
}

#[test]
fn each_interval_has_one_check_and_expiry_is_on_time() {
    for keys in [&["a"][..], &["b", "a"]] {
        let world = World::new(Kind::Again);
        let probe = Probe::parked(&world.purgatory, keys, 35 * MS);
        for (passed, checks) in [(9, 1), (1, 2), (9, 2), (1, 3), (10, 4), (4, 4)] {
            world.timer.advance(passed * MS);
            assert_eq!((probe.checks(), probe.ended()), (checks, false));
        }
        world.timer.advance(MS);
        assert_eq!((probe.endings(), probe.checks()), (vec![Expired], 4));
        let stats = world.timer.stats();
        // A sweep does not count as fired, but as handed down.
        assert_eq!((stats.fired, stats.cascaded, stats.pending), (1, 3, 0));
        world.assert_over(0);
    }
    // At the deadline only the expiry comes. An interval of zero is one tick.
    for (every, timeout_ms, checks) in [(EVERY, 20, 2), (Duration::ZERO, 5, 5)] {
        let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.recheck_every(every));
        let probe = Probe::parked(&purgatory, &["a"], timeout_ms * MS);
        timer.advance(timeout_ms * MS);
        assert_eq!((probe.endings(), probe.checks()), (vec![Expired], checks));
    }
    // A sweep that is handed down on its way comes once.
    let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| builder.recheck_every(MINUTE));
    let probe = Probe::parked(&purgatory, &["a"], NEVER);
    for _ in 0..180 {
        timer.advance(SECOND);
    }
    assert_eq!(probe.checks(), 4);
}

/// A sweep reaches operations one to two intervals after their park, however they were parked, and
/// then at each interval. Each is checked once, in the order of parking.
#[test]
fn sweep_checks_what_was_parked_for_an_interval() {
    let world = World::new(Kind::Again);
    let order = Arc::<Mutex<Vec<_>>>::default();
    let mut probes = Vec::new();
    for (number, keys) in [&["a"][..], &["b", "a"], &["c", "a", "b"], &["b"]]
        .into_iter()
        .enumerate()
    {
        let probe = Probe::new();
        let order = order.clone();
        let note = move || order.lock().unwrap().push(number);
        world
            .purgatory
            .park(probe.operation().on_check(note), keys, 10 * EVERY);
        probes.push(probe);
        world.timer.advance(2 * MS);
    }
    let checked = || std::mem::take(&mut *order.lock().unwrap());
    assert_eq!(checked(), [0, 1, 2, 3]); // at park
    let times = [
        (1, vec![]),
        (1, vec![0]),
        (9, vec![]),
        (1, vec![0, 1, 2, 3]),
    ];
    for (passed, now_checked) in times {
        world.timer.advance(passed * MS);
        assert_eq!(checked(), now_checked);
    }
    probes[1].make_ready();
    probes[3].make_ready();
    world.timer.advance(EVERY);
    assert_eq!(checked(), [0, 1, 2, 3]);
    assert_eq!(probes.iter().filter(|probe| probe.ended()).count(), 2);
    let stats = world.purgatory.stats();
    assert_eq!((stats.missed_events, stats.events), (2, 0));
}

/// With nothing parked there is nothing to check, but the sweep that was planned still comes.
#[test]
fn no_sweep_comes_while_nothing_is_parked() {
    let world = World::new(Kind::Again);
    assert_eq!(world.timer.next_due_in(), None);
    for round in 1..=2 {
        let probe = Probe::parked(&world.purgatory, &["a"], NEVER);
        assert_eq!(world.timer.next_due_in(), Some(EVERY));
        world.timer.advance(3 * EVERY);
        assert_eq!(probe.checks(), 4);
        assert_eq!(world.timer.next_due_in(), Some(EVERY));
        probe.make_ready();
        assert_eq!(world.purgatory.check_and_complete(&"a"), 1);
        assert!(world.timer.advance_to_next());
        assert_eq!(world.timer.next_due_in(), None, "{round}");
        assert!(!world.timer.advance_to_next());
        world.timer.advance(10 * EVERY);
    }
    world.assert_over(0);
}

/// Creates a purgatory with a late executor, and this number of waiting operations.
fn many_behind(later: &Later, count: usize) -> (ManualTimer, Waiting, Vec<Probe>) {
    let (timer, purgatory): (_, Waiting) =
        by_hand_with(|builder| builder.recheck_every(EVERY).executor(later.clone()));
    let park = |_| Probe::parked(&purgatory, &["a"], NEVER);
    let probes = (0..count).map(park).collect();
    (timer, purgatory, probes)
}

/// A sweep takes many jobs, and callbacks come in between. The next sweep falls due after its end.
#[test]
fn a_slow_sweep_runs_alone() {
    for intervals in [[2, 2, 2], [1, 0, 0]] {
        let later = Later::default();
        let (timer, _purgatory, probes) = many_behind(&later, 150);
        let checked = |times| {
            let checked = probes.iter().filter(|probe| probe.checks() == times);
            checked.count()
        };
        timer.advance(EVERY);
        for (passed, (so_far, more)) in intervals.into_iter().zip([(64, 1), (128, 1), (150, 0)]) {
            timer.advance(passed * EVERY);
            assert_eq!((later.run(), checked(2), later.len()), (1, so_far, more));
        }
        // If a sweep took an interval or longer, the next one is due an interval after its end.
        timer.advance(EVERY - MS);
        assert_eq!(later.len(), 0);
        timer.advance(MS);
        assert_eq!((later.len(), checked(2)), (1, 150));
        while later.run() > 0 {}
        assert_eq!(checked(3), 150);
    }
}

/// The rest of the sweep finds no operation, and no other sweep comes.
#[test]
fn a_shutdown_ends_the_sweep_under_way() {
    let later = Later::default();
    let (timer, purgatory, probes) = many_behind(&later, 100);
    timer.advance(EVERY);
    assert_eq!(later.run(), 1); // 64 of them
    probes.iter().for_each(Probe::make_ready);
    purgatory.shutdown(Duration::ZERO);
    while later.run() > 0 {}
    timer.advance(EVERY);
    assert_eq!((later.run(), timer.next_due_in()), (0, None));
    for probe in &probes {
        assert_eq!(probe.endings(), [SHUTDOWN]);
    }
    assert_eq!(purgatory.stats().missed_events, 0);
    assert_empty(&purgatory);
}

/// An executor that drops its jobs, as one does that was shut down.
#[derive(Debug)]
struct DropsJobs;

impl Executor for DropsJobs {
    fn execute(&self, job: Job) {
        drop(job);
    }
}

/// The executor drops jobs, or runs them in place: neither needs stack.
#[test]
fn a_long_sweep_of_a_closed_executor_needs_no_stack() {
    on_stack(256 << 10, || {
        for is_closed in [true, false] {
            let (timer, purgatory): (_, Waiting) = by_hand_with(|builder| {
                let builder = builder.recheck_every(EVERY);
                if is_closed {
                    builder.executor(DropsJobs)
                } else {
                    builder
                }
            });
            let probe = Probe::new();
            for _ in 0..64 * 400 {
                purgatory.park(probe.operation(), &["a"], NEVER);
            }
            let parked = purgatory.len();
            timer.advance(2 * EVERY);
            assert_eq!(probe.checks(), 3 * parked);
        }
    });
}

#[test]
fn a_queued_recheck_holds_nothing_up() {
    let (world, later) = World::late(Kind::Again);
    let probe = world.parked(&["a"]);
    world.timer.advance(EVERY);
    assert_eq!((later.len(), probe.checks()), (1, 1)); // handed over, but not yet run
    probe.make_ready();
    assert_eq!(world.purgatory.check_and_complete(&"a"), 1);
    assert_eq!(later.run(), 1);
    assert_eq!(probe.checks(), 2);
    assert_eq!(probe.endings(), [Completed]);
    world.assert_over(0);

    let probe = world.parked(&["a"]);
    world.timer.advance(EVERY);
    probe.make_ready();
    world.timer.advance(2 * EVERY); // its time is up before the executor gets to it
    assert!(world.purgatory.is_empty());
    assert_eq!(later.run(), 2);
    assert_eq!(probe.checks(), 1);
    assert_eq!(probe.endings(), [Expired]);
}

#[test]
fn a_late_executor_is_given_each_operation_once() {
    let (world, later) = World::late(Kind::Again);
    let probe = Probe::new();
    let id = world.purgatory.park(probe.operation(), &["a"], 50 * EVERY);
    world.timer.advance(10 * EVERY);
    assert_eq!(later.len(), 1);
    assert_eq!(world.purgatory.stats().callbacks_waiting, 1);
    world.purgatory.reschedule(id, 50 * EVERY); // does not queue it again either
    world.timer.advance(10 * EVERY);
    assert_eq!((later.run(), probe.checks(), later.len()), (1, 2, 0));
    world.timer.advance(EVERY);
    assert_eq!((later.run(), probe.checks(), probe.ended()), (1, 3, false));
}

/// The sweep overtakes the last check on the executor. If that check holds, an event was missed.
#[test]
fn a_sweep_leaves_a_queued_last_check_alone() {
    let later = Later::default();
    let world = World::with(Kind::Last, |builder| {
        builder.recheck_every(EVERY).executor(later.clone())
    });
    let probe = world.parked(&["a"]);
    world.timer.advance(EVERY);
    probe.make_ready();
    let jobs = later.take();
    assert_eq!(jobs.len(), 2, "the last check, and the sweep");
    jobs.into_iter().rev().for_each(Job::run);
    assert_eq!(probe.checks(), 2);
    assert_eq!(probe.endings(), [Completed]);
    world.assert_over(1);
}

/// The holder checks the operation again, unless its end is decided.
#[test]
fn an_event_during_a_check_is_no_miss() {
    for (kind, ready) in BOTH_EITHER_WAY {
        for keys in [&["a"][..], &["b", "a"]] {
            let world = World::new(kind);
            let probe = Probe::new();
            let event = |waits: &Waiting| assert_eq!(waits.check_and_complete(&"a"), 0);
            world.park(world.at_check(&probe, ready, event), keys);
            world.timer.advance(EVERY);
            let looks_again = kind == Kind::Again && !ready;
            assert_eq!(probe.ended(), !looks_again);
            assert_eq!(probe.checks(), 2 + looks_again as usize);
            world.timer.advance(2 * EVERY);
            assert_eq!(probe.endings(), [if ready { Completed } else { Expired }]);
            world.assert_over(0);
        }
    }
}

/// The condition may become true after the checking thread has read it. That thread then finds it,
/// so no event counts as missed.
#[test]
fn a_sweep_during_a_check_makes_its_holder_look_again() {
    for keys in [&["a"][..], &["b", "a"]] {
        let world = World::with(Kind::Last, |builder| builder.recheck_every(EVERY));
        let probe = Probe::new();
        let seen = probe.clone();
        let timer = world.timer.clone();
        let operation = probe.operation().on_check(move || match seen.checks() {
            2 => on_another_thread(|| timer.advance(EVERY)),
            3 => seen.make_ready(), // no event
            _ => {}
        });
        world.purgatory.park(operation, keys, 30 * EVERY);
        assert_eq!(world.purgatory.check_and_complete(&"a"), 1);
        assert_eq!((probe.endings(), probe.checks()), (vec![Completed], 3));
        world.assert_over(0);
    }
}

/// A check that becomes true takes precedence over an end requested meanwhile. Otherwise the
/// operation ends as requested during a recheck, and expires after its last check.
#[test]
fn an_end_during_a_check_is_left_to_it() {
    type End = fn(&Waiting, &ManualTimer, OperationId);
    let ends: [(End, Outcome); 6] = [
        (
            |waits, _, id| assert_eq!(waits.cancel(id, "late"), ReachResult::UnderCheck),
            requested("late"),
        ),
        (
            |waits, _, id| assert_eq!(waits.complete(id), ReachResult::UnderCheck),
            Completed,
        ),
        (
            |waits, _, _| assert_eq!(waits.cancel_for_key(&"a", "late"), 0),
            requested("late"),
        ),
        (|waits, _, _| _ = waits.shutdown(Duration::ZERO), SHUTDOWN),
        (|_, timer, _| timer.advance(4 * EVERY), Expired),
        (
            |waits, _, id| _ = waits.reschedule(id, Duration::ZERO),
            Expired,
        ),
    ];
    for (kind, ready) in BOTH_EITHER_WAY {
        for (end, outcome) in ends.clone() {
            let world = World::new(kind);
            let probe = Probe::new();
            let (name, named) = mpsc::channel();
            let timer = world.timer.clone();
            let act = move |waits: &Waiting| end(waits, &timer, named.recv().unwrap());
            name.send(world.park(world.at_check(&probe, ready, act), &["a", "b"]))
                .unwrap();
            world.timer.advance(EVERY);
            world.timer.advance(MS); // until the new deadline
            let asked = if kind == Kind::Last { Expired } else { outcome };
            assert_eq!(probe.endings(), [if ready { Completed } else { asked }]);
            world.assert_over(u64::from(ready));
        }
    }
}

#[test]
fn a_check_that_panics_ends_its_operation_alone() {
    for (kind, end) in [(Kind::Last, Expired), (Kind::Again, PANICKED)] {
        let world = World::new(kind);
        let probe = Probe::new();
        let operation = world.at_check(&probe, true, |_| panic!("without an event"));
        world.park(operation, &["a"]);
        let next = world.parked(&["a"]);
        next.make_ready();
        world.timer.advance(EVERY);
        assert_eq!(probe.endings(), [end]);
        assert_eq!(next.endings(), [Completed]);
        assert_eq!(world.purgatory.stats().panics, 1);
        world.assert_over(1); // the next one's
    }
    let (timer, purgatory): (_, Waiting) =
        by_hand_with(|builder| builder.check_at_expiry(|_| panic!("in a hook")));
    let probe = Probe::parked(&purgatory, &["a"], MS);
    probe.make_ready();
    timer.advance(MS);
    let stats = purgatory.stats();
    assert_eq!(probe.endings(), [Completed]);
    assert_eq!(stats.missed_events, 1);
    assert_eq!(stats.panics, 1);
}

/// It has no condition that could become true without an event.
#[test]
fn next_event_is_never_a_missed_event() {
    for kind in BOTH {
        let (timer, waits): (_, Purgatory<&str>) = by_hand_with(|builder| match kind {
            Kind::Last => builder.check_at_expiry(|_| ()),
            Kind::Again => builder.recheck_every(EVERY),
        });
        let mut next = waits.next_event(&["a"], 3 * EVERY);
        timer.advance(3 * EVERY);
        assert_eq!(over(&mut next), Err(WaitError::Expired));
        assert_eq!((waits.stats().missed_events, waits.len()), (0, 0));
    }
}

/// Without a setting, a wait gets a last check; an operation with a callback, or a wait for an
/// event, gets none.
#[test]
fn wait_finds_a_lost_wakeup_at_its_timeout() {
    let (timer, waits): (_, Purgatory<&str>) = by_hand();
    let shelf = Arc::new(Mutex::new(None));
    let place = shelf.clone();
    let mut wait = waits.wait(&["a"], MS, move || place.lock().unwrap().take());
    let mut other = waits.wait(&["a"], MS, || false);
    let mut next = waits.next_event(&["a"], MS);
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = checks.clone();
    let check = move || counted.fetch_add(1, SeqCst) > 0;
    waits.park(when(check, drop), &["a"], MS);

    *shelf.lock().unwrap() = Some(7); // no event
    timer.advance(MS);
    assert_eq!(over(&mut wait), Ok(7));
    assert_eq!(over(&mut other), Err(WaitError::Expired));
    assert_eq!(over(&mut next), Err(WaitError::Expired));
    assert_eq!(checks.load(SeqCst), 1);
    let stats = waits.stats();
    assert_eq!(
        [stats.completed, stats.expired, stats.missed_events],
        [1, 3, 1]
    );
    assert_empty(&waits);
}
