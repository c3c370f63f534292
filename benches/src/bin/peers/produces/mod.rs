//! The ways for produces with acks=all to wait until the high watermark of their partition has
//! reached their offset, behind [`Produces`]. They come in two forms, as in
//! [`waits`](crate::waits): a callback is called by the thread that raises the high watermark, a
//! future is awaited.
//!
//! A peer joins the run by its type in [`produces`].

mod dashmap_oneshot;
mod locked;
mod ours;
mod produce;

pub(crate) use self::{
    dashmap_oneshot::Oneshots,
    locked::{ByOffset, InOrder, Locked},
    ours::OursWatermarks,
    produce::{PARTITIONS, Partition, Produce, Produces},
};

/// What a row measures with every one of them, by form.
macro_rules! produces {
    ($measure:ident) => {{
        use purgatory::{BoxedOperation, Purgatory};
        use $crate::{contender::*, produces::*};
        [
            ("callback", contenders!($measure, Peer:
                Purgatory<u64, Produce>, OursWatermarks<false>, Locked<ByOffset>, Locked<InOrder>)),
            ("future", contenders!($measure, Peer:
                Purgatory<u64, BoxedOperation>, OursWatermarks<true>, Oneshots)),
        ]
    }};
}
pub(crate) use produces;
