//! `Replies`.

use std::{future::poll_fn, pin::Pin, task::Poll};

use purgatory::Replies;

use super::asks::{Asks, TIMEOUT};

pub(crate) struct Ours(Replies<u64, u64>);

impl Asks for Ours {
    const NAME: &'static str = crate::results::OURS;

    fn start() -> anyhow::Result<Self> {
        Ok(Ours(Replies::new("replies")?))
    }

    fn ask(&self, number: u64) -> impl Future<Output = Option<u64>> + Send {
        let mut reply = self.0.expect(number, TIMEOUT).ok();
        poll_fn(move |context| match &mut reply {
            Some(reply) => Pin::new(reply).poll(context).map(Result::ok),
            None => Poll::Ready(None), // a number that is expected already
        })
    }

    fn deliver(&self, number: u64, reply: u64) -> bool {
        self.0.deliver(&number, reply).is_ok()
    }

    fn left(&self) -> usize {
        self.0.expected()
    }
}
