//! Requests and their replies: [`Replies`](crate::Replies), a map from request to waiter.
//!
//! Requests go out over a connection, each with a number, and replies come back in any order,
//! twice, late or never. Expect the reply first, then send the request.
//!
//! ```
#![doc = include_str!("recipes/request_reply.rs")]
//!
//! // Its use:
//! use purgatory::{Purgatory, timer_core::ManualTimer};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
//!     let timer = ManualTimer::new(); // in a program: a SystemTimer
//!     let replies = Replies::from(Purgatory::builder("replies").timer(&timer).build()?);
//!     let connection = Connection { replies, numbers: AtomicU64::new(0) };
//!     let replied = |number, text: &str| connection.replied(number, text.to_owned());
//!     let ask = || connection.ask(|_| Ok(()));
//!     let network = async {
//!         replied(1, "to the second").unwrap();
//!         replied(0, "to the first").unwrap();
//!         assert!(replied(0, "once more").is_err());
//!     };
//!     let (first, second, ()) = tokio::join!(ask(), ask(), network);
//!     assert_eq!((first?, second?), ("to the first".to_owned(), "to the second".to_owned()));
//!
//!     let early = |number| replied(number, "early").map_err(io::Error::other);
//!     assert_eq!(connection.ask(early).await?, "early");
//!     let pass = async { timer.advance(Duration::from_secs(30)) };
//!     let expired = tokio::join!(ask(), pass).0.unwrap_err();
//!     assert_eq!(expired.to_string(), "the time ran out");
//!     assert!(replied(3, "late").is_err());
//!     Ok(())
//! }
//! ```
//!
//! When the connection goes, [`fail_all`](crate::Replies::fail_all) ends the replies expected so
//! far; a [`shutdown`](crate::Purgatory::shutdown) refuses those expected later.
//!
//! # Pitfalls
//!
//! - **Sent before it is expected.** A fast reply then finds no waiter.
//! - **Full, shut down, or expected already.** [`expect`](crate::Replies::expect) hands the key
//!   back in an error. Send nothing then.
//! - **Numbers used again.** A late reply is taken for one to the new request. Never reuse a
//!   number, or make the connection a part of the key.
//! - **A value that must not be lost.** A value delivered after its client has left is dropped.
//!   Return it through a [guard's `Drop`](super::recipes#leases).
