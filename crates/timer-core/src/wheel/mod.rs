//! The wheel and what it is made of. Pure: no clock, no lock, no thread, and nothing of the other
//! folders.

pub(crate) mod arena;
pub(crate) mod delay_queue;
pub(crate) mod floors;
pub(crate) mod geometry;
pub(crate) mod late;
pub(crate) mod pages;
pub(crate) mod search;
pub(crate) mod steps;
pub(crate) mod task_list;
pub(crate) mod tick;
pub(crate) mod timing_wheel;
