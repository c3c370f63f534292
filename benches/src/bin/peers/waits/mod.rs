//! The ways to wait under keys that are compared, each used as its own documentation advises,
//! behind [`Waits`].
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
pub(crate) mod wait;

use self::wait::Waits;
use crate::named::Named;

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
