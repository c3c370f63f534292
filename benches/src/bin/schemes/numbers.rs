//! How times are written: with their unit.

/// Nanoseconds in three digits or so.
pub(crate) fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ..999.5 => (ns, "ns"),
        ..999_500.0 => (ns / 1e3, "µs"),
        ..999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    match value {
        ..9.995 => format!("{value:.2} {unit}"),
        ..99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [0.5, 9.99, 12.34, 999.4, 999.6, 99_960.0, 1.5e9].map(time);
        let expected = ["0.50 ns", "9.99 ns", "12.3 ns", "999 ns", "1.00 µs", "100 µs", "1.50 s"];
        assert_eq!(times, expected);
    }
}
