//! `TimingWheel` beside the reference of `crates/timer-core/tests/models/oracle.rs`, an ordered
//! set: inserts, cancels, new deadlines and advances anywhere in `u64`.

#[allow(dead_code, reason = "a test's, which counts its paths")]
#[path = "../../crates/timer-core/tests/models/oracle.rs"]
mod oracle;

use self::oracle::{Bounds, Model, Setup, Step};
use crate::records;

/// The number of bytes of an operation; the longest takes 17.
pub const RECORD: usize = 18;

/// Bounds on the checks: walking every link after each step would cost more than all the rest.
const BOUNDS: Bounds = Bounds {
    kept: 100,
    walked: 16,
};

/// Decodes operations and applies them until the bytes end.
///
/// # Panics
/// When the wheel and the reference disagree.
pub fn run(data: &[u8]) {
    let (setup, steps) = data.split_at(data.len().min(RECORD));
    for setup in records::<Setup>(setup, RECORD) {
        let mut model = Model::new(setup, BOUNDS);
        for step in records::<Step>(steps, RECORD) {
            model.step(&step);
        }
        model.advance_to_the_end();
        model.shut_down();
    }
}
