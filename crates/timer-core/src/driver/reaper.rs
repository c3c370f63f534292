//! The reaper: the one thread that waits for time to pass, for all wheels of a timer. It can also
//! be a task of a tokio runtime. A manual timer has none.
//!
//! It sleeps until the next bucket of any shard is due (not until the next tick: an idle timer
//! wakes no thread). Then it advances the shards that are due or signalled earlier work, a bounded
//! amount each, and sleeps again. A shard with more due is visited again in the next round, after
//! the others.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    driver::{
        clock::{Clock, DriverClock},
        config::{Config, Panics},
        grace::Grace,
        owners::{Attached, Shared},
        tick::TickLength,
    },
    sync::Parker,
};

/// The state of the reaper's thread or task.
pub(super) struct Rounds {
    shared: Arc<Shared>,
    clock: DriverClock,
    tick: TickLength,
    panics: Arc<Panics>,
    grace: Grace,
    owners: Vec<OwnerSchedule>,
    /// The next round is the first after a sleep.
    woken: bool,
    /// The clock's time when the last sleep began.
    slept_from_ns: Option<u64>,
}

/// The reaper's next step after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// There is more to do now.
    None,
    /// There is more to do now, but this round has handed tasks over and buckets down. A worker may
    /// run first, as the system may have put it on this very processor.
    Yield,
    /// Sleep this long, or until woken.
    For(Duration),
    /// Sleep until woken.
    UntilWoken,
    /// End: the timer was closed.
    Over,
}

/// An owner of wheels, and when each of its shards is next due.
struct OwnerSchedule {
    attached: Attached,
    next_due: Vec<Option<u64>>,
}

/// A round that panicked may have left work that no signal announces any more, so the next round
/// comes this much later. Not at once: it may panic for ever.
const AFTER_PANIC: Duration = Duration::from_millis(100);

/// The shortest sleep while the clock stands still, as it may for long just before a deadline.
const BY_STILL_CLOCK: Duration = Duration::from_millis(1);

impl Rounds {
    pub(crate) fn new(
        shared: Arc<Shared>,
        clock: DriverClock,
        panics: Arc<Panics>,
        config: &Config,
    ) -> Self {
        Rounds {
            grace: Grace::new(config.grace, clock.now_ns()),
            shared,
            clock,
            tick: config.tick,
            panics,
            owners: Vec::new(),
            woken: false,
            slept_from_ns: None,
        }
    }

    /// Runs rounds on a thread, until the timer is closed.
    pub(super) fn run(mut self, parker: Parker) {
        loop {
            match self.round() {
                Pause::None => {}
                Pause::Yield => std::thread::yield_now(),
                Pause::For(wait) => parker.park_timeout(wait),
                Pause::UntilWoken => parker.park(),
                Pause::Over => return,
            }
        }
    }

    /// Advances the due shards, and returns how long to sleep then. A panic, for example of the
    /// clock, is contained and reported; the next round comes [`AFTER_PANIC`] later.
    pub(super) fn round(&mut self) -> Pause {
        let panics = self.panics.clone();
        let pause = panics.contain(|| self.advance_all()).unwrap_or_else(|| {
            let called_ns = self.shared.called_ns.swap(u64::MAX, Ordering::AcqRel);
            self.grace.put_off(called_ns, AFTER_PANIC);
            Pause::For(AFTER_PANIC)
        });
        self.woken = !matches!(pause, Pause::None | Pause::Yield);
        pause
    }

    /// Runs one round over all owners.
    fn advance_all(&mut self) -> Pause {
        // 1. Take in new owners. Their lock is taken first, so an earlier close is seen.
        let arrivals = self.shared.take_arrivals();
        if self.shared.is_closed() {
            return Pause::Over;
        }
        let called = !arrivals.is_empty();
        for attached in arrivals {
            let next_due = vec![None; attached.shard_count];
            self.owners.push(OwnerSchedule { attached, next_due });
        }
        let now_ns = self.clock.now_ns();
        // After a pause of the process, due tasks wait a while longer.
        if let Some(wait) = self.grace_period(now_ns) {
            return Pause::For(self.in_step(now_ns, wait));
        }
        // 2. Advance the wheels that are due or signalled. Owners that are gone fall out.
        let mut round = Round {
            now_tick: self.tick.round_down(now_ns),
            again_tick: self.tick.deadline(now_ns, AFTER_PANIC),
            called,
            fired: 0,
            cascaded: 0,
        };
        self.owners
            .retain_mut(|owner| owner.advance_due(&self.shared, &self.panics, &mut round));
        // 3. Count the work, and plan the next round.
        self.count(&round, now_ns);
        self.plan(&round)
    }

