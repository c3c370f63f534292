//! The purgatory on a manual timer beside the reference of `crates/purgatory/tests/models/oracle`,
//! which predicts each check, callback, result and count. Operations are parked, and ended by signals,
//! cancels, time and shutdown, from outside and from inside checks and callbacks.

mod bytes;
#[allow(dead_code, reason = "a test's, which does more steps")]
#[path = "../../../crates/purgatory/tests/models/oracle/mod.rs"]
mod oracle;

use self::{bytes::Bytes, oracle::Model};

/// The number of bytes of a step.
pub const RECORD: usize = bytes::RECORD;

/// Decodes steps and applies them until the bytes end.
///
/// # Panics
/// When the purgatory and the reference differ.
pub fn run(data: &[u8]) {
    let mut records = data.chunks(RECORD).map(Bytes::new);
    let Some(mut setup) = records.next() else {
        return;
    };
    let mut model = Model::new(&setup.setup());
    for mut record in records {
        model.step(&record.step());
    }
    model.end(&[]);
}
