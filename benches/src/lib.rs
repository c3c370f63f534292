//! What the benches share.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// The middle one of some values; between the two middle ones of an even number.
///
/// # Panics
/// When there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Processor time of this process, all threads.
pub fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor, cores and load, as far as the system tells.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(": ")).map_or("some processor", |(_, m)| m);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown");
    format!("{model}, {cores} cores, load {load} at the start")
}

/// The programs in the pages, run with the tests. Here, because this package is no default member
/// of the workspace and may depend on anything (one page wants the exporter's own listener), and
/// because the crates are packaged without the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/METRICS.md")]
    struct Metrics;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])], [2.0, 2.5]);
    }
}