    /// Returns the rest of a grace period that is under way or begins now.
    fn grace_period(&mut self, now_ns: u64) -> Option<Duration> {
        let called_ns = self.shared.called_ns.swap(u64::MAX, Ordering::AcqRel);
        let wait = self.grace.begin_round(now_ns, called_ns)?;
        self.shared.counts.lock().graces = self.grace.count;
        Some(wait)
    }

    /// Counts a round and its work.
    fn count(&self, round: &Round, began_ns: u64) {
        // A round without work counts as a wake-up alone.
        let mut counts = self.shared.counts.lock();
        counts.graces = self.grace.count;
        counts.wake_ups += u64::from(self.woken);
        if round.fired + round.cascaded == 0 {
            counts.spurious_wake_ups += u64::from(self.woken && !round.called);
            return;
        }
        counts.fired += round.fired;
        counts.cascaded += round.cascaded;
        drop(counts);
        // Read the clock with nothing locked: it may panic. Then the round is not timed.
        let took_ns = self.clock.now_ns().saturating_sub(began_ns);
        self.shared.counts.lock().turns.record(took_ns);
    }

    /// Plans the next round, which comes when the next bucket of any shard is due. A pause of the
    /// process inside this round is noticed: the next one waits.
    fn plan(&mut self, round: &Round) -> Pause {
        // 1. The earliest tick of any shard.
        let dues = self.owners.iter().flat_map(|owner| &owner.next_due);
        let next_tick = dues.filter_map(|&due| due).min();
        let Some(next_tick) = next_tick else {
            self.grace.plan_none();
            return Pause::UntilWoken;
        };
        let now_ns = self.clock.now_ns();
        // 2. There is more to do now: a budget was used up, or time went on meanwhile.
        if next_tick <= self.tick.round_down(now_ns) {
            self.grace.plan(now_ns, Duration::ZERO);
            if round.fired > 0 && round.cascaded > 0 {
                return Pause::Yield;
            }
            return Pause::None;
        }
        // 3. A sleep until then.
        let wait_ns = self.tick.start_ns(next_tick).saturating_sub(now_ns);
        let wait = self.in_step(now_ns, Duration::from_nanos(wait_ns));
        Pause::For(self.grace.plan(now_ns, wait))
    }

    /// Returns how long to sleep for `wait`: the clock may not keep step with a thread's sleep.
    fn in_step(&mut self, now_ns: u64, mut wait: Duration) -> Duration {
        if self.slept_from_ns.replace(now_ns) == Some(now_ns) {
            wait = wait.max(BY_STILL_CLOCK);
        }
        match self.clock.sleep_max() {
            Some(max) => wait.min(max),
            None => wait,
        }
    }
}

impl Drop for Rounds {
    /// Closes the timer and its owners, if no handle did: a runtime that ends drops the rounds.
    fn drop(&mut self) {
        if self.shared.close() {
            self.shared.close_owners(&self.panics);
        }
    }
}

/// A round over all wheels, and the sums of its work.
struct Round {
    now_tick: u64,
    /// The tick of the next visit to a shard whose advance panics.
    again_tick: u64,
    /// A shard signalled earlier work, or an owner came.
    called: bool,
    fired: u64,
    cascaded: u64,
}

