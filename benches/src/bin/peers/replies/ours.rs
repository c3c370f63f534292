//! `Replies`.

use purgatory::{AlreadyExpected, Replies};

use super::asks::{Asks, TIMEOUT};

pub(crate) struct Ours(Replies<u64, u64>);

impl Asks for Ours {
    const NAME: &'static str = crate::results::OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Ours(Replies::new("replies")?))
    }

    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let reply = self.0.expect(number, TIMEOUT);
        async { reply.map_err(|AlreadyExpected { .. }| ()).ok()?.await.ok() }
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0.deliver(&number, reply).is_ok()
    }

    fn left(&self) -> usize {
        self.0.expected()
    }
}
