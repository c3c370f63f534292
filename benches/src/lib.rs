//! What the benches share.

pub mod chart;
pub mod delays;
mod lazy_heap;

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use purgatory::{DelayedOperation, Outcome};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

pub use lazy_heap::LazyHeap;

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

/// An operation of 16 bytes: waits for a number in a cell to reach another.
pub struct Op {
    /// What rises.
    pub cell: &'static AtomicU64,
    /// What it waits for.
    pub required: u64,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.cell.load(Relaxed) >= self.required
    }

    fn on_complete(self, outcome: Outcome) {
        assert_eq!(outcome, Outcome::Completed);
    }
}

/// Processor time of this process, all threads.
pub fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A line of what the system tells of this process's memory, in KiB: `VmRSS:`, `VmHWM:`.
pub fn status_kib(line: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let rest = status.lines().find_map(|of| of.strip_prefix(line))?;
    rest.trim().strip_suffix(" kB")?.parse().ok()
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

/// A bar of so many steps, on the standard error; hidden unless that is a terminal.
pub fn progress(steps: usize) -> ProgressBar {
    let template = "[{elapsed_precise}] {bar:20} {pos}/{len} {wide_msg}";
    let style = ProgressStyle::with_template(template).expect("a right template");
    ProgressBar::new(steps as u64).with_style(style)
}

/// Writes what was measured to a file, if there is one; `-` is the standard output.
///
/// # Errors
/// When the file cannot be written.
#[expect(clippy::print_stdout, reason = "asked for")]
pub fn write_json(file: Option<&Path>, measured: &Value) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(measured)?;
    if file.as_os_str() == "-" {
        println!("{text}");
        return Ok(());
    }
    write(file, &text)
}

/// Refuses a file that cannot be written, before anything is measured for it. It may be empty then.
///
/// # Errors
/// When there is one and it cannot be opened; it is named.
pub fn check_writable(file: Option<&Path>) -> anyhow::Result<()> {
    let Some(file) = file.filter(|file| file.as_os_str() != "-") else { return Ok(()) };
    let opened = fs::File::options().create(true).append(true).open(file);
    opened.map(drop).with_context(|| format!("cannot write {}", file.display()))
}

/// Makes a folder for charts, unless it is there.
///
/// # Errors
/// When that does not go; it is named.
pub fn make_folder(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Writes a file.
///
/// # Errors
/// When that does not go; the file is named.
pub fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// How the command line calls it.
pub fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands => format!("{} {:03}", grouped(thousands), number % 1000),
    }
}

/// Three digits or so.
pub fn number(value: f64) -> String {
    match value {
        99.95.. => grouped(value.round() as u64),
        9.995.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
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

    #[test]
    fn a_file_that_cannot_be_written_is_refused() {
        let error = check_writable(Some(Path::new("/no/such/folder/x.svg"))).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /no/such/folder/x.svg"), "{error}");
        assert!(check_writable(None).is_ok() && check_writable(Some(Path::new("-"))).is_ok());
    }

    #[test]
    fn memory_is_told() {
        assert!(status_kib("VmRSS:").unwrap() > 0 && status_kib("VmNone:").is_none());
    }

    #[test]
    fn numbers_are_grouped() {
        let numbers = [10, 1_000, 86_400, 1_000_010].map(grouped);
        assert_eq!(numbers, ["10", "1 000", "86 400", "1 000 010"]);
        let numbers = [0.5, 9.99, 9.996, 12.34, 99.96, 123_456.7].map(number);
        assert_eq!(numbers, ["0.50", "9.99", "10.0", "12.3", "100", "123 457"]);
    }
}
