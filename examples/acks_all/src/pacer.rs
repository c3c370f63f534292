//! Spaces a producer's records out to a rate. Pure: it is told what time it is and says how long to
//! wait.

use std::time::Duration;

/// How much of the past a producer that was held up may make good at once.
const BURST: Duration = Duration::from_millis(20);

/// One producer's share of the rate.
#[derive(Debug)]
pub struct Pacer {
    interval: Option<Duration>,
    next: Duration,
}

impl Pacer {
    /// Producer `number` of `producers`, which together make `rate` records a second; without a
    /// rate, no pacing. The producers' turns are spread over the interval.
    pub fn new(rate: Option<u64>, number: u16, producers: u16) -> Self {
        let interval =
            rate.map(|rate| Duration::from_secs_f64(f64::from(producers) / rate.max(1) as f64));
        let next =
            interval.unwrap_or_default().mul_f64(f64::from(number) / f64::from(producers.max(1)));
        Self { interval, next }
    }

    /// Whether there is a rate to keep.
    pub fn is_paced(&self) -> bool {
        self.interval.is_some()
    }

    /// Nothing when the next record may go, which is then counted; else how long until it may.
    pub fn wait(&mut self, now: Duration) -> Option<Duration> {
        let interval = self.interval?;
        self.next = self.next.max(now.saturating_sub(BURST));
        if self.next > now {
            return Some(self.next - now);
        }
        self.next += interval;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept() {
        let mut pacer = Pacer::new(Some(1000), 1, 2);
        let (mut now, mut sent) = (Duration::ZERO, 0);
        while now < Duration::from_secs(1) {
            match pacer.wait(now) {
                None => sent += 1,
                Some(wait) => now += wait,
            }
        }
        assert_eq!(sent, 500, "its half of 1000 a second");
    }

    #[test]
    fn a_producer_held_up_makes_good_only_a_little() {
        let mut pacer = Pacer::new(Some(1000), 0, 1);
        let now = Duration::from_secs(100);
        let burst = std::iter::from_fn(|| pacer.wait(now).is_none().then_some(())).count();
        assert_eq!(burst, 21);
    }

    #[test]
    fn without_a_rate_there_is_no_wait() {
        let mut pacer = Pacer::new(None, 0, 1);
        assert!(!pacer.is_paced());
        assert!((0..1000).all(|_| pacer.wait(Duration::ZERO).is_none()));
    }
}
