//! What was measured: for each scheme and number of pending timers one value a round and measure.

use purgatory_benches::median;

use crate::{
    algorithms::scheme::Claim,
    trial::{Cost, Costs},
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Start,
    Stop,
    Tick,
    Expire,
}

impl Measure {
    pub(crate) const ALL: [Measure; 4] =
        [Measure::Start, Measure::Stop, Measure::Tick, Measure::Expire];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Start => "start",
            Measure::Stop => "stop",
            Measure::Tick => "tick",
            Measure::Expire => "expire",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Measure::Start => "one timer more",
            Measure::Stop => "a random pending timer",
            Measure::Tick => "one tick, nothing due",
            Measure::Expire => "all ticks until the last has fired, a timer",
        }
    }

    pub(crate) fn claim(self, claim: Claim) -> &'static str {
        match self {
            Measure::Start => claim.start,
            Measure::Stop => claim.stop,
            Measure::Tick => claim.tick,
            Measure::Expire => claim.expire,
        }
    }

    fn of(self, costs: &Costs) -> &Cost {
        match self {
            Measure::Start => &costs.start,
            Measure::Stop => &costs.stop,
            Measure::Tick => &costs.tick,
            Measure::Expire => &costs.expire,
        }
    }
}

/// Everything measured in one run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    points: Vec<Point>,
    stops: Vec<Stopped>,
}

/// One scheme and measure among so many pending timers: nanoseconds, one value a round.
#[derive(Debug)]
pub(crate) struct Point {
    scheme: &'static str,
    measure: Measure,
    pending: usize,
    values: Vec<f64>,
}

/// Where a scheme was given up: `Start` for as a whole.
#[derive(Debug)]
struct Stopped {
    scheme: &'static str,
    measure: Measure,
    pending: usize,
    why: String,
}

impl Point {
    fn is(&self, scheme: &str, measure: Measure, pending: usize) -> bool {
        (self.scheme, self.measure, self.pending) == (scheme, measure, pending)
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }
}

impl Results {
    /// Adds one trial's costs.
    pub(crate) fn add(&mut self, scheme: &'static str, pending: usize, costs: &Costs) {
        for measure in Measure::ALL {
            match measure.of(costs) {
                Cost::Ns(ns) => self.point(scheme, measure, pending).values.push(*ns),
                Cost::Stopped(why) => {
                    let why = why.clone();
                    self.stops.push(Stopped { scheme, measure, pending, why });
                }
                Cost::Skipped => {}
            }
        }
    }

    fn point(&mut self, scheme: &'static str, measure: Measure, pending: usize) -> &mut Point {
        let at = self.points.iter().position(|point| point.is(scheme, measure, pending));
        let at = at.unwrap_or_else(|| {
            self.points.push(Point { scheme, measure, pending, values: Vec::new() });
            self.points.len() - 1
        });
        &mut self.points[at]
    }

    pub(crate) fn get(&self, scheme: &str, measure: Measure, pending: usize) -> Option<&Point> {
        self.points.iter().find(|point| point.is(scheme, measure, pending))
    }

    /// Medians by the number of pending timers.
    pub(crate) fn series(&self, scheme: &str, measure: Measure) -> Vec<(f64, f64)> {
        let points = self.points.iter().filter(|p| p.scheme == scheme && p.measure == measure);
        points.map(|point| (point.pending as f64, point.median())).collect()
    }

    /// What was given up, in words; a scheme as a whole with the first measure.
    pub(crate) fn stops(&self, measure: Measure) -> impl Iterator<Item = String> {
        let stops = self.stops.iter().filter(move |stopped| stopped.measure == measure);
        stops.map(|Stopped { scheme, pending, why, .. }| {
            format!("{scheme} stopped with {pending} pending: {why}")
        })
    }

    /// True when it was given up, so that more need not be tried.
    pub(crate) fn is_stopped(&self, scheme: &str, measure: Measure) -> bool {
        let of = |stopped: &Stopped| stopped.scheme == scheme;
        self.stops.iter().any(|s| of(s) && [Measure::Start, measure].contains(&s.measure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(start: f64, expire: Cost) -> Costs {
        let (stop, tick) = (Cost::Ns(2.0), Cost::Ns(3.0));
        Costs { start: Cost::Ns(start), stop, tick, expire }
    }

    #[test]
    fn rounds_become_medians_and_what_was_stopped_stays_stopped() {
        let mut results = Results::default();
        for start in [30.0, 10.0, 20.0] {
            results.add("wheel", 10, &costs(start, Cost::Ns(1.0)));
        }
        let point = results.get("wheel", Measure::Start, 10).unwrap();
        assert_eq!(point.median(), 20.0);
        assert!(!results.is_stopped("wheel", Measure::Expire));
        results.add("wheel", 100, &costs(40.0, Cost::Stopped("1 s".into())));
        assert_eq!(results.series("wheel", Measure::Start), [(10.0, 20.0), (100.0, 40.0)]);
        assert!(results.is_stopped("wheel", Measure::Expire));
        assert!(!results.is_stopped("wheel", Measure::Start));
        let lines: Vec<_> = results.stops(Measure::Expire).collect();
        assert_eq!(lines, ["wheel stopped with 100 pending: 1 s"]);
    }

    #[test]
    fn a_scheme_that_was_not_filled_is_stopped_as_a_whole() {
        let mut results = Results::default();
        let start = Cost::Stopped("too slow".into());
        let [stop, tick, expire] = [Cost::Skipped, Cost::Skipped, Cost::Skipped];
        results.add("list", 10, &Costs { start, stop, tick, expire });
        assert!(Measure::ALL.iter().all(|&measure| results.is_stopped("list", measure)));
        let lines: Vec<_> = results.stops(Measure::Start).collect();
        assert_eq!(lines, ["list stopped with 10 pending: too slow"]);
    }
}
