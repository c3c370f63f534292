//! The workload of Kafka's load test: exponential gaps between arrivals, and log-normal latencies,
//! given by their median and upper quartile and truncated to milliseconds.

use std::time::Duration;

use anyhow::Context;
use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp, LogNormal};

/// The standard normal distribution's upper quartile.
const QUARTILE: f64 = 0.674_489_750_196_082;

/// A profile of latencies, which are log-normal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    p50_ms: f64,
    p75_ms: f64,
}

/// The profiles published in 2015, with a timeout of 200 ms.
pub(crate) const PROFILES: [Profile; 2] = [
    Profile {
        name: "low",
        p50_ms: 20.0,
        p75_ms: 60.0,
    },
    Profile {
        name: "high",
        p50_ms: 200.0,
        p75_ms: 400.0,
    },
];

/// The samples of one run.
pub(crate) struct Samples {
    random: StdRng,
    gap_ns: Option<Exp<f64>>,
    latency_ms: LogNormal<f64>,
    arrival_ns: f64,
}

impl Samples {
    /// Creates the samples of a profile at this many requests per second; with 0 there are no gaps.
    pub(crate) fn new(profile: Profile, rate: u64, seed: u64) -> anyhow::Result<Self> {
        // Exponential gaps make a Poisson process.
        let gap_ns = match rate {
            0 => None,
            rate => Some(Exp::new(rate as f64 / 1e9).context("the rate")?),
        };
        let sigma = (profile.p75_ms.ln() - profile.p50_ms.ln()) / QUARTILE;
        Ok(Samples {
            random: StdRng::seed_from_u64(seed),
            gap_ns,
            latency_ms: LogNormal::new(profile.p50_ms.ln(), sigma)?,
            arrival_ns: 0.0,
        })
    }

    /// Samples the arrival of the next request, in nanoseconds since the start; 0 when unthrottled.
    pub(crate) fn arrival_ns(&mut self) -> u64 {
        if let Some(gap_ns) = self.gap_ns {
            self.arrival_ns += gap_ns.sample(&mut self.random);
        }
        self.arrival_ns as u64
    }

    /// Samples the latency of the next request.
    pub(crate) fn latency(&mut self) -> Duration {
        Duration::from_millis(self.latency_ms.sample(&mut self.random) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_quartiles_and_the_rate() {
        let mut samples = Samples::new(PROFILES[0], 1000, 1).unwrap();
        // Latencies: the median and the upper quartile, within a tenth.
        let mut latencies: Vec<_> = (0..100_000)
            .map(|_| samples.latency().as_millis())
            .collect();
        latencies.sort_unstable();
        let quartiles = [latencies[50_000], latencies[75_000]];
        assert!((18..=21).contains(&quartiles[0]), "{quartiles:?}");
        assert!((57..=62).contains(&quartiles[1]), "{quartiles:?}");

        // Arrivals: a hundred thousand at a thousand per second take a hundred seconds.
        let last = (0..100_000).map(|_| samples.arrival_ns()).last().unwrap();
        assert!((98e9..102e9).contains(&(last as f64)), "{last}");
    }
}
