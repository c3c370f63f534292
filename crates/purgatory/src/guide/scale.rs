//! Scale: choosing keys, sizing, settings, and many nodes.
//!
//! One timer for a process, a purgatory with a bound for each kind of request:
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{BoxedOperation, Purgatory, timer_core::{SystemTimer, TickLength}};
//!
//! let tick = TickLength::new(Duration::from_millis(10)).expect("legal");
//! let timer = SystemTimer::builder().tick(tick).workers(2).name("requests").build()?;
//! let polls: Purgatory<u64, BoxedOperation> =
//!     Purgatory::builder("polls").timer(&timer).max_parked(200_000).build()?;
//! assert!(polls.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Choosing keys
//!
//! - **As fine as the change**: the partition, not the topic. An event checks every operation under
//!   its key.
//! - **No finer than the signalling thread knows**: it must not search for keys.
//! - **Several keys** when several changes can make the condition true; [the
//!   connection](super::recipes#a-connections-scope) as one more.
//! - **Long strings as `Arc<str>`**: keys are cloned.
//!
//! # Sizing
//!
//! **parked = rate × mean wait**; memory = parked × bytes; CPU = rate × ns. The bytes and ns of one
//! operation, without its payload, checks and callback, are in `docs/BENCHMARKS.md`, rows
//! `bytes-per-parked` and `park-complete` (`cargo run --release -p purgatory-benches --bin peers --
//! --only park --only bytes`). Suppose 200 bytes and 500 ns:
//!
//! | Supposed | rate | mean wait | parked | memory | CPU of one core |
//! |---|---|---|---|---|---|
//! | acks=all | 100 000/s | 5 ms | 500 | 100 kB | 5 % |
//! | long poll | 20 000/s | 500 ms | 10 000 | 2 MB | 1 % |
//!
//! Set [`max_parked`](crate::Builder::max_parked) on a server: if events stop, a purgatory holds
//! rate × timeout. [`max_weight`](crate::Builder::max_weight) bounds what differs in size. With
//! 128 shards (2 processors) an empty one takes some 80 KB: do not make one for each partition.
//!
//! # Settings
//!
//! | Setting | Change it when |
//! |---|---|
//! | tick | timeouts are a few ms: shorter. Wake-ups matter: longer |
//! | [`shards`](crate::Builder::shards) | few operations on many processors: fewer |
//! | workers, [`executor`](crate::Builder::executor) | `purgatory_callbacks_waiting` grows |
//!
//! # Many nodes
//!
//! A request is parked where its connection is. Route clients to the node that has the data, as
//! Kafka does: then no event travels. Or send events over a bus that keeps what is published while
//! a node reconnects (example `external_events`); on arrival change the state, then signal
//! the key. A node that dies loses its waits; clients ask again elsewhere.
