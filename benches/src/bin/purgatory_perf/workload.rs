//! The workload of Kafka's load test: exponential gaps between arrivals, log-normal latencies given
//! by their median and upper quartile, truncated to milliseconds.

use std::time::Duration;

use anyhow::Context;
use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, Exp, LogNormal};

/// The standard normal distribution's upper quartile.
const QUARTILE: f64 = 0.674_489_750_196_082;

/// The rate of arrivals, and the distribution of latencies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Requests per second; 0 for as many as the generator manages.
    pub(crate) rate: u64,
    pub(crate) p50_ms: u64,
    pub(crate) p75_ms: u64,
    pub(crate) timeout: Duration,
}

/// The samples of one run.
pub(crate) struct Samples {
    random: StdRng,
    gap_ns: Option<Exp<f64>>,
    latency_ms: LogNormal<f64>,
    arrival_ns: f64,
}

impl Workload {
    fn sigma(&self) -> f64 {
        ((self.p75_ms as f64).ln() - (self.p50_ms as f64).ln()) / QUARTILE
    }

    pub(crate) fn samples(&self, seed: u64) -> anyhow::Result<Samples> {
        // Exponential gaps make a Poisson process.
        let gap_ns = match self.rate {
            0 => None,
            rate => Some(Exp::new(rate as f64 / 1e9).context("the rate")?),
        };
        let latency_ms = LogNormal::new((self.p50_ms as f64).ln(), self.sigma())?;
        Ok(Samples {
            random: StdRng::seed_from_u64(seed),
            gap_ns,
            latency_ms,
            arrival_ns: 0.0,
        })
    }
}

impl Samples {
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

    const LOW: Workload = Workload {
        rate: 1000,
        p50_ms: 20,
        p75_ms: 60,
        timeout: Duration::from_millis(200),
    };

    #[test]
    fn samples_have_the_quartiles_and_the_rate() {
        let mut samples = LOW.samples(1).unwrap();
        // Latencies: the median and the upper quartile, within a tenth.
        let mut latencies: Vec<_> = (0..100_000)
            .map(|_| samples.latency().as_millis())
            .collect();
        latencies.sort_unstable();
        assert!(
            (18..=21).contains(&latencies[50_000]),
            "{}",
            latencies[50_000]
        );
        assert!(
            (57..=62).contains(&latencies[75_000]),
            "{}",
            latencies[75_000]
        );

        // Arrivals: a hundred thousand at a thousand per second take a hundred seconds.
        let last = (0..100_000).map(|_| samples.arrival_ns()).last().unwrap();
        assert!((98e9..102e9).contains(&(last as f64)), "{last}");
    }
}
