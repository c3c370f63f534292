//! A recurring task: copy this file.
//!
//! A timer counts on a clock that only goes forward. A calendar follows the wall clock, which can
//! be set, and which goes on while the machine sleeps. So a schedule never waits for longer than
//! [`LOOK_EVERY`] before it reads the wall clock again.
//!
//! - *Within a minute.* After a sleep, or when the clock is set forward, a missed run comes at the
//!   next look. Of several missed runs, only the first comes, late; the others are skipped.
//! - *Once.* When the clock is set back by up to [`SET_BACK_MAX`], times that have run do not run
//!   again. A larger step counts as the correction of a wrong clock: the schedule starts anew from
//!   the corrected time.
//! - *No silent end.* A panic of the task and a time that cannot be found are reported, and the
//!   schedule goes on. Only the timer's shutdown ends it, or the end of the calendar.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{sync::Arc, time::Duration};

use croner::Cron;
use jiff::{SignedDuration, Span, Timestamp, Zoned, tz::TimeZone};
use timer_core::Timer;

/// The longest time between two looks at a wall clock that can be set, on a machine that can sleep.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How far the wall clock may be set back before a schedule starts anew, as in cron.
const SET_BACK_MAX: SignedDuration = SignedDuration::from_hours(3);

/// The most days between two searches. The pause is a day at first; each search without a result
/// doubles it.
const SEARCH_AGAIN_MAX_DAYS: i32 = 32;

/// Reads the wall clock.
pub(crate) type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A task that recurs at the times of a cron expression in a time zone.
pub(crate) struct Recurring {
    pub(crate) cron: Cron,
    pub(crate) zone: TimeZone,
    pub(crate) timer: Timer,
    pub(crate) wall: WallClock,
    /// The longest time between two looks at the wall clock.
    pub(crate) look_every: Duration,
    /// Called with each time of the schedule, on the timer's executor.
    pub(crate) task: Box<dyn Fn(&Zoned) + Send + Sync>,
    /// Called with a line about a run that panicked, a time that could not be found, or a clock
    /// that was set back.
    pub(crate) report: Box<dyn Fn(&str) + Send + Sync>,
}

impl Recurring {
    /// Schedules the first run, at the first time after now.
    pub(crate) fn start(self) {
        let now = self.now();
        Arc::new(self).schedule_after(&now);
    }

    fn now(&self) -> Zoned {
        self.in_zone((self.wall)())
    }

    fn in_zone(&self, time: Timestamp) -> Zoned {
        time.to_zoned(self.zone.clone())
    }

    /// Schedules the run at the first time after `after`.
    fn schedule_after(self: Arc<Self>, after: &Zoned) {
        // `after` itself does not count: it has run, or is now.
        match self.cron.find_next_occurrence(after, false) {
            Ok(due) => self.wait_for(due),
            Err(error) => {
                let pattern = &self.cron.pattern;
                self.say(&format!(
                    "{pattern}: no time found after {after}: {error}; looking again each day, then less often"
                ));
                self.search_again(1);
            }
        }
    }

    /// Waits for `due`, and reads the wall clock every `look_every`.
    fn wait_for(self: Arc<Self>, due: Zoned) {
        let now = (self.wall)();
        self.wait_until(due.timestamp(), move |this| this.look(due, now));
    }

    /// Calls `look` when the wall clock should show `at`, but after `look_every` at the latest.
    fn wait_until(self: Arc<Self>, at: Timestamp, look: impl FnOnce(Arc<Self>) + Send + 'static) {
        // If `at` has passed, do not wait.
        let remaining = Duration::try_from(at.duration_since((self.wall)())).unwrap_or_default();
        let delay = remaining.min(self.look_every);
        let timer = self.timer.clone();
        // The timer refuses only after its shutdown, when no run is to come.
        let _ = timer.schedule(delay, move || look(self));
    }

    /// Runs the task if it is due, and waits on if it is not. At the previous look, the wall clock
    /// showed `before`.
    fn look(self: Arc<Self>, due: Zoned, before: Timestamp) {
        let now = (self.wall)();
        if self.was_corrected(now, before) {
            let now = self.in_zone(now);
            self.schedule_after(&now);
        } else if now < due.timestamp() {
            self.wait_for(due);
        } else {
            self.run(&due);
        }
    }

    /// Runs the task, then schedules the next time.
    fn run(self: Arc<Self>, due: &Zoned) {
        // A run that panics must not prevent the next ones.
        let ran = catch_unwind(AssertUnwindSafe(|| (self.task)(due)));
        if ran.is_err() {
            let pattern = &self.cron.pattern;
            self.say(&format!(
                "{pattern}: the run of {due} panicked; the schedule goes on"
            ));
        }
        // The clock may have been set back during the run: the time that has run must not run
        // again.
        let now = (self.wall)();
        if self.was_corrected(now, due.timestamp()) || now > due.timestamp() {
            let now = self.in_zone(now);
            self.schedule_after(&now);
        } else {
            self.schedule_after(due);
        }
    }

