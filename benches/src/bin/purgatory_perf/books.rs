//! What became of the requests.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use timer_core::{Clock, SystemClock};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Expired,
}

/// Times of the requests that ended, by ending: each has a lock of its own, so that the threads
/// that complete and those that expire do not meet.
pub(crate) struct Books {
    pub(crate) clock: SystemClock,
    pages: [Mutex<Page>; 2],
}

/// The requests of one ending, in nanoseconds.
pub(crate) struct Page {
    /// How long they waited.
    pub(crate) waited: Histogram<u64>,
    /// How long after they should have they ended.
    pub(crate) late: Histogram<u64>,
}

/// The longest time that is told from longer ones.
const HOUR_NS: u64 = 3_600_000_000_000;

/// A request: when it began, and how long it may take.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) books: &'static Books,
    pub(crate) began_ns: u64,
    pub(crate) latency: Duration,
    pub(crate) timeout: Duration,
}

impl Books {
    /// Books for the rest of the process: the requests refer to them.
    pub(crate) fn leaked() -> &'static Books {
        let histogram = || Histogram::new_with_max(HOUR_NS, 3).expect("these are legal");
        let page = || Mutex::new(Page { waited: histogram(), late: histogram() });
        Box::leak(Box::new(Books { clock: SystemClock::new(), pages: [page(), page()] }))
    }

    /// Looks at the requests of one ending.
    pub(crate) fn read<R>(&self, ending: Ending, look: impl FnOnce(&Page) -> R) -> R {
        look(&self.pages[ending as usize].lock())
    }

    pub(crate) fn ended(&self) -> u64 {
        self.pages.iter().map(|page| page.lock().late.len()).sum()
    }
}

impl Request {
    /// When its time runs out.
    pub(crate) fn expires_ns(&self) -> u64 {
        let timeout_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        self.began_ns.saturating_add(timeout_ns)
    }

    pub(crate) fn end(&self, ending: Ending) {
        let waited = self.books.clock.now_ns().saturating_sub(self.began_ns);
        let due = match ending {
            Ending::Completed => self.latency,
            Ending::Expired => self.timeout,
        };
        let mut page = self.books.pages[ending as usize].lock();
        page.waited.saturating_record(waited);
        page.late.saturating_record(waited.saturating_sub(due.as_nanos() as u64));
    }
}
