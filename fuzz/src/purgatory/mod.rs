//! The purgatory under a hand-turned clock beside the reference of
//! `crates/purgatory/tests/models/oracle`, which knows each check, callback, result and count:
//! operations of every kind are parked, and ended by events, watermarks, cancels, time and
//! shutdown, from outside and from inside checks and callbacks.

mod acts;
#[allow(dead_code, reason = "a test's, which does more steps")]
#[path = "../../../crates/purgatory/tests/models/oracle/mod.rs"]
mod oracle;

use self::{
    acts::{Setup, Step},
    oracle::Model,
};
use crate::records;

/// Bytes of a step; the widest takes 80.
pub const RECORD: usize = 80;

/// Decodes steps and does them until the bytes end.
///
/// # Panics
/// When the purgatory and the reference differ.
pub fn run(data: &[u8]) {
    let (setup, steps) = data.split_at(data.len().min(RECORD));
    for setup in records::<Setup>(setup, RECORD) {
        let mut model = Model::new(&setup.to_model());
        for step in records::<Step>(steps, RECORD) {
            model.step(&step.to_model());
        }
        model.end(&[]);
    }
}
