//! The last minute of a purgatory, kept by the program, so that a page that is opened later shows
//! the time before. It is driven by `now` and reads no clock.
//!
//! A point is kept when an event or a scrape looks at the purgatory anyway, at most one a second:
//! nothing is woken for it. The number of points is bounded.

use std::collections::VecDeque;

use purgatory::{Stats, Times};
use serde::Serialize;
use timer_core::TimeHistogram;

/// The length of the charts, and of the time that percentiles cover.
const WINDOW_NS: u64 = 60_000_000_000;
/// At most one point is kept of each of these: of points that come once a second, nearly all.
const SECOND_NS: u64 = 1_000_000_000;
/// One point a second, of which the window has the first and the last in part, and the one at which
/// it begins.
const POINTS_MAX: usize = (WINDOW_NS / SECOND_NS) as usize + 2;

/// The totals of a purgatory at one moment.
#[derive(Clone)]
pub(crate) struct Totals {
    pub(crate) at_ns: u64,
    pub(crate) stats: Stats,
    pub(crate) times: Times,
}

/// One value of a chart.
#[derive(Serialize)]
struct Point {
    at_s: f64,
    parked: u64,
    completed: u64,
    expired: u64,
    cancelled: u64,
}

/// How long operations waited, and how late they expired, in the window.
#[derive(Serialize)]
struct Waits {
    completed: TimeHistogram,
    expired: TimeHistogram,
    cancelled: TimeHistogram,
    lateness: TimeHistogram,
}

/// The last minute, or the part of it that is known.
#[derive(Serialize)]
pub(crate) struct Minute {
    /// The time from the first point to now: about 60 s, or less while less is known.
    window_s: f64,
    /// The points, oldest first; the last one is now. Counts are totals.
    points: Vec<Point>,
    /// The waits that ended from the first point to now.
    waits: Waits,
}

/// The points of the last minute.
#[derive(Default)]
pub(crate) struct History {
    points: VecDeque<Totals>,
}

impl History {
    /// Keeps these totals, unless the last ones are of the same second. O(1).
    pub(crate) fn record(&mut self, now: &Totals) {
        // 1. Keep at most one a second, and none that a later one has overtaken.
        if let Some(last) = self.points.back() {
            if now.at_ns / SECOND_NS <= last.at_ns / SECOND_NS {
                return;
            }
        }
        // 2. Of the points at which the window may begin, only the latest stays.
        let begin_ns = now.at_ns.saturating_sub(WINDOW_NS);
        self.points.push_back(now.clone());
        while self
            .points
            .get(1)
            .is_some_and(|next| next.at_ns <= begin_ns)
        {
            self.points.pop_front();
        }
        debug_assert!(self.points.len() <= POINTS_MAX);
    }

    /// Returns the minute that ends with these totals. O(points).
    pub(crate) fn minute(&self, now: &Totals) -> Minute {
        let begin_ns = now.at_ns.saturating_sub(WINDOW_NS);
        // 1. The window begins at the latest point that is a minute old, or at the oldest there is.
        let begin = self
            .points
            .iter()
            .rposition(|point| point.at_ns <= begin_ns);
        let shown = self.points.range(begin.unwrap_or(0)..);
        let shown = shown.filter(|point| point.at_ns < now.at_ns);
        let mut points: Vec<_> = shown.clone().map(Point::of).collect();
        points.push(Point::of(now));
        // 2. The counts gained since then.
        let first = shown.min_by_key(|point| point.at_ns).unwrap_or(now);
        let (since, times) = (&first.times, &now.times);
        Minute {
            window_s: now.at_ns.saturating_sub(first.at_ns) as f64 / 1e9,
            points,
            waits: Waits {
                completed: times.completed.gained_since(&since.completed),
                expired: times.expired.gained_since(&since.expired),
                cancelled: times.cancelled.gained_since(&since.cancelled),
                lateness: times.lateness.gained_since(&since.lateness),
            },
        }
    }
}

