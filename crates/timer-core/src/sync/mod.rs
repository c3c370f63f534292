//! Locks, atomics and thread-locals: `parking_lot` and `std`, or a model checker's under its `cfg`:
//! `loom` walks every interleaving of a few steps, `shuttle` a random choice of many.
//!
//! Everything in this project that they check takes these from here, so that the code that is
//! checked is the code that ships.

pub(crate) mod failpoints;
#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod real;

#[cfg(any(loom, shuttle))]
pub use self::model::*;
#[cfg(not(any(loom, shuttle)))]
pub use self::real::*;
