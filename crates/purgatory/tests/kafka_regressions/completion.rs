//! Completions that are lost, and completions that come at the wrong time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use purgatory::{CancelReason, Outcome};

use crate::{
    naive::{Busy, Naive},
    script::{AnyPurgatory, Ours, Probe, Stop, ends},
};

const KEY: u32 = 1;

/// A checker has seen the condition false and not yet gone; meanwhile the condition comes true, and
/// its event is raised, for the last time.
fn event_while_a_checker_has_seen_it_false(purgatory: &impl AnyPurgatory, probe: &Probe) {
    let inside = Stop::new();
    let stop = inside.clone();
    let operation = probe.acting(move |ready| {
        stop.here();
        ready
    });
    purgatory.park(operation, &[KEY]);
    inside.arm();
    thread::scope(|scope| {
        scope.spawn(|| purgatory.event(KEY));
        inside.reached();
        probe.make_ready();
        assert_eq!(purgatory.event(KEY), 0);
        inside.release();
    });
}

/// KAFKA-6653: so that nobody waited for a checker, who found one gave up; when the condition came
/// true behind the checker's back, nobody looked again. Here who finds a checker leaves it a note.
#[test]
fn kafka_6653_a_condition_true_during_a_check_is_seen() {
    let probe = Probe::new();
    let naive = Naive::new(Busy::GivesUp);
    event_while_a_checker_has_seen_it_false(&naive, &probe);
    assert_eq!(probe.endings(), [], "ready, and nobody looks");
    naive.expire();
    assert_eq!(probe.endings(), [Outcome::Expired]);

    let (ours, probe) = (Ours::new(), Probe::new());
    let (purgatory, seen) = (ours.clone(), probe.clone());
    ends(move || event_while_a_checker_has_seen_it_false(&purgatory, &seen));
    assert_eq!(probe.endings(), [Outcome::Completed]);
    ours.assert_empty();
}

/// A checker is inside the check, which will say `satisfied`, when somebody ends the operation.
/// Returns how often the callback ran inside the check.
fn end_while_a_checker_is_inside<P: AnyPurgatory>(
    purgatory: &P,
    probe: &Probe,
    satisfied: bool,
    end: impl Fn(&P),
) -> usize {
    let (inside, overlaps) = (Stop::new(), Arc::new(AtomicUsize::new(0)));
    let checking = Arc::new(AtomicBool::new(false));
    let (stop, enters) = (inside.clone(), checking.clone());
    let operation = probe.acting(move |ready| {
        enters.store(true, SeqCst);
        stop.here();
        enters.store(false, SeqCst);
        ready && satisfied
    });
    let counted = overlaps.clone();
    let operation =
        operation.then(move || _ = counted.fetch_add(checking.load(SeqCst).into(), SeqCst));
    purgatory.park(operation, &[KEY]);
    probe.make_ready();
    inside.arm();
    thread::scope(|scope| {
        scope.spawn(|| purgatory.event(KEY));
        inside.reached();
        end(purgatory);
        inside.release();
    });
    overlaps.load(SeqCst)
}

/// KAFKA-19312: a time-out ran `onComplete` while another thread was inside `tryComplete` of the
/// same operation, both at its fields. Here a check borrows the operation and the callback consumes
/// it: who ends it meanwhile leaves a note, and the checker acts on it, unless its check has come
/// true.
#[test]
fn kafka_19312_no_callback_runs_inside_a_check() {
    for satisfied in [false, true] {
        let (naive, probe) = (Naive::new(Busy::Waits), Probe::new());
        let overlaps =
            end_while_a_checker_is_inside(&naive, &probe, satisfied, |naive| naive.expire());
        assert_eq!(overlaps, 1, "the callback ran inside the check");
        assert_eq!(probe.endings(), [Outcome::Expired], "though satisfied: {satisfied}");
    }

    let given_up = Outcome::Cancelled(CancelReason::Requested("given up".into()));
    let time_out: fn(&Ours) = |ours| ours.expire();
    let cancel: fn(&Ours) = |ours| assert_eq!(ours.cancel(KEY), 0);
    for (end, noted) in [(time_out, Outcome::Expired), (cancel, given_up)] {
        for (satisfied, outcome) in [(false, noted), (true, Outcome::Completed)] {
            let (ours, probe) = (Ours::new(), Probe::new());
            let (purgatory, seen) = (ours.clone(), probe.clone());
            let script = move || end_while_a_checker_is_inside(&purgatory, &seen, satisfied, end);
            assert_eq!(ends(script), 0);
            assert_eq!(probe.endings(), [outcome]);
            ours.assert_empty();
        }
    }
}