impl OwnerSchedule {
    /// Advances the shards that are due or signalled. Returns false when their owner is gone.
    ///
    /// A shard whose advance panics is visited again later; the others go on.
    fn advance_due(&mut self, shared: &Shared, panics: &Panics, round: &mut Round) -> bool {
        // A task that runs in place may have shut the timer down in this round.
        if shared.is_closed() {
            return true;
        }
        let mut signalled = 0;
        let mut advanced_wheels = None;
        for (shard, next_due) in self.next_due.iter_mut().enumerate() {
            // 1. The signal has a bit for each shard, 64 a word.
            if shard % 64 == 0 {
                signalled = self.attached.signal.take(shard / 64);
                round.called |= signalled != 0;
            }
            let has_earlier_work = signalled & 1 == 1;
            // The next shard's bit.
            signalled >>= 1;
            if !has_earlier_work && next_due.is_none_or(|due| due > round.now_tick) {
                continue;
            }
            // 2. This shard has work. Its next visit is set first, and stays if this one panics.
            let Some(wheels) = self.attached.wheels.upgrade() else {
                return false;
            };
            *next_due = Some(round.again_tick);
            panics.contain(|| {
                let advanced = wheels.advance(shard, round.now_tick);
                *next_due = advanced.next_due;
                round.fired += advanced.fired as u64;
                round.cascaded += advanced.cascaded as u64;
            });
            advanced_wheels = Some(wheels);
        }
        // 3. The due tasks of all its shards are handed over at once.
        if let Some(wheels) = advanced_wheels {
            panics.contain(|| wheels.round_over());
        }
        self.attached.is_alive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::{
        driver::{
            clock::{DriverClock, ManualClock},
            driver::Driver,
        },
        timers::task_timer::TaskTimer,
    };

    const MS: Duration = Duration::from_millis(1);
    const NONE: Duration = Duration::ZERO;

    /// A reaper that the test calls, its clock, and tasks on it that count their runs.
    struct Reaper {
        /// The times that it was woken.
        wakes: Arc<AtomicUsize>,
        clock: ManualClock,
        rounds: Rounds,
        tasks: TaskTimer<()>,
        runs: Arc<AtomicUsize>,
        driver: Arc<Driver>,
    }

    fn reaper(configure: impl FnOnce(&mut Driver, ManualClock)) -> Reaper {
        let clock = ManualClock::default();
        let mut driver = Driver::new();
        driver.clock = DriverClock::Own(Arc::new(clock.clone()));
        configure(&mut driver, clock.clone());
        let wakes = Arc::new(AtomicUsize::new(0));
        let woken = wakes.clone();
        driver.wake = driver.waker(move || _ = woken.fetch_add(1, Ordering::Relaxed));
        let driver = Arc::new(driver);
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = runs.clone();
        let count = move |()| _ = counted.fetch_add(1, Ordering::Relaxed);
        let tasks = TaskTimer::on(driver.clone(), count, None);
        Reaper {
            wakes,
            rounds: driver.rounds(),
            clock,
            tasks,
            runs,
            driver,
        }
    }

    impl Reaper {
        fn schedule(&self, delay: Duration) -> crate::TimerHandle {
            self.tasks.schedule(delay, ()).unwrap()
        }

        /// Runs a round after `by`; returns the pause that follows, and the runs so far.
        fn round_after(&mut self, by: Duration) -> (Pause, usize) {
            let now_ns = self.clock.now_ns() + by.as_nanos() as u64;
            self.clock.advance_to(now_ns);
            let pause = self.rounds.round();
            (pause, self.runs.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn work_that_is_no_earlier_wakes_no_reaper() {
        let mut reaper = reaper(|_, _| ());
        let wakes = |reaper: &Reaper| reaper.wakes.load(Ordering::Relaxed);
        // Each delay, and the wake-ups so far.
        for (delay, woken) in [(50, 1), (50, 1), (60, 1), (40, 2), (40, 2), (50, 2)] {
            reaper.schedule(delay * MS);
            assert_eq!(wakes(&reaper), woken, "{delay} ms");
        }
        // Nor is it woken after a round: the reaper knows what is left.
        assert_eq!(reaper.round_after(40 * MS), (Pause::For(10 * MS), 2));
        reaper.schedule(10 * MS);
        assert_eq!(wakes(&reaper), 2);
        reaper.schedule(9 * MS);
        assert_eq!(wakes(&reaper), 3);
    }

    #[test]
    fn stopped_clock_is_read_once_a_millisecond() {
        const NS: Duration = Duration::from_nanos(1);
        let mut reaper = reaper(|_, clock| clock.advance_to(999_999));
        reaper.schedule(NONE);
        assert_eq!(reaper.round_after(NONE), (Pause::For(NS), 0));
        for _ in 0..3 {
            assert_eq!(reaper.round_after(NONE), (Pause::For(MS), 0));
        }
        assert_eq!(reaper.round_after(NS), (Pause::UntilWoken, 1));
    }

    /// A spurious wake-up is one that no thread has called for.
    #[test]
    fn rounds_count_their_wake_ups_and_work() {
        let mut reaper = reaper(|_, _| ());
        let cancelled = reaper.schedule(5 * MS);
        let counts = |reaper: &Reaper| {
            let stats = reaper.driver.stats();
            [stats.wake_ups, stats.spurious_wake_ups, stats.fired]
        };
        reaper.round_after(NONE);
        assert_eq!(counts(&reaper), [0, 0, 0]);
        assert!(reaper.tasks.cancel(cancelled).is_some());
        reaper.round_after(5 * MS);
        assert_eq!(counts(&reaper), [1, 1, 0]);
        reaper.schedule(5 * MS);
        reaper.round_after(NONE);
        assert_eq!(counts(&reaper), [2, 1, 0]);
        let _new = TaskTimer::on(reaper.driver.clone(), |()| (), None);
        reaper.round_after(NONE);
        assert_eq!(counts(&reaper), [3, 1, 0]);
        reaper.round_after(5 * MS);
        assert_eq!(counts(&reaper), [4, 1, 1]);
        // One task is handed down.
        reaper.schedule(5000 * MS);
        let mut pause = reaper.round_after(NONE).0;
        while let Pause::For(wait) = pause {
            pause = reaper.round_after(wait).0;
        }
        assert_eq!(counts(&reaper), [7, 1, 2]);
        assert_eq!(reaper.driver.stats().cascaded, 1);
    }

    /// More is due than one round does.
    #[test]
    fn a_round_that_hands_over_and_down_yields() {
        let mut reaper = reaper(|_, _| ());
        for _ in 0..1000 {
            reaper.schedule(5000 * MS);
        }
        let (Pause::For(until_bucket), 0) = reaper.round_after(NONE) else {
            panic!("their bucket is to come");
        };
        reaper.schedule(until_bucket - MS);
        assert_eq!(reaper.round_after(until_bucket), (Pause::Yield, 1));
        assert_eq!(reaper.round_after(NONE), (Pause::None, 1));
    }

    #[test]
    fn owners_that_are_gone_are_swept_out() {
        let mut reaper = reaper(|_, _| ());
        let other = || TaskTimer::on(reaper.driver.clone(), |()| (), None);
        let gone = other();
        reaper.round_after(NONE);
        assert_eq!(reaper.rounds.owners.len(), 2);
        drop(gone);
        reaper.round_after(NONE);
        assert_eq!(reaper.rounds.owners.len(), 1);
    }

    #[test]
    fn after_a_pause_due_tasks_wait_one_bound() {
        let mut reaper = reaper(|driver, _| driver.config.grace = Some(100 * MS));
        let kept_alive = reaper.schedule(1000 * MS);
        reaper.schedule(1010 * MS);
        // While anything is pending the reaper comes at least once each bound.
        assert_eq!(reaper.round_after(NONE), (Pause::For(100 * MS), 0));
        assert_eq!(reaper.round_after(100 * MS), (Pause::For(100 * MS), 0));

        // The process is stopped, and goes on after both deadlines.
        assert_eq!(reaper.round_after(1600 * MS), (Pause::For(100 * MS), 0));
        assert_eq!(reaper.driver.stats().graces, 1);
        // A thread reads the heartbeat that came meanwhile. A signal does not shorten the rest.
        assert!(reaper.tasks.reschedule(kept_alive, 1000 * MS));
        assert_eq!(reaper.round_after(60 * MS), (Pause::For(40 * MS), 0));

        // Then the other task expires. No second period follows, however late this round is.
        assert_eq!(reaper.round_after(500 * MS).1, 1);
        assert_eq!(reaper.driver.stats().graces, 1);
        assert!(reaper.tasks.is_pending(kept_alive));
    }

    /// A clock beside which no thread is to sleep for longer than 10 ms.
    #[derive(Debug)]
    struct Jumping(ManualClock);

    impl Clock for Jumping {
        fn now_ns(&self) -> u64 {
            self.0.now_ns()
        }

        fn sleep_max(&self) -> Option<Duration> {
            Some(10 * MS)
        }
    }

    #[test]
    fn a_jump_of_the_clock_within_a_grace_period_is_found() {
        let mut reaper = reaper(|driver, clock| {
            driver.config.grace = Some(100 * MS);
            driver.clock = DriverClock::User(Arc::new(Jumping(clock)));
        });
        reaper.schedule(50 * MS);
        assert_eq!(reaper.round_after(NONE), (Pause::For(10 * MS), 0));
        assert_eq!(reaper.round_after(1600 * MS), (Pause::For(10 * MS), 0));
        assert_eq!(reaper.round_after(95 * MS), (Pause::For(5 * MS), 0));
        assert_eq!(reaper.round_after(5 * MS), (Pause::UntilWoken, 1));
        assert_eq!(reaper.driver.stats().graces, 1);
    }

    #[test]
    fn a_pause_before_the_first_round_is_noticed() {
        let mut reaper = reaper(|driver, _| driver.config.grace = Some(100 * MS));
        reaper.schedule(50 * MS);
        assert_eq!(reaper.round_after(1600 * MS), (Pause::For(100 * MS), 0));
        assert_eq!(reaper.round_after(100 * MS), (Pause::UntilWoken, 1));
        // The reaper is idle for long, then called, and the process stops before it comes.
        reaper.clock.advance_to(60_000_000_000);
        reaper.schedule(50 * MS);
        assert_eq!(reaper.round_after(1600 * MS), (Pause::For(100 * MS), 1));
        assert_eq!(reaper.driver.stats().graces, 2);
    }

    #[test]
    fn a_round_within_its_bound_expires_at_once() {
        let mut reaper = reaper(|driver, _| driver.config.grace = Some(100 * MS));
        reaper.schedule(50 * MS);
        assert_eq!(reaper.round_after(NONE), (Pause::For(50 * MS), 0));
        assert_eq!(reaper.round_after(150 * MS), (Pause::UntilWoken, 1));
        // When idle it does not wake, and no time is too long.
        assert_eq!(reaper.round_after(10_000 * MS), (Pause::UntilWoken, 1));
        reaper.schedule(NONE);
        assert_eq!(reaper.round_after(NONE), (Pause::UntilWoken, 2));
        assert_eq!(reaper.driver.stats().graces, 0);
    }

    #[test]
    fn a_pause_inside_a_round_is_noticed() {
        let mut reaper = reaper(|driver, _| driver.config.grace = Some(100 * MS));
        reaper.schedule(50 * MS);
        reaper.schedule(1000 * MS);
        assert_eq!(reaper.round_after(NONE), (Pause::For(50 * MS), 0));
        // A task runs in place, and the process is stopped meanwhile.
        let clock = reaper.clock.clone();
        let pause = move || clock.advance_to(2_000_000_000);
        let timer = TaskTimer::on(reaper.driver.clone(), move |()| pause(), None);
        timer.schedule(50 * MS, ()).unwrap();
        assert_eq!(reaper.round_after(50 * MS), (Pause::None, 1));
        assert_eq!(reaper.round_after(60 * MS), (Pause::For(40 * MS), 1));
        assert_eq!(reaper.round_after(40 * MS), (Pause::UntilWoken, 2));
        assert_eq!(reaper.driver.stats().graces, 1);
    }

    /// A clock that panics at the read that a test names.
    #[derive(Debug)]
    struct Panicking(ManualClock, Arc<AtomicUsize>);

    impl Clock for Panicking {
        fn now_ns(&self) -> u64 {
            let left = self.1.load(Ordering::Relaxed);
            self.1.store(left.saturating_sub(1), Ordering::Relaxed);
            assert!(left != 1, "the clock panics");
            self.0.now_ns()
        }
    }

    /// A reaper with such a clock, and the number of its read that panics.
    fn panicking(configure: impl FnOnce(&mut Driver)) -> (Reaper, Arc<AtomicUsize>) {
        let panics = Arc::new(AtomicUsize::new(0));
        let read = panics.clone();
        let reaper = reaper(|driver, clock| {
            driver.clock = DriverClock::User(Arc::new(Panicking(clock, read)));
            configure(driver);
        });
        (reaper, panics)
    }

    #[test]
    fn a_pause_after_a_panic_of_the_clock_is_noticed() {
        let (mut reaper, panics) = panicking(|driver| driver.config.grace = Some(100 * MS));
        reaper.schedule(1000 * MS);
        reaper.round_after(NONE);
        panics.store(2, Ordering::Relaxed); // as the next round is planned
        assert_eq!(reaper.round_after(100 * MS), (Pause::For(AFTER_PANIC), 0));
        assert_eq!(reaper.round_after(1600 * MS), (Pause::For(100 * MS), 0));
        assert_eq!(reaper.driver.stats().graces, 1);
    }

    #[test]
    fn the_wait_after_a_panic_of_the_clock_is_no_pause() {
        let (mut reaper, panics) = panicking(|driver| driver.config.grace = Some(20 * MS));
        reaper.schedule(1000 * MS);
        reaper.round_after(NONE);
        // As a round begins, and as one is planned.
        for (by, read) in [(20 * MS, 1), (AFTER_PANIC, 2)] {
            panics.store(read, Ordering::Relaxed);
            assert_eq!(reaper.round_after(by), (Pause::For(AFTER_PANIC), 0));
        }
        assert_eq!(reaper.round_after(AFTER_PANIC), (Pause::For(20 * MS), 0));
        assert_eq!(reaper.driver.stats().graces, 0);
        // A pause in that wait is noticed.
        panics.store(2, Ordering::Relaxed);
        reaper.round_after(20 * MS);
        let late = AFTER_PANIC + 21 * MS;
        assert_eq!(reaper.round_after(late), (Pause::For(20 * MS), 0));
        assert_eq!(reaper.driver.stats().graces, 1);
    }

    /// The reaper was idle, and was called.
    #[test]
    fn wait_after_a_panic_in_a_called_round_is_no_pause() {
        let (mut reaper, panics) = panicking(|driver| driver.config.grace = Some(20 * MS));
        assert_eq!(reaper.round_after(NONE), (Pause::UntilWoken, 0));
        reaper.schedule(50 * MS);
        panics.store(1, Ordering::Relaxed); // as the round begins
        assert_eq!(reaper.round_after(NONE), (Pause::For(AFTER_PANIC), 0));
        assert_eq!(reaper.round_after(AFTER_PANIC), (Pause::UntilWoken, 1));
        assert_eq!(reaper.driver.stats().graces, 0);
        // A pause in that wait is noticed.
        reaper.schedule(50 * MS);
        panics.store(1, Ordering::Relaxed);
        reaper.round_after(NONE);
        let late = AFTER_PANIC + 21 * MS;
        assert_eq!(reaper.round_after(late), (Pause::For(20 * MS), 1));
        assert_eq!(reaper.driver.stats().graces, 1);
    }

    #[test]
    fn clock_panic_while_waking_the_reaper_is_counted() {
        let (mut reaper, panics) = panicking(|driver| driver.config.grace = Some(100 * MS));
        panics.store(2, Ordering::Relaxed); // after the read for the deadline
        reaper.schedule(50 * MS);
        assert_eq!(reaper.wakes.load(Ordering::Relaxed), 1);
        assert_eq!(reaper.driver.stats().panics, 1);
        assert_eq!(reaper.round_after(50 * MS), (Pause::UntilWoken, 1));
    }

    #[test]
    fn a_clock_that_panics_once_ends_no_reaper() {
        let reported = Arc::new(AtomicUsize::new(0));
        let told = reported.clone();
        let (mut reaper, panics) = panicking(|driver| {
            driver.executors_mut().panics = Arc::new(Panics::new(move |message| {
                assert_eq!(message, "the clock panics");
                told.fetch_add(1, Ordering::Relaxed);
            }));
        });
        reaper.schedule(50 * MS);
        reaper.round_after(NONE);
        panics.store(1, Ordering::Relaxed);
        assert_eq!(reaper.round_after(50 * MS), (Pause::For(AFTER_PANIC), 0));
        assert_eq!(reported.load(Ordering::Relaxed), 1);
        assert_eq!(reaper.driver.stats().panics, 1);
        assert_eq!(reaper.round_after(100 * MS), (Pause::UntilWoken, 1));
    }
}
