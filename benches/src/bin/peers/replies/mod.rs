//! The ways to match replies with requests, behind [`Asks`](asks::Asks): ours, and what one writes
//! by hand.

pub(crate) mod asks;
pub(crate) mod dashmap_oneshot;
pub(crate) mod ours;
