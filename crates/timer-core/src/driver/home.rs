//! [`Home`]: the process in which a timer's threads run. A child of `fork` has none of them.

use std::process;

/// The process of a timer's threads, or of its runtime's. A check costs a system call, so only
/// calls that are about to wait for those threads, or to wake them, make one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Home {
    /// `None` as long as there is no thread: a manual timer goes on in every process.
    process: Option<u32>,
}

impl Home {
    /// Returns the calling process.
    pub(crate) fn here() -> Self {
        Home {
            process: Some(process::id()),
        }
    }

    /// Returns true in a child of `fork`, which has none of the threads.
    pub(crate) fn is_elsewhere(self) -> bool {
        self.process.is_some_and(|id| id != process::id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_elsewhere_in_another_process_alone() {
        let other = Home {
            process: Some(process::id() ^ 1),
        };
        assert!(other.is_elsewhere());
        assert!(!Home::here().is_elsewhere() && !Home::default().is_elsewhere());
    }
}