impl Point {
    fn of(totals: &Totals) -> Point {
        let stats = &totals.stats;
        Point {
            at_s: totals.at_ns as f64 / 1e9,
            parked: stats.parked,
            completed: stats.completed,
            expired: stats.expired,
            cancelled: stats.cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS_NS: u64 = 1_000_000;

    /// Returns the totals at a time: a wait of 1 ms completed in each half second.
    fn totals(at_ms: u64) -> Totals {
        let mut stats = Stats::default();
        stats.completed = at_ms / 500;
        let mut times = Times::default();
        for _ in 0..stats.completed {
            times.completed.record(MS_NS);
        }
        Totals {
            at_ns: at_ms * MS_NS,
            stats,
            times,
        }
    }

    fn recorded(looks_ms: impl Iterator<Item = u64>) -> History {
        let mut history = History::default();
        for at_ms in looks_ms {
            history.record(&totals(at_ms));
        }
        history
    }

    #[test]
    fn minute_shows_what_was_before_it_was_asked_for() {
        let history = recorded((0..=90).map(|second| second * 1000));
        let minute = history.minute(&totals(90_500));
        assert_eq!(minute.window_s, 60.5);
        let at: Vec<_> = minute.points.iter().map(|point| point.at_s).collect();
        assert_eq!((at[0], at[1], at[60], at[61]), (30.0, 31.0, 90.0, 90.5));
        assert_eq!(minute.points[1].completed, 62);
        assert_eq!(minute.waits.completed.count(), 121);
    }

    #[test]
    fn minute_is_shorter_while_less_is_known() {
        let nothing = History::default().minute(&totals(7));
        assert_eq!((nothing.window_s, nothing.points.len()), (0.0, 1));
        assert_eq!(nothing.waits.completed.count(), 0);

        let minute = recorded([2000, 7000].into_iter()).minute(&totals(7000));
        assert_eq!((minute.window_s, minute.points.len()), (5.0, 2));
        assert_eq!(minute.waits.completed.count(), 10);
    }

    /// A timer that records each second is a little late, once more than another time.
    #[test]
    fn looks_a_second_apart_but_for_a_little_are_all_kept() {
        let history = recorded([1002, 2000, 3001, 4000, 5003, 6001].into_iter());
        assert_eq!(history.points.len(), 6);
    }

    #[test]
    fn points_are_bounded_however_often_one_looks() {
        // Twice a second, and late in one second and early in the next.
        for (step_ms, most_kept) in [(500, POINTS_MAX - 1), (999, POINTS_MAX)] {
            let mut history = History::default();
            let mut most = 0;
            for at_ms in (0..=1_000_000).step_by(step_ms) {
                history.record(&Totals {
                    at_ns: at_ms * MS_NS,
                    stats: Stats::default(),
                    times: Times::default(),
                });
                most = most.max(history.points.len());
            }
            assert_eq!(most, most_kept);
        }
    }

    #[test]
    fn points_of_a_form_take_what_the_docs_state() {
        // Room is doubled as points are added.
        let most = POINTS_MAX.next_power_of_two() * size_of::<Totals>();
        assert!(most <= 210_000, "{most} bytes");
    }

    #[test]
    fn rare_looks_leave_one_point_before_the_window() {
        let history = recorded([0, 15_000, 30_000, 45_000, 60_000, 75_000, 90_000].into_iter());
        assert_eq!(history.points.len(), 5);
        let minute = history.minute(&totals(100_000));
        assert_eq!((minute.window_s, minute.points.len()), (70.0, 6));
        // After a pause the window has a point before it and the present.
        let minute = history.minute(&totals(300_000));
        assert_eq!((minute.window_s, minute.points.len()), (210.0, 2));
    }

    #[test]
    fn look_that_was_overtaken_changes_nothing() {
        let mut history = recorded([1000, 3000].into_iter());
        history.record(&totals(2000));
        let minute = history.minute(&totals(2000));
        assert_eq!((minute.window_s, minute.points.len()), (1.0, 2));
        assert_eq!(history.points.len(), 2);
    }
}
