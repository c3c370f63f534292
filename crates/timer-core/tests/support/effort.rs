//! The length of the long tests: `TEST_EFFORT=N` makes them N times as long. Each test names its
//! own base count.
//!
//! For the tests of any crate beside this one: `#[path =
//! "../../../timer-core/tests/support/effort.rs"]`.

/// Returns the number in an environment variable, if it is set.
pub(crate) fn number(name: &str) -> Option<u64> {
    let value = std::env::var_os(name)?;
    let number = value.to_str().and_then(|value| value.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{name}={} is no number", value.to_string_lossy())))
}

/// Returns `base` times `TEST_EFFORT`.
pub(crate) fn effort(base: u64) -> u64 {
    let times = number("TEST_EFFORT").unwrap_or(1);
    assert!(times > 0, "TEST_EFFORT=0 would test nothing");
    base.checked_mul(times)
        .unwrap_or_else(|| panic!("TEST_EFFORT={times} is too much"))
}
