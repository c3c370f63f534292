//! A clock: wheels of seconds, minutes and hours, and above them a calendar of week and month.

use super::{
    rings::{Handle, Rings},
    scheme::{Claim, Refused, Scheme, Task},
};
use crate::trial::DAY;

/// One wheel of the clock.
#[derive(Debug)]
struct Wheel {
    /// Its first slot among all rings.
    first: usize,
    slots: u64,
    /// How many ticks a slot stands for.
    ticks: u64,
}

const SECONDS: Wheel = Wheel { first: 0, slots: 60, ticks: 1 };
const MINUTES: Wheel = Wheel { first: 60, slots: 60, ticks: 60 };
const HOURS: Wheel = Wheel { first: 120, slots: 24, ticks: 3_600 };
const WEEK: Wheel = Wheel { first: 144, slots: 7, ticks: DAY };
const MONTH: Wheel = Wheel { first: 151, slots: 30, ticks: DAY };
const RINGS: usize = 181;

/// The slots that tell the seconds of a day apart.
pub(crate) const CLOCK_SLOTS: [u64; 3] = [SECONDS.slots, MINUTES.slots, HOURS.slots];
/// The slots that tell the days of a month apart.
pub(crate) const CALENDAR_SLOTS: [u64; 2] = [WEEK.slots, MONTH.slots];

/// The longest delay: a month of 30 days.
const DELAY_MAX: u64 = MONTH.slots * MONTH.ticks;

impl Wheel {
    /// The ring of the slot in which a time lies.
    fn ring(&self, time: u64) -> usize {
        self.first + (time / self.ticks % self.slots) as usize
    }

    /// How often the wheel moves between two times.
    fn moves(&self, from: u64, to: u64) -> u64 {
        to / self.ticks - from / self.ticks
    }
}

/// The wheel of the highest unit in which two times differ; days go to the week's wheel up to a
/// week. `None` when they do not differ.
fn wheel(now: u64, deadline: u64) -> Option<&'static Wheel> {
    match MONTH.moves(now, deadline) {
        0 => [&HOURS, &MINUTES, &SECONDS].into_iter().find(|wheel| wheel.moves(now, deadline) > 0),
        1..=7 => Some(&WEEK),
        _ => Some(&MONTH),
    }
}

/// A timer waits on the wheel of the highest unit in which its deadline differs from the present.
/// When that wheel comes to its slot, the timer is handed down to a finer one: month and week to
/// the hours at midnight, hours to minutes, minutes to seconds.
///
/// O(wheels) to start, O(1) to stop, and 60 + 60 + 24 slots instead of 86 400; a tick hands down
/// what has come up. The trap is in "differ": 22:10 tomorrow and 22:20 today show the same hour, so
/// units count from the beginning of time, not from midnight. (`TimingWheel` takes the lowest wheel
/// whose turn reaches the deadline, which is often one lower, and hands down less.) Delays beyond
/// 30 days are refused. Scheme 7 of Varghese and Lauck, as it is told with a clock.
#[derive(Debug)]
pub(crate) struct ClockWheel {
    now: u64,
    deadlines: Rings,
}

impl Default for ClockWheel {
    fn default() -> Self {
        ClockWheel::at(0)
    }
}

impl ClockWheel {
    /// A clock that shows a time, in seconds since the midnight that began a month on a Monday.
    pub(crate) fn at(now: u64) -> Self {
        ClockWheel { now, deadlines: Rings::new(RINGS) }
    }

    fn hand_down(&mut self, from: usize, fired: &mut Vec<Task>) {
        while let Some(deadline) = self.deadlines.first_time(from) {
            match wheel(self.now, deadline) {
                Some(wheel) => self.deadlines.move_first(from, wheel.ring(deadline)),
                None => fired.extend(self.deadlines.pop(from)),
            }
        }
    }
}

