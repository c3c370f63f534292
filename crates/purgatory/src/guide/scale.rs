//! Scale: choosing keys, sizing, settings, and many nodes.
//!
//! Have one timer for a process, and a purgatory with a name and a bound for each kind of request:
//!
//! ```
//! use std::time::Duration;
//! use purgatory::{BoxedOperation, Purgatory, timer_core::{SystemTimer, TickLength}};
//!
//! let tick = TickLength::new(Duration::from_millis(10))?;
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
//! - **No finer than the event knows**: the thread that raises it must not search for keys.
//! - **Several keys** when several changes can make the condition true.
//! - **The connection as one more key**, for [`cancel_for_key`](crate::Purgatory::cancel_for_key)
//!   when the client goes.
//! - **Long strings as `Arc<str>`**: keys are cloned.
//!
//! # Sizing
//!
//! **parked = rate × mean wait**; memory = parked × bytes; CPU = rate × ns. Measured by `cargo run
//! --release -p purgatory-benches --bin peers -- --only park --only bytes`, for requests of 16
//! bytes; your checks and callbacks come on top:
//!
//! | | bytes, 1 key | 3 keys | ns, 1 key | 3 keys |
//! |---|---|---|---|---|
//! | callback | 88 | 135 | 181 | 402 |
//! | future, without its task | 344 | 391 | 360 | 595 |
//!
//! | Calculated from it | rate | mean wait | parked | memory | CPU |
//! |---|---|---|---|---|---|
//! | acks=all | 100 000/s | 5 ms | 500 | 44 kB | 1.8 % |
//! | long poll, three keys | 20 000/s | 500 ms | 10 000 | 1.4 MB | 0.8 % |
//! | one of 20 nodes for a million long polls, futures, three keys | 2 500/s | 20 s | 50 000 | 20 MB | 0.1 % |
//!
//! Set [`max_parked`](crate::Builder::max_parked) on a server: if events stop, a purgatory holds
//! rate × timeout. Leave room for the clients of a node that is away. Where operations keep data of
//! very different size, bound that by [`max_weight`](crate::Builder::max_weight).
//!
//! With 128 rooms (2 processors) an empty purgatory takes some 100 KB, so do not make one for each
//! partition. After a peak, memory is given back in
//! pages of 64 operations; one that stays holds its page.
//!
//! # Settings
//!
//! | Setting | Change it when |
//! |---|---|
//! | tick | timeouts are a few ms: shorter. Timeouts are seconds and wake-ups matter: longer |
//! | [`rooms`](crate::Builder::rooms) | few operations on many processors: fewer. Far more threads than processors: more |
//! | workers, [`executor`](crate::Builder::executor) | `purgatory_callbacks_waiting` grows |
//!
//! # Many nodes
//!
//! A request is parked where its connection is.
//!
//! - **Route clients to the node that has the data**, as Kafka does. Then no event travels.
//! - **Or send events over a bus.** On arrival change the state, then raise the event. The bus must
//!   keep what is published while a node reconnects (example `external_events`).
//! - **A node that dies loses its waits**; clients ask again elsewhere.
//!
//! Next: [operating](super::operating).
