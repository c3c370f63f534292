//! Giving a peak back: a collection that was made for many more items than are left shrinks, in
//! few steps.

/// What a collection of some capacity shrinks to when `len` items are left. One for more than
/// `kept` shrinks when more than three quarters of it are empty, and keeps as much again as is in
/// use.
#[inline]
pub(super) fn shrinks_to(capacity: usize, len: usize, kept: usize) -> Option<usize> {
    (capacity > kept && len < capacity / 4).then_some(len * 2)
}

#[cfg(test)]
mod tests {
    use super::shrinks_to;

    #[test]
    fn what_is_three_quarters_empty_shrinks_to_twice_what_is_in_it() {
        for (capacity, len, to) in [
            (200, 51, None),
            (200, 50, None), // three quarters are empty, not more
            (200, 49, Some(98)),
            (200, 0, Some(0)),
            (101, 0, Some(0)),
            (100, 0, None), // so much is kept
            (0, 0, None),
        ] {
            assert_eq!(shrinks_to(capacity, len, 100), to, "{len} of {capacity}");
        }
    }

    #[test]
    fn a_peak_goes_in_steps_that_halve_it() {
        let (mut capacity, mut steps) = (100_000, 0);
        for len in (0..100_000).rev() {
            if let Some(to) = shrinks_to(capacity, len, 100) {
                assert!((capacity / 2 - 4..=capacity / 2).contains(&to), "{capacity} to {to}");
                (capacity, steps) = (to, steps + 1);
            }
        }
        assert_eq!((capacity <= 100, steps), (true, 10)); // 2^10 is what it went down by
    }
}
