//! The purgatory under a hand-turned clock beside the reference of
//! `crates/purgatory/tests/models/oracle`, which knows each check, callback, result and count:
//! operations of every kind are parked, and ended by events, watermarks, cancels, time and
//! shutdown, from outside and from inside checks and callbacks.

mod bytes;
#[allow(dead_code, reason = "a test's, which does more steps")]
#[path = "../../../crates/purgatory/tests/models/oracle/mod.rs"]
mod oracle;

use self::{bytes::Bytes, oracle::Model};

/// Bytes of a step.
pub const RECORD: usize = bytes::RECORD;

/// Decodes steps and does them until the bytes end.
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
