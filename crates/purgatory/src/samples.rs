//! The names of counts, times and gauges in the `metrics` facade (feature `metrics`).

use timer_core::driver::Sample;

use crate::stats::{Stats, Times};

/// Returns the counters and histograms, which stay when their source is gone.
pub(crate) fn totals(stats: &Stats, of: Times) -> Vec<Sample> {
    let mut samples = Vec::new();
    add_counters(&mut samples, stats);
    add_endings(&mut samples, stats);
    add_times(&mut samples, of);
    samples
}

/// Adds the histograms. Those of operations that expired or were cancelled are details.
fn add_times(samples: &mut Vec<Sample>, times: Times) {
    let waits = |outcome, waited| {
        let help = "How long operations were parked, by outcome.";
        Sample::times("purgatory_wait_seconds", help, waited).labelled("outcome", outcome)
    };
    samples.push(waits("completed", times.completed));
    samples.push(waits("expired", times.expired).in_detail());
    samples.push(waits("cancelled", times.cancelled).in_detail());
    samples.push(Sample::times(
        "purgatory_expiry_lateness_seconds",
        "How long after its deadline what expired was taken off the wheel, behind its last check.",
        times.lateness,
    ));
    samples.push(Sample::times(
        "purgatory_callback_delay_seconds",
        "How long callbacks and last checks waited for the executor.",
        times.callback_delay,
    ));
}

/// Returns the gauges of the present. Gauges of several sources of one name add up, and so do their
/// bounds on parked operations.
pub(crate) fn present(stats: &Stats, key_count: usize, max_parked: Option<u64>) -> Vec<Sample> {
    let counts = [
        (
            "purgatory_parked",
            "Operations that are parked now, including those under check.",
            stats.parked,
        ),
        (
            "purgatory_watched",
            "Watches that parked operations have now.",
            stats.watched,
        ),
        (
            "purgatory_keys",
            "Keys that operations wait for now.",
            key_count as u64,
        ),
        (
            "purgatory_callbacks_waiting",
            "Callbacks, sweeps and last checks that the executor has not begun.",
            stats.callbacks_waiting,
        ),
    ];
    let mut samples = Vec::new();
    for &(metric, help, count) in &counts {
        samples.push(Sample::sum(metric, help, count as f64));
    }
    if let Some(max) = max_parked {
        let help = "The bound on parked operations, which is absent where there is none.";
        samples.push(Sample::sum("purgatory_max_parked", help, max as f64));
    }
    samples
}

/// Returns the gauge of the oldest operation's age.
pub(crate) fn oldest_age(age_ns: u64) -> Sample {
    Sample::largest(
        "purgatory_oldest_age_seconds",
        "How long the oldest operation has been parked, or 0 when none is.",
        age_ns as f64 / 1e9,
    )
}

/// Returns the gauge of the longest check.
pub(crate) fn longest_check(age_ns: u64) -> Sample {
    Sample::largest(
        "purgatory_longest_check_seconds",
        "How long the longest check has been under way, from the first scrape that found it. A last \
         check is from the moment its operation's time is up.",
        age_ns as f64 / 1e9,
    )
}

/// Returns the gauges of labels.
pub(crate) fn by_label(labels: &[(&'static str, usize)]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for &(label, count) in labels {
        let parked = Sample::sum(
            "purgatory_parked_by_label",
            "Operations that are parked now, by their label.",
            count as f64,
        );
        samples.push(parked.labelled("label", label));
    }
    samples
}

/// Returns the gauges of [`Permits`](crate::Permits).
pub(crate) fn permits(limit: u64, taken: f64) -> Vec<Sample> {
    let limit_help = "Permits that are free or taken, of each key if there are keys.";
    let taken_help = "Permits that are taken now, leases included, of all keys together.";
    vec![
        Sample::sum("purgatory_permits_limit", limit_help, limit as f64),
        Sample::sum("purgatory_permits_taken", taken_help, taken),
    ]
}

/// Returns the gauges of [`ReplicaSets`](crate::ReplicaSets).
pub(crate) fn groups(led: u64, below: u64) -> Vec<Sample> {
    let led_help = "Groups that have a set here: those that this process leads.";
    let below_help = "Groups whose sets have too few members now to acknowledge anything.";
    vec![
        Sample::sum("purgatory_groups", led_help, led as f64),
        Sample::sum("purgatory_groups_below_floor", below_help, below as f64),
    ]
}

/// Adds the counters without a further label.
fn add_counters(samples: &mut Vec<Sample>, stats: &Stats) {
    let counters = [
        (
            "purgatory_parked_total",
            "Operations that were ever parked.",
            stats.parked_total,
        ),
        (
            "purgatory_ended_at_once_total",
            "Operations that ended without being parked.",
            stats.ended_at_once,
        ),
        (
            "purgatory_taken_total",
            "Operations that take handed to the caller, which have no outcome and are not timed.",
            stats.taken,
        ),
        (
            "purgatory_checks_total",
            "Checks that have run, for events, timers or a first look.",
            stats.checks,
        ),
        (
            "purgatory_events_total",
            "Keys that were signalled and values that were advanced, also without waiters.",
            stats.events,
        ),
        (
            "purgatory_panics_total",
            "Panics of checks, callbacks, wakers, hooks and drops.",
            stats.panics,
        ),
        (
            "purgatory_missed_events_total",
            "Conditions that came true without an event, which a recheck or last check found.",
            stats.missed_events,
        ),
    ];
    for &(metric, help, count) in &counters {
        samples.push(Sample::counter(metric, help, count));
    }
}

/// Adds the counters of endings and refusals, by outcome or reason.
fn add_endings(samples: &mut Vec<Sample>, stats: &Stats) {
    let mut add = |metric, help, label, by: &[(&'static str, u64)]| {
        for &(value, count) in by {
            samples.push(Sample::counter(metric, help, count).labelled(label, value));
        }
    };
    add(
        "purgatory_ended_total",
        "Parked operations that have ended, by outcome.",
        "outcome",
        &[
            ("completed", stats.completed),
            ("expired", stats.expired),
            ("cancelled", stats.cancelled),
        ],
    );
    let mut reasons = vec![
        ("future_dropped", stats.cancelled_by_future_drop),
        ("shutdown", stats.cancelled_by_shutdown),
        ("dropped", stats.cancelled_by_drop),
        ("panicked", stats.cancelled_by_panic),
    ];
    // All other cancels count as requested.
    let by_itself: u64 = reasons.iter().map(|&(_, count)| count).sum();
    reasons.push(("requested", stats.cancelled - by_itself));
    add(
        "purgatory_cancelled_total",
        "Parked operations that were cancelled, by reason.",
        "reason",
        &reasons,
    );
    add(
        "purgatory_refused_total",
        "Operations that were handed back instead of being parked, by reason.",
        "reason",
        &[
            ("no_keys", stats.refused_no_keys),
            ("closed", stats.refused_closed),
            ("full", stats.refused_full),
            ("too_heavy", stats.refused_too_heavy),
        ],
    );
}
