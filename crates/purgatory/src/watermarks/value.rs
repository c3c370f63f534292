//! The values that [`Watermarks`](crate::Watermarks) can keep: [`WatermarkValue`].

/// A value of [`Watermarks`](crate::Watermarks): a number, or a type of your own around one.
///
/// The purgatory keeps and compares *ranks*, the places of values in their order: 0 is the rank of
/// the lowest value. Unsigned integers are their own rank. The rank of a signed integer is its
/// distance from the lowest, so that `i64::MIN` has rank 0 and `0` has rank 2⁶³.
///
/// A type of your own maps itself to a rank and back:
///
/// ```
/// use std::time::Duration;
/// use purgatory::{WatermarkValue, Watermarks};
///
/// /// A place in the write-ahead log.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Lsn(u64);
///
/// impl WatermarkValue for Lsn {
///     fn to_rank(self) -> u64 {
///         self.0
///     }
///     fn from_rank(rank: u64) -> Self {
///         Lsn(rank)
///     }
/// }
///
/// let flushed: Watermarks<(), Lsn> = Watermarks::new("flushed")?.with_values();
/// let commit = flushed.wait_for(&(), Lsn(0x16_b374), Duration::from_secs(1));
/// flushed.advance(&(), Lsn(0x16_c000))?;
/// assert_eq!(commit.wait_blocking()?, Lsn(0x16_c000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Promises of an implementation
/// - A higher value has a higher rank, and equal values have equal ranks.
/// - `from_rank` gives back the value of each rank that `to_rank` returned. Debug builds panic if
///   it does not.
/// - Rank 0 counts as reached by a key that was never advanced, so a wait for it is over at once. A
///   value to wait for, such as the first stage of a job, needs a higher rank.
///
/// A mapping that breaks a promise makes waits end early, late or with another value. The methods
/// run with nothing locked, on the threads that call `Watermarks` or poll a wait's future. A panic
/// there reaches the caller.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value of `Watermarks`",
    label = "`Watermarks` keep integers of up to 64 bits, and types that map to their rank",
    note = "a type of your own becomes one by the two methods of `WatermarkValue`"
)]
pub trait WatermarkValue: Copy + Send + 'static {
    /// Returns the place of this value in the order of all values of its type.
    fn to_rank(self) -> u64;

    /// Returns the value with this rank.
    fn from_rank(rank: u64) -> Self;
}

/// Returns the value's rank. Debug builds check that it converts back.
pub(crate) fn rank<V: WatermarkValue>(value: V) -> u64 {
    let rank = value.to_rank();
    debug_assert_eq!(
        V::from_rank(rank).to_rank(),
        rank,
        "a `WatermarkValue` does not come back from its rank"
    );
    rank
}

/// Unsigned integers, which are their own rank.
macro_rules! unsigned {
    ($($integer:ty),+) => {$(
        impl WatermarkValue for $integer {
            fn to_rank(self) -> u64 {
                self as u64
            }

            fn from_rank(rank: u64) -> Self {
                rank as Self
            }
        }
    )+};
}

/// Signed integers. With the sign bit flipped, they sort as unsigned ones.
macro_rules! signed {
    ($($integer:ty as $unsigned:ty),+) => {$(
        impl WatermarkValue for $integer {
            fn to_rank(self) -> u64 {
                u64::from((self ^ Self::MIN) as $unsigned)
            }

            fn from_rank(rank: u64) -> Self {
                rank as Self ^ Self::MIN
            }
        }
    )+};
}

unsigned!(u32, u64, usize);
signed!(i32 as u32, i64 as u64);
