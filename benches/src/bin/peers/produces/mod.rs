//! The ways for produces with acks=all to wait until the high watermark of their partition has
//! reached their offset, behind [`Produces`]. They come in two forms, as in
//! [`waits`](crate::waits): a callback is called by the thread that raises the high watermark, a
//! future is awaited.
//!
//! A peer is one file. It joins the run by an arm in [`Contender::visit`].

mod btree_map;
mod dashmap_oneshot;
mod deque;
mod locked;
mod ours;
mod ours_by_key;
pub(crate) mod produce;

use self::produce::Produces;
use crate::named::Named;

/// Every [`Produces`], by name and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    OursCallback,
    WatermarksCallback,
    BTreeMap,
    Deque,
    OursFuture,
    WatermarksFuture,
    DashMapOneshot,
}

/// Something to do with produces of any type.
pub(crate) trait Visit {
    type Output;

    fn visit<P: Produces>(&self) -> Self::Output;
}

impl Contender {
    /// The forms: how measures are called that compare within one, and who has it.
    pub(crate) const FORMS: [(&str, &[Contender]); 2] = [
        (
            "callback",
            &[
                Contender::OursCallback,
                Contender::WatermarksCallback,
                Contender::BTreeMap,
                Contender::Deque,
            ],
        ),
        (
            "future",
            &[Contender::OursFuture, Contender::WatermarksFuture, Contender::DashMapOneshot],
        ),
    ];

    pub(crate) fn visit<V: Visit>(self, visitor: &V) -> V::Output {
        match self {
            Contender::OursCallback => visitor.visit::<ours::Callback>(),
            Contender::WatermarksCallback => visitor.visit::<ours_by_key::Callback>(),
            Contender::BTreeMap => visitor.visit::<locked::Locked<btree_map::ByOffset>>(),
            Contender::Deque => visitor.visit::<locked::Locked<deque::InOrder>>(),
            Contender::OursFuture => visitor.visit::<ours::Awaited>(),
            Contender::WatermarksFuture => visitor.visit::<ours_by_key::Awaited>(),
            Contender::DashMapOneshot => visitor.visit::<dashmap_oneshot::Oneshots>(),
        }
    }
}

impl Named for Contender {
    fn name(self) -> &'static str {
        struct Name;
        impl Visit for Name {
            type Output = &'static str;

            fn visit<P: Produces>(&self) -> &'static str {
                P::NAME
            }
        }
        self.visit(&Name)
    }
}
