//! Parsers for clap's `value_parser` that name their bounds when they refuse a value. A negative
//! number reaches them only with the command's `allow_negative_numbers`, a negative duration only
//! with the argument's `allow_hyphen_values`.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

use clap::Parser;

/// Makes a parser of durations with a unit, within bounds in the same format.
pub fn between(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |value| {
        let expected = format!("expected a duration from {least} to {most}, like 250us or 1m 30s");
        // The program's first run finds a malformed bound.
        let least = humantime::parse_duration(least).map_err(|error| error.to_string())?;
        let most = humantime::parse_duration(most).map_err(|error| error.to_string())?;
        match humantime::parse_duration(value) {
            Ok(duration) if (least..=most).contains(&duration) => Ok(duration),
            Ok(_) => Err(expected),
            Err(error) => Err(format!("{expected}: {error}")),
        }
    }
}

/// Makes a parser of numbers within bounds.
pub fn number<T>(bounds: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |value| match value.parse() {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ => {
            let least = bounds.start();
            let most = bounds.end();
            Err(format!("expected a number from {least} to {most}"))
        }
    }
}

/// Asserts that a program's arguments are parsed as they should be at their bounds. For tests.
///
/// Each line is a flag with a value, such as `--rate=7`, and a text; the argument is also tried as
/// two words, `--rate 7`. An empty text stands for a value that is accepted. Otherwise the value
/// must be refused, with exit code 2 and a message that contains the text and the value.
///
/// # Panics
/// When a line does not hold.
pub fn assert_parsed<A: Parser>(lines: &[(&str, &str)]) {
    for (argument, named) in lines {
        match argument.split_once('=') {
            Some((flag, value)) => {
                assert_answer::<A>(&[argument], value, named);
                assert_answer::<A>(&[flag, value], value, named);
            }
            None => assert_answer::<A>(&[argument], argument, named),
        }
    }
}

/// Asserts that arguments are accepted if `named` is empty, or refused by a message that contains
/// `named` and the value.
fn assert_answer<A: Parser>(arguments: &[&str], value: &str, named: &str) {
    let parsed = A::try_parse_from([&["program"], arguments].concat());
    let Err(refused) = parsed else {
        assert!(named.is_empty(), "{arguments:?}: accepted");
        return;
    };
    let message = refused.to_string();
    assert!(!named.is_empty(), "{arguments:?}: {message}");
    assert_eq!(refused.exit_code(), 2, "{arguments:?}");
    assert!(message.contains(named), "{arguments:?}: {message}");
    assert!(message.contains(value), "{arguments:?}: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(allow_negative_numbers = true)]
    struct Args {
        #[arg(long, default_value = "1s")]
        #[arg(allow_hyphen_values = true, value_parser = between("1ms", "1h"))]
        wait: Duration,
        #[arg(long, default_value = "1", value_parser = number(1..=u64::MAX))]
        count: u64,
    }

    #[test]
    fn values_beyond_the_bounds_are_refused_with_them() {
        assert_parsed::<Args>(&[
            ("--wait=1ms", ""),
            ("--wait=60m", ""),
            ("--wait=0", "from 1ms to 1h"),
            ("--wait=1ns", "from 1ms to 1h"),
            ("--wait=999999ns", "from 1ms to 1h"),
            ("--wait=1h 1ns", "from 1ms to 1h"),
            ("--wait=-1s", "from 1ms to 1h"),
            ("--wait=soon", "from 1ms to 1h"),
            ("--wait=18446744073709551615s", "from 1ms to 1h"),
            ("--wait=18446744073709551616s", "from 1ms to 1h"),
            ("--wait=584554530872 years", "from 1ms to 1h"),
            ("--count=1", ""),
            ("--count=18446744073709551615", ""),
            ("--count=0", "from 1 to 18446744073709551615"),
            (
                "--count=18446744073709551616",
                "from 1 to 18446744073709551615",
            ),
            ("--count=-1", "from 1 to 18446744073709551615"),
            ("--count=1.5", "from 1 to 18446744073709551615"),
            ("--count=", "from 1 to 18446744073709551615"),
        ]);
        assert_eq!(between("1ms", "1h")("1m 1s"), Ok(Duration::from_secs(61)));
    }
}