    /// Returns true, and reports it, if the wall clock was set back so far that it must have been
    /// wrong.
    fn was_corrected(&self, now: Timestamp, before: Timestamp) -> bool {
        let back = before.duration_since(now);
        if back <= SET_BACK_MAX {
            return false;
        }
        let pattern = &self.cron.pattern;
        self.say(&format!(
            "{pattern}: the clock was set back by {back:#}; the schedule starts anew"
        ));
        true
    }

    /// Searches again at the start of the day that is `days` days away. The library finds no time
    /// if its search meets a day that the time zone skipped, as Apia did 2011-12-30; a search from
    /// the next day finds one.
    fn search_again(self: Arc<Self>, days: i32) {
        let now = self.now();
        let day = now
            .checked_add(Span::new().days(days))
            .and_then(|day| day.start_of_day());
        // At the end of the calendar there is nothing left to search.
        if let Ok(day) = day {
            self.wait_for_day(day, days);
        }
    }

    /// Waits until `day` begins, and reads the wall clock every `look_every`.
    fn wait_for_day(self: Arc<Self>, day: Zoned, days: i32) {
        let now = (self.wall)();
        self.wait_until(day.timestamp(), move |this| this.search(day, days, now));
    }

    /// Searches from `day` on, if it has begun. At the previous look, the wall clock showed
    /// `before`.
    fn search(self: Arc<Self>, day: Zoned, days: i32, before: Timestamp) {
        let now = (self.wall)();
        if self.was_corrected(now, before) {
            let now = self.in_zone(now);
            return self.schedule_after(&now);
        }
        if now < day.timestamp() {
            return self.wait_for_day(day, days);
        }
        // Search from the day's first moment on, including it: a time that has passed since runs
        // late.
        match self.cron.find_next_occurrence(&day, true) {
            Ok(due) => self.wait_for(due),
            Err(_) => self.search_again((2 * days).min(SEARCH_AGAIN_MAX_DAYS)),
        }
    }

