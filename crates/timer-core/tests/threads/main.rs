//! The timer on real threads, and inside runtimes.

mod hyper;
#[cfg(feature = "keyed")]
mod keyed;
mod on_tokio;
mod runtimes;
mod system;
