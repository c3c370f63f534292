//! Helpers that the benches share: statistics and Markdown tables.

pub mod delays;

use rustix::time::{ClockId, clock_gettime};

/// Returns the median, or for an even number of values the mean of the middle two.
///
/// # Panics
/// When there is no value.
pub fn median(values: &[f64]) -> f64 {
    // NaN sorts last.
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Returns the processor time of this process, over all threads.
pub fn process_cpu_ns() -> u64 {
    cpu_ns(ClockId::ProcessCPUTime)
}

/// Returns the processor time of this thread.
pub fn thread_cpu_ns() -> u64 {
    cpu_ns(ClockId::ThreadCPUTime)
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Formats a Markdown table, as in `docs/BENCHMARKS.md`: the head, then the rows.
pub fn markdown<S: AsRef<str>>(head: &[S], rows: &[Vec<String>]) -> String {
    fn line<S: AsRef<str>>(cells: &[S]) -> String {
        let cells: Vec<_> = cells.iter().map(AsRef::as_ref).collect();
        format!("| {} |\n", cells.join(" | "))
    }
    let rule = format!("|{}\n", "---|".repeat(head.len()));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{rows}", line(head))
}

/// Formats a number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{} {:03}", grouped(thousands), number % 1000),
    }
}

/// Formats a number to about three digits.
pub fn number(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        99.95.. => grouped(value.round() as u64),
        9.995.. => format!("{value:.1}"),
        0.995.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The programs in the pages, run with the tests.
///
/// They are tested here because this package is not a default member of the workspace and may
/// depend on anything (one page needs an exporter), and the crates are packaged without the pages.
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
    fn numbers_are_grouped_and_even_medians_averaged() {
        assert_eq!(
            [median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])],
            [2.0, 2.5]
        );
        let numbers = [10, 1_000, 86_400, 1_000_010].map(grouped);
        assert_eq!(numbers, ["10", "1 000", "86 400", "1 000 010"]);
        let numbers = [0.0, 0.5, 9.99, 9.996, 12.34, 99.96, 123_456.7].map(number);
        assert_eq!(
            numbers,
            ["0", "0.500", "9.99", "10.0", "12.3", "100", "123 457"]
        );
    }
}