impl Scheme for ClockWheel {
    const NAME: &'static str = "clock-wheel";
    const IDEA: &'static str = "seconds, minutes, hours, week and month, handed down";
    const CLAIM: Claim =
        Claim { start: "O(wheels)", stop: "O(1)", tick: "O(1)", expire: "O(wheels)" };
    type Handle = Handle;

    fn start(&mut self, delay: u64, task: Task) -> Result<Handle, Refused> {
        let delay = delay.max(1);
        if delay > DELAY_MAX {
            return Err(Refused { delay, delay_max: DELAY_MAX, task });
        }
        let deadline = self.now + delay;
        let wheel = wheel(self.now, deadline).expect("one tick is a unit");
        Ok(self.deadlines.push(wheel.ring(deadline), deadline, task))
    }

    fn stop(&mut self, handle: Handle) -> bool {
        self.deadlines.remove(handle)
    }

    fn tick(&mut self, fired: &mut Vec<Task>) {
        self.now += 1;
        for wheel in [&SECONDS, &MINUTES, &HOURS, &WEEK, &MONTH] {
            if !self.now.is_multiple_of(wheel.ticks) {
                break; // nor does a coarser one move
            }
            self.hand_down(wheel.ring(self.now), fired);
        }
    }

    fn pending(&self) -> usize {
        self.deadlines.timers()
    }

