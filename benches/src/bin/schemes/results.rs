//! What was measured: for each scheme and number of pending timers one value a round and measure.

use purgatory_benches::median;
use serde_json::{Value, json};

use crate::{
    algorithms::{Contender, scheme::Claim},
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
    slots: Vec<(&'static str, usize)>,
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
pub(crate) struct Stopped {
    pub(crate) scheme: &'static str,
    pub(crate) measure: Measure,
    pub(crate) pending: usize,
    why: String,
}

impl Point {
    fn is(&self, scheme: &str, measure: Measure, pending: usize) -> bool {
        (self.scheme, self.measure, self.pending) == (scheme, measure, pending)
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }

    /// Half of what lies between the least and the most, as a share of the median.
    pub(crate) fn spread(&self) -> f64 {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (most - least) / 2.0 / self.median()
    }
}

impl Stopped {
    /// As it stands below the table.
    pub(crate) fn line(&self) -> String {
        let Stopped { scheme, measure, why, .. } = self;
        match measure {
            Measure::Start => format!("{scheme} stopped: {why}"),
            _ => format!("{scheme}, {} stopped: {why}", measure.name()),
        }
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
        match self.slots.iter_mut().find(|(name, _)| *name == scheme) {
            Some((_, slots)) => *slots = costs.slots.max(*slots),
            None => self.slots.push((scheme, costs.slots)),
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

    /// What was given up among so many.
    pub(crate) fn stops(&self, pending: usize) -> impl Iterator<Item = &Stopped> {
        self.stops.iter().filter(move |stopped| stopped.pending == pending)
    }

    /// True when it was given up, so that more need not be tried.
    pub(crate) fn is_stopped(&self, scheme: &str, measure: Measure) -> bool {
        let of = |stopped: &Stopped| stopped.scheme == scheme;
        self.stops.iter().any(|s| of(s) && [Measure::Start, measure].contains(&s.measure))
    }

    /// The lists that a scheme kept.
    pub(crate) fn slots(&self, scheme: &str) -> Option<usize> {
        self.slots.iter().find(|(name, _)| *name == scheme).map(|&(_, slots)| slots)
    }

    pub(crate) fn json(&self, contender: &Contender) -> Value {
        let points = self.points.iter().filter(|point| point.scheme == contender.name);
        let points: Vec<_> = points
            .map(|point| {
                json!({
                    "measure": point.measure.name(), "pending": point.pending, "unit": "ns",
                    "median": point.median(), "rounds": point.values,
                })
            })
            .collect();
        let stops = self.stops.iter().filter(|stopped| stopped.scheme == contender.name);
        let stops: Vec<_> = stops
            .map(|stopped| {
                let (measure, pending) = (stopped.measure.name(), stopped.pending);
                json!({ "measure": measure, "pending": pending, "why": stopped.why })
            })
            .collect();
        let claims = Measure::ALL.map(|measure| (measure.name(), measure.claim(contender.claim)));
        json!({
            "scheme": contender.name, "idea": contender.idea, "points": points, "stopped": stops,
            "claims": claims.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            "slots": self.slots(contender.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(start: f64, expire: Cost) -> Costs {
        let (stop, tick) = (Cost::Ns(2.0), Cost::Ns(3.0));
        Costs { start: Cost::Ns(start), stop, tick, expire, slots: 8 }
    }

    #[test]
    fn rounds_become_medians_and_what_was_stopped_stays_stopped() {
        let mut results = Results::default();
        for start in [30.0, 10.0, 20.0] {
            results.add("wheel", 10, &costs(start, Cost::Ns(1.0)));
        }
        let point = results.get("wheel", Measure::Start, 10).unwrap();
        assert_eq!((point.median(), point.spread()), (20.0, 0.5));
        assert!(!results.is_stopped("wheel", Measure::Expire));
        results.add("wheel", 100, &costs(40.0, Cost::Stopped("1 s".into())));
        assert_eq!(results.series("wheel", Measure::Start), [(10.0, 20.0), (100.0, 40.0)]);
        assert!(results.is_stopped("wheel", Measure::Expire));
        assert!(!results.is_stopped("wheel", Measure::Start));
        let lines: Vec<_> = results.stops(100).map(Stopped::line).collect();
        assert_eq!(lines, ["wheel, expire stopped: 1 s"]);
    }

    #[test]
    fn a_scheme_that_was_not_filled_is_stopped_as_a_whole() {
        let mut results = Results::default();
        let start = Cost::Stopped("too slow".into());
        let [stop, tick, expire] = [Cost::Skipped, Cost::Skipped, Cost::Skipped];
        results.add("list", 10, &Costs { start, stop, tick, expire, slots: 1 });
        assert!(Measure::ALL.iter().all(|&measure| results.is_stopped("list", measure)));
        let lines: Vec<_> = results.stops(10).map(Stopped::line).collect();
        assert_eq!(lines, ["list stopped: too slow"]);
    }
}
