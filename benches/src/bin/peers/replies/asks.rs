//! Where a request waits for its reply: [`Asks`], which each contender is in its own way.

use std::time::Duration;

/// The time-out of each request: none comes to it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Where requests wait for replies, by number.
pub(crate) trait Asks: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;

    /// Inside a runtime with tokio's time.
    fn start() -> anyhow::Result<Self>;

    /// A reply to this request, which can be delivered from now on; `None` if none came in time.
    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send;

    /// The reply has come. False when nobody waits for it.
    fn deliver(&self, number: u64, reply: u64) -> bool;

    /// How many requests are still held.
    fn left(&self) -> usize;
}