    fn slots(&self) -> usize {
        self.deadlines.rings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(hours: u64, minutes: u64, seconds: u64) -> u64 {
        hours * 3600 + minutes * 60 + seconds
    }

    /// Turns the clock to a time at which nothing is due before.
    fn quiet_until(clock: &mut ClockWheel, until: u64) {
        let mut fired = Vec::new();
        clock.advance(until - clock.now, &mut fired);
        assert!(fired.is_empty());
    }

    // At 22:20:30, 50 minutes and 10 seconds; and an hour earlier.

    #[test]
    fn fifty_minutes_ten_seconds_wait_at_the_hour_then_minute_10_then_second_40() {
        for hour in [22, 21] {
            let mut clock = ClockWheel::at(time(hour, 20, 30));
            let handle = clock.start(time(0, 50, 10), 7).unwrap();
            let ring = |clock: &ClockWheel| clock.deadlines.ring_of(handle);
            assert_eq!(ring(&clock), Some(HOURS.first + hour as usize + 1));
            quiet_until(&mut clock, time(hour + 1, 0, 0)); // 10:40 left
            assert_eq!(ring(&clock), Some(MINUTES.first + 10));
            quiet_until(&mut clock, time(hour + 1, 10, 0)); // 40 s left
            assert_eq!(ring(&clock), Some(SECONDS.first + 40));
            quiet_until(&mut clock, time(hour + 1, 10, 39));
            let mut fired = Vec::new();
            clock.tick(&mut fired);
            assert_eq!((fired, clock.now), (vec![7], time(hour + 1, 10, 40)));
        }
    }

    #[test]
    fn the_same_hour_of_tomorrow_is_another_hour() {
        let mut clock = ClockWheel::at(time(22, 20, 0));
        let handle = clock.start(time(23, 50, 0), 0).unwrap();
        assert_eq!(clock.deadlines.ring_of(handle), Some(WEEK.first + 1));
        quiet_until(&mut clock, DAY); // midnight
        assert_eq!(clock.deadlines.ring_of(handle), Some(HOURS.first + 22));
        quiet_until(&mut clock, DAY + time(22, 10, 0) - 1);
        clock.tick(&mut Vec::new());
        assert_eq!(clock.pending(), 0);
    }

    #[test]
    fn a_day_takes_144_slots_and_a_month_37_more() {
        assert_eq!(CLOCK_SLOTS.iter().sum::<u64>(), 144);
        assert_eq!(CLOCK_SLOTS.iter().product::<u64>(), 86_400);
        let wheels = [SECONDS, MINUTES, HOURS, WEEK, MONTH];
        let ends = wheels.iter().map(|wheel| wheel.first + wheel.slots as usize);
        assert!(ends.eq([60, 120, 144, 151, RINGS]));
        let mut clock = ClockWheel::default();
        assert!(clock.start(30 * DAY, 0).is_ok());
        assert_eq!(clock.start(30 * DAY + 1, 0).unwrap_err().delay_max, 30 * DAY);
    }

    /// Each deadline of a month, through every wheel and at both ends of each slot.
    #[test]
    fn a_month_of_random_deadlines_fires_on_the_second() {
        let mut random = fastrand::Rng::with_seed(1);
        let begin = time(20, 50, 55);
        let mut clock = ClockWheel::at(begin);
        let mut expected: Vec<u64> = (0..300).map(|_| random.u64(1..=30 * DAY)).collect();
        expected.extend((0..30).flat_map(|day| {
            let midnight = (day + 1) * DAY - begin;
            [midnight - 1, midnight, midnight + 1, midnight + 3599, midnight + 3600]
        }));
        expected.retain(|&delay| clock.start(delay, begin + delay).is_ok());
        expected.sort_unstable();
        let mut at = Vec::new();
        while clock.now < begin + 30 * DAY {
            let mut fired = Vec::new();
            clock.tick(&mut fired);
            assert!(fired.iter().all(|&deadline| deadline == clock.now));
            at.extend(fired.iter().map(|deadline| deadline - begin));
        }
        assert_eq!((at, clock.pending()), (expected, 0));
    }

    // The calendar: tasks that recur go back on the wheel after they ran.

    const DAILY: Task = 0;
    const TUESDAYS: Task = 1;
    const MONTHLY: Task = 2;

    /// The delay after which a task runs again.
    fn period(task: Task) -> u64 {
        DAY * [1, 7, 30][task as usize]
    }

    #[test]
    fn week_and_month_hand_down_to_the_hours_and_tasks_recur_until_they_are_removed() {
        // Tuesday the 11th, 10:00: day 190 of months of 30 days that began on a Monday.
        let midnight = 190 * DAY;
        assert_eq!((190 % 7, 190 % 30), (1, 10));
        let mut clock = ClockWheel::at(midnight + time(10, 0, 0));
        let mut handles = [DAILY, TUESDAYS, MONTHLY]
            .map(|task| clock.start(period(task) - time(1, 0, 0), task).unwrap()); // all at 9
        let rings = |clock: &ClockWheel, handles: [Handle; 3]| {
            handles.map(|handle| clock.deadlines.ring_of(handle).unwrap())
        };
        let (wednesday, tuesday, the_11th) = (WEEK.first + 2, WEEK.first + 1, MONTH.first + 10);
        assert_eq!(rings(&clock, handles), [wednesday, tuesday, the_11th]);

        let at_9 = HOURS.first + 9;
        let mut ran: [Vec<u64>; 3] = Default::default();
        for day in 1..=60 {
            quiet_until(&mut clock, midnight + day * DAY);
            let due = [day <= 40, day % 7 == 0, day % 30 == 0];
            for (task, due) in due.into_iter().enumerate() {
                let ring = clock.deadlines.ring_of(handles[task]);
                assert_eq!(ring == Some(at_9), due, "task {task} on day {day}");
            }
            let mut fired = Vec::new();
            clock.advance(time(9, 0, 0), &mut fired);
            for task in fired {
                ran[task as usize].push(day);
                handles[task as usize] = clock.start(period(task), task).unwrap();
            }
            if day == 40 {
                assert!(clock.stop(handles[DAILY as usize])); // removed
            }
        }
        let every = |days: usize, until| (days as u64..=until).step_by(days).collect::<Vec<_>>();
        assert_eq!(ran, [every(1, 40), every(7, 60), every(30, 60)]);
        assert_eq!(clock.pending(), 2);
    }
}
