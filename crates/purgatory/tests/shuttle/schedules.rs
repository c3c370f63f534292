//! Runs a scenario in many schedules, then again with faults planted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use shuttle::{
    Config, MaxSteps, Runner,
    scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler},
};

use crate::effort::{effort, number};

/// Schedules a scenario, without `TEST_EFFORT`.
const SCHEDULES: u64 = 500;

/// Schedules that a planted fault has at most, with PCT first and then at random.
const FAULT_SCHEDULES: usize = 50_000;

/// A schedule that takes more steps than this waits for something that never comes.
const STEPS: usize = 20_000;

/// The depth of the bugs that PCT searches for: one more than its changes of priority in a
/// schedule.
const PCT_DEPTH: usize = 3;

/// Runs `scenario`, where no schedule may fail; then with each of `faults` planted, where one must.
///
/// Half of the schedules pick a thread at random at each step, half are PCT's: threads have random
/// priorities, and change them at a few random steps.
/// A scenario that takes long has `fewer` times as few.
pub fn check(fewer: usize, faults: &[&'static str], scenario: fn()) {
    let config = config();
    if let Ok(schedule) = std::env::var("SHUTTLE_REPLAY") {
        Runner::new(ReplayScheduler::new_from_encoded(schedule.trim()), config).run(scenario);
        return;
    }
    let schedules = usize::try_from(effort(SCHEDULES)).unwrap();
    let seed = number("SHUTTLE_RANDOM_SEED").unwrap_or_else(|| fastrand::u64(..));
    let half = schedules.div_ceil(2 * fewer);
    let test = thread::current()
        .name()
        .expect("a test's thread has its name")
        .to_owned();
    let passes = |run: Run| {
        assert!(
            run.passed,
            "schedule {} from seed {seed} failed; to see it again, and nothing else:
RUSTFLAGS='--cfg shuttle' SHUTTLE_REPLAY='<the schedule above>' cargo test --release \
--target-dir target/shuttle -p purgatory --features __shuttle --test shuttle -- --exact {test}",
            run.schedules
        );
    };
    passes(run(
        &config,
        None,
        RandomScheduler::new_from_seed(seed, half),
        scenario,
    ));
    passes(run(
        &config,
        None,
        PctScheduler::new_from_seed(seed, PCT_DEPTH, half),
        scenario,
    ));
    println!("{test}: {} schedules from seed {seed}", 2 * half);
    for &fault in faults {
        let pct = PctScheduler::new_from_seed(seed, PCT_DEPTH, FAULT_SCHEDULES);
        let mut tried = run(&config, Some(fault), pct, scenario);
        if tried.passed {
            let random = RandomScheduler::new_from_seed(seed, FAULT_SCHEDULES);
            let more = run(&config, Some(fault), random, scenario);
            tried = Run {
                schedules: tried.schedules + more.schedules,
                ..more
            };
        }
        assert!(
            !tried.passed,
            "{test}: {fault} not noticed in {} schedules",
            tried.schedules
        );
        println!("{test}: {fault} noticed after {}", tried.schedules);
    }
}

/// The result of a run.
struct Run {
    schedules: usize,
    passed: bool,
}

/// Runs the scenario with this fault planted, or none. On a thread of the machine's of
/// its own: one on which a schedule failed is of no more use.
fn run(
    config: &Config,
    fault: Option<&'static str>,
    scheduler: impl Scheduler + Send + 'static,
    scenario: fn(),
) -> Run {
    let config = config.clone();
    let schedules = Arc::new(AtomicUsize::new(0));
    let counted = schedules.clone();
    let running = thread::spawn(move || {
        timer_core::driver::sync::plant(fault.map(str::to_owned));
        Runner::new(scheduler, config).run(move || {
            counted.fetch_add(1, SeqCst);
            scenario();
        })
    });
    let passed = running.join().is_ok();
    Run {
        schedules: schedules.load(SeqCst),
        passed,
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.silence_warnings = true; // of weak memory: that is loom's part
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    config
}