    fn say(&self, line: &str) {
        // A report that panics must not end the schedule, either.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.report)(line)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

    use jiff::civil::{DateTime, date};
    use parking_lot::Mutex;
    use timer_core::{Clock, ManualTimer};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A schedule on a manual timer, and a wall clock that the test can set.
    struct Fixture {
        timer: ManualTimer,
        /// The milliseconds by which the wall clock is ahead of the timer's.
        ahead_ms: Arc<AtomicI64>,
        ran: Arc<Mutex<Vec<String>>>,
        reported: Arc<Mutex<Vec<String>>>,
    }

    impl Fixture {
        /// Starts the schedule; `task` gets the number of earlier runs, and `ahead_ms`.
        fn start(
            pattern: &str,
            zone: &str,
            from: DateTime,
            task: impl Fn(usize, &AtomicI64) + Send + Sync + 'static,
        ) -> Fixture {
            let timer = ManualTimer::new();
            let ahead_ms = Arc::new(AtomicI64::new(0));
            let ran = Arc::<Mutex<Vec<String>>>::default();
            let reported = Arc::<Mutex<Vec<String>>>::default();
            let zone = TimeZone::get(zone).unwrap();
            let origin = zone.to_timestamp(from).unwrap();
            let clock = timer.clock();
            let ahead = ahead_ms.clone();
            // The wall clock follows the timer's clock, as far ahead as the test sets it.
            let wall = move || {
                let passed = SignedDuration::from_nanos(clock.now_ns() as i64);
                origin + passed + SignedDuration::from_millis(ahead.load(SeqCst))
            };
            let running = ran.clone();
            let set = ahead_ms.clone();
            // The task notes its time, then calls the test's closure.
            let task = move |due: &Zoned| {
                let mut ran = running.lock();
                ran.push(due.strftime("%Y-%m-%d %H:%M").to_string());
                let before = ran.len() - 1;
                drop(ran);
                task(before, &set);
            };
            let lines = reported.clone();
            let recurring = Recurring {
                cron: pattern.parse().unwrap(),
                zone,
                timer: timer.clone().into(),
                wall: Arc::new(wall),
                look_every: LOOK_EVERY,
                task: Box::new(task),
                report: Box::new(move |line| lines.lock().push(line.to_owned())),
            };
            recurring.start();
            Fixture {
                timer,
                ahead_ms,
                ran,
                reported,
            }
        }

        /// Starts "every day at 9" in Berlin on the first day of 2026.
        fn daily(task: impl Fn(usize, &AtomicI64) + Send + Sync + 'static) -> Fixture {
            Fixture::start(
                "0 9 * * *",
                "Europe/Berlin",
                date(2026, 1, 1).at(0, 0, 0, 0),
                task,
            )
        }

        fn ran(&self) -> Vec<String> {
            self.ran.lock().clone()
        }
    }

    #[test]
    fn task_that_panics_runs_again_and_is_reported() {
        let fixture = Fixture::daily(|_, _| panic!("a task of this test panics, as it should"));
        fixture.timer.advance(3 * DAY);
        assert_eq!(fixture.ran().len(), 3);
        let reported = fixture.reported.lock();
        assert_eq!(reported.len(), 3);
        assert!(reported[0].contains("2026-01-01T09:00"), "{}", reported[0]);
        assert!(reported[0].contains("panicked"), "{}", reported[0]);
    }

    #[test]
    fn schedule_outlives_a_report_that_panics() {
        let timer = ManualTimer::new();
        let clock = timer.clock();
        let runs = Arc::new(AtomicI64::new(0));
        let ran = runs.clone();
        let task = move |_: &Zoned| {
            ran.fetch_add(1, SeqCst);
            panic!("a task of this test panics, as it should");
        };
        let recurring = Recurring {
            cron: "0 9 * * *".parse().unwrap(),
            zone: TimeZone::UTC,
            timer: timer.clone().into(),
            wall: Arc::new(move || {
                Timestamp::UNIX_EPOCH + SignedDuration::from_nanos(clock.now_ns() as i64)
            }),
            look_every: LOOK_EVERY,
            task: Box::new(task),
            report: Box::new(|line| panic!("so does its report: {line}")),
        };
        recurring.start();
        timer.advance(3 * DAY);
        assert_eq!(runs.load(SeqCst), 3);
    }

    #[test]
    fn clock_set_back_during_a_run_runs_nothing_twice() {
        for back_ms in [1, 1000, 3 * 3_600_000] {
            let fixture = Fixture::daily(move |before, ahead_ms| {
                if before == 0 {
                    ahead_ms.fetch_sub(back_ms, SeqCst);
                }
            });
            fixture.timer.advance(2 * DAY);
            let expected = ["2026-01-01 09:00", "2026-01-02 09:00"];
            assert_eq!(fixture.ran(), expected, "{back_ms} ms back");
        }
    }

    #[test]
    fn corrected_clock_starts_the_schedule_anew() {
        let fixture = Fixture::daily(|_, _| ());
        fixture.ahead_ms.store(365 * 24 * 3_600_000, SeqCst); // wrong by a year
        fixture.timer.advance(DAY);
        fixture.ahead_ms.store(0, SeqCst); // set right
        fixture.timer.advance(DAY);
        assert_eq!(fixture.ran().last().unwrap(), "2026-01-02 09:00");
        assert!(fixture.reported.lock()[0].contains("was set back"));
    }

    /// Apia went from the 29th straight to the 31st.
    #[test]
    fn unfound_time_is_reported_and_sought_again() {
        let from = date(2011, 12, 29).at(0, 0, 0, 0);
        for (pattern, time) in [("0 9 * * *", "09:00"), ("0 0 * * *", "00:00")] {
            let fixture = Fixture::start(pattern, "Pacific/Apia", from, |_, _| ());
            fixture.timer.advance(3 * DAY - HOUR);
            let ran = fixture.ran();
            let expected = ["2011-12-31", "2012-01-01"].map(|day| format!("{day} {time}"));
            assert!(ran.ends_with(&expected), "{pattern}: {ran:?}");
            let reported = fixture.reported.lock();
            assert_eq!(reported.len(), 1, "{reported:?}");
            assert!(
                reported[0].contains("no time found after 2011-12-29"),
                "{reported:?}"
            );
        }
    }

    #[test]
    fn corrected_clock_ends_a_search() {
        let from = date(2011, 12, 29).at(0, 0, 0, 0);
        let fixture = Fixture::start("0 9 * * *", "Pacific/Apia", from, |_, _| ());
        fixture.timer.advance(10 * HOUR); // the task has run; its next time is being searched
        fixture.ahead_ms.store(-5 * 3_600_000, SeqCst);
        fixture.timer.advance(5 * HOUR);
        assert_eq!(fixture.ran(), ["2011-12-29 09:00"; 2]);
    }

    /// While the machine sleeps the timer's clock stands still and the wall clock goes on.
    #[test]
    fn run_missed_in_a_sleep_comes_within_a_minute() {
        for slept in [9 * HOUR, 9 * HOUR + HOUR / 2, DAY] {
            let fixture = Fixture::daily(|_, _| ());
            fixture.timer.advance(Duration::from_millis(1));
            fixture.ahead_ms.fetch_add(slept.as_millis() as i64, SeqCst);
            fixture.timer.advance(LOOK_EVERY);
            assert_eq!(fixture.ran(), ["2026-01-01 09:00"], "slept {slept:?}");
        }
    }

    /// A search for the 30th of February goes on to the year 5000 in vain: only a few are made.
    #[test]
    fn day_that_never_comes_is_reported_once() {
        let from = date(2026, 1, 1).at(0, 0, 0, 0);
        let fixture = Fixture::start("0 9 30 2 *", "Europe/Berlin", from, |_, _| ());
        fixture.timer.advance(10 * DAY);
        assert!(fixture.ran().is_empty());
        assert_eq!(fixture.reported.lock().len(), 1);
    }
}
