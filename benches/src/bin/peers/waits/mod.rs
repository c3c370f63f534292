//! The ways to wait under keys that are compared, each used as its own documentation advises,
//! behind [`Waits`].
//!
//! They come in two forms, and each is compared with its own: a *callback* is called by whoever
//! raises the event, a *future* is awaited by who waits. Nobody leaves anything behind of a request
//! that is completed or timed out. The peers' maps hash with foldhash, which is kind to them, and
//! dashmap has the shards it has by default.
//!
//! A peer is one file. It joins the run by its type in [`waits`].

mod actor;
mod dashmap_callback;
mod dashmap_oneshot;
mod notify;
mod ours;
mod wait;

pub(crate) use self::{
    actor::Mailbox, dashmap_callback::Callbacks, dashmap_oneshot::Oneshots, notify::Notifies,
    wait::Waits,
};

/// What a row measures with every one of them, by form.
macro_rules! waits {
    ($measure:ident) => {{
        use purgatory::{BoxedOperation, Purgatory};
        use $crate::{contender::*, request::Request, waits::*};
        [
            ("callback", contenders!($measure, Peer: Purgatory<u64, Request>, Callbacks)),
            ("future", contenders!($measure, Peer:
                Purgatory<u64, BoxedOperation>, Oneshots, Notifies, Mailbox)),
        ]
    }};
}
pub(crate) use waits;
