//! What several examples do alike: metrics and the live page are served, threads are told to end,
//! durations are read from the command line.

mod metrics;
mod stop;

use std::time::Duration;

pub use metrics::serve;
pub use stop::Stop;

/// Parses a duration with a unit, within bounds that are written the same way.
pub fn between(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |value| {
        let duration = |text| humantime::parse_duration(text).map_err(|error| error.to_string());
        let given = duration(value)?;
        match (duration(least)?..=duration(most)?).contains(&given) {
            true => Ok(given),
            false => Err(format!("must be from {least} to {most}")),
        }
    }
}
