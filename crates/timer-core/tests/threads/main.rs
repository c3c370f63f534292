//! The timer on real threads, and inside runtimes.

mod hyper;
mod on_tokio;
mod runtimes;
mod system;
