//! What can be wrong with the books, counted by kind, with the first case of each kept as an
//! example.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// A kind of thing that must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An operation's ending was reported again.
    EndedTwice,
    /// An operation never ended.
    NeverEnded,
    /// An operation expired before its deadline.
    ExpiredEarly,
    /// A record was acknowledged while an in-sync replica's log did not reach it.
    AcknowledgedTooSoon,
    /// An acknowledged record is not in the log of an in-sync replica.
    MissingFromLog,
    /// A record is in a log more than once.
    TwiceInLog,
    /// A log holds a record that no producer sent.
    UnknownRecord,
    /// A follower's log has another record than the leader's at the same offset.
    LogsDiffer,
    /// The purgatory refused an operation.
    Refused,
    /// Operations were still parked long after the last deadline.
    StillParked,
    /// A thread of the example panicked.
    Panicked,
}

impl Fault {
    const ALL: [Fault; 11] = [
        Fault::EndedTwice,
        Fault::NeverEnded,
        Fault::ExpiredEarly,
        Fault::AcknowledgedTooSoon,
        Fault::MissingFromLog,
        Fault::TwiceInLog,
        Fault::UnknownRecord,
        Fault::LogsDiffer,
        Fault::Refused,
        Fault::StillParked,
        Fault::Panicked,
    ];

    /// Whether each case is a lost operation or record.
    pub fn is_loss(self) -> bool {
        matches!(self, Fault::NeverEnded | Fault::MissingFromLog)
    }

    fn says(self) -> &'static str {
        match self {
            Fault::EndedTwice => "operations that ended more than once",
            Fault::NeverEnded => "operations that never ended",
            Fault::ExpiredEarly => "operations that expired before their deadline",
            Fault::AcknowledgedTooSoon => "records acknowledged before every in-sync log had them",
            Fault::MissingFromLog => "acknowledged records missing from an in-sync log",
            Fault::TwiceInLog => "records that are in a log more than once",
            Fault::UnknownRecord => "records in a log that nobody sent",
            Fault::LogsDiffer => {
                "offsets that hold another record in a follower's log than in the leader's"
            }
            Fault::Refused => "operations refused by the purgatory",
            Fault::StillParked => "operations still parked long after the last deadline",
            Fault::Panicked => "threads that panicked",
        }
    }
}

/// A fault that was met: how often, and the first case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub fault: Fault,
    /// How many cases.
    pub count: u64,
    /// What the first case was.
    pub first: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (the first: {})", self.fault.says(), self.count, self.first)
    }
}

/// The faults met so far; any thread may note one.
#[derive(Debug, Default)]
pub struct Faults {
    counts: [AtomicU64; Fault::ALL.len()],
    first: Mutex<[Option<String>; Fault::ALL.len()]>,
}

impl Faults {
    /// Counts a case; `case` says what happened, and is asked only for the first.
    pub fn note(&self, fault: Fault, case: impl FnOnce() -> String) {
        self.note_many(fault, 1, case);
    }

    /// Counts `count` cases at once.
    pub fn note_many(&self, fault: Fault, count: u64, case: impl FnOnce() -> String) {
        let kind = fault as usize;
        if count > 0 && self.counts[kind].fetch_add(count, Ordering::Relaxed) == 0 {
            self.first.lock()[kind] = Some(case());
        }
    }

    /// What has been met, by kind.
    pub fn problems(&self) -> Vec<Problem> {
        let first = self.first.lock();
        let mut problems = Vec::new();
        for fault in Fault::ALL {
            let count = self.counts[fault as usize].load(Ordering::Relaxed);
            if count > 0 {
                let first = first[fault as usize].clone().unwrap_or_default();
                problems.push(Problem { fault, count, first });
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_counted_and_its_first_case_kept() {
        let faults = Faults::default();
        assert!(faults.problems().is_empty());
        faults.note(Fault::Panicked, || "late".to_owned());
        faults.note(Fault::EndedTwice, || "record 1-2".to_owned());
        faults.note(Fault::EndedTwice, || "record 1-3".to_owned());
        faults.note_many(Fault::Refused, 0, || unreachable!("there was no case"));
        let said: Vec<String> = faults.problems().iter().map(Problem::to_string).collect();
        assert_eq!(
            said,
            [
                "operations that ended more than once: 2 (the first: record 1-2)",
                "threads that panicked: 1 (the first: late)"
            ]
        );
    }

    #[test]
    fn every_kind_has_its_own_place() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
        }
    }
}
