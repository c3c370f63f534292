//! What the broker counts, and the summary it prints at the end.

use std::fmt;

use parking_lot::Mutex;
use purgatory::Stats;

use crate::batch::CODECS;

pub(crate) type Counters = Mutex<Summary>;

/// What a broker did from its start to its shutdown.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Records appended to the leader's logs.
    pub records: u64,
    /// Record batches appended, by codec: none, gzip, snappy, lz4, zstd.
    pub batches: [u64; CODECS.len()],
    /// Record batches of idempotent producers that came again and were not appended again.
    pub duplicates: u64,
    /// Connections closed because of a malformed, oversized or unserved request.
    pub rejected: u64,
    /// Connections closed at once because too many were open.
    pub refused: u64,
    /// How what was parked ended, by the purgatory it was in.
    pub parked: [(&'static str, Stats); 6],
    /// Acknowledged partitions whose records an in-sync follower did not have: 0, or it is a bug.
    pub acked_before_replicated: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches =
            CODECS.iter().zip(self.batches).map(|(name, count)| format!("{name} {count}"));
        let batches = batches.collect::<Vec<_>>().join(", ");
        writeln!(f, "appended: {} records; batches: {batches}", self.records)?;
        for (name, stats) in &self.parked {
            let Stats { completed, expired, cancelled, ended_at_once, .. } = stats;
            writeln!(
                f,
                "parked {name}: {completed} completed, {expired} expired, {cancelled} cancelled; \
                 {ended_at_once} ended at once"
            )?;
        }
        writeln!(f, "duplicate batches: {}", self.duplicates)?;
        writeln!(f, "rejected connections: {}; refused: {}", self.rejected, self.refused)?;
        write!(f, "acked before replicated: {}", self.acked_before_replicated)
    }
}
