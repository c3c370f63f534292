//! The ways to wait under keys that are compared, each used as its own documentation advises, behind
//! [`Waits`].
//!
//! They come in two forms, and each is compared with its own: a *callback* is called by whoever
//! raises the event, a *future* is awaited by who waits. Nobody leaves anything behind of a request
//! that is completed or timed out. The peers' maps hash with foldhash, which is kind to them, and
//! dashmap has the shards it has by default.
//!
//! A peer is one file. It joins the run by an arm in [`Contender::visit`].

mod actor;
mod dashmap_callback;
mod dashmap_oneshot;
mod notify;
mod ours;

use std::time::Duration;

use timer_core::SystemClock;

use crate::{request::Request, rows::Named};

/// Where requests wait under keys until an event finds them ready.
pub(crate) trait Waits: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;
    /// How often an event looks at a request that is not ready.
    const LOOKS: u64 = 1;

    /// Inside a runtime with tokio's time, which may be given tasks.
    fn start() -> anyhow::Result<Self>;

    /// The same, with deadlines told by this clock, where that can be chosen.
    fn start_on(_: SystemClock) -> anyhow::Result<Self> {
        Self::start()
    }

    /// Parks a request that is not ready: it waits once the future was polled, and is told that it
    /// is over before the future ends. In the callback form the future says nothing: it is ready
    /// as soon as the request waits.
    fn park<const K: usize>(
        &self,
        keys: [u64; K],
        timeout: Duration,
        request: Request,
    ) -> impl Future<Output = ()> + Send;

    /// What requests under this key wait for may have come true.
    fn event(&self, key: u64);

    /// Returns once everything asked for so far has been done: at once, unless messages queue.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// How many requests and keys are still held, where the peer can tell.
    fn left(&self) -> Option<usize> {
        None
    }
}

/// Every [`Waits`], by name and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    OursCallback,
    DashMapCallback,
    OursFuture,
    DashMapOneshot,
    Notify,
    Actor,
}

/// Something to do with waits of any type.
pub(crate) trait Visit {
    type Output;

    fn visit<W: Waits>(&self) -> Self::Output;
}

impl Contender {
    /// The forms: how measures are called that compare within one, and who has it.
    pub(crate) const FORMS: [(&str, &[Contender]); 2] = [
        ("callback", &[Contender::OursCallback, Contender::DashMapCallback]),
        (
            "future",
            &[
                Contender::OursFuture,
                Contender::DashMapOneshot,
                Contender::Notify,
                Contender::Actor,
            ],
        ),
    ];

    pub(crate) fn visit<V: Visit>(self, visitor: &V) -> V::Output {
        match self {
            Contender::OursCallback => visitor.visit::<ours::Callback>(),
            Contender::DashMapCallback => visitor.visit::<dashmap_callback::Callbacks>(),
            Contender::OursFuture => visitor.visit::<ours::Awaited>(),
            Contender::DashMapOneshot => visitor.visit::<dashmap_oneshot::Oneshots>(),
            Contender::Notify => visitor.visit::<notify::Notifies>(),
            Contender::Actor => visitor.visit::<actor::Mailbox>(),
        }
    }
}

impl Named for Contender {
    fn name(self) -> &'static str {
        struct Name;
        impl Visit for Name {
            type Output = &'static str;

            fn visit<W: Waits>(&self) -> &'static str {
                W::NAME
            }
        }
        self.visit(&Name)
    }
}
