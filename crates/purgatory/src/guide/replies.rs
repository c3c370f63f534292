//! Requests and their replies: [`Replies`](crate::Replies), a map from request to waiter.
//!
//! Use it when requests go out over a connection, each with a number, and replies come back in any
//! order. Expect the reply first, then send the request.
//!
//! ```
//! use std::{sync::atomic::{AtomicU64, Ordering::Relaxed}, time::Duration};
//! use purgatory::{Purgatory, Replies, WaitError, timer_core::ManualTimer};
//!
//! struct Connection { replies: Replies<u64, String>, numbers: AtomicU64 }
//!
//! impl Connection {
//!     async fn ask(&self, send: impl FnOnce(u64)) -> Result<String, WaitError> {
//!         let number = self.numbers.fetch_add(1, Relaxed);
//!         let reply = self.replies.expect(number, Duration::from_secs(30)).expect("a new number");
//!         send(number); // registered, so even a reply from in here is found
//!         reply.await
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let timer = ManualTimer::new(); // in a program: a SystemTimer
//!     let replies = Replies::from(Purgatory::builder("replies").timer(&timer).build()?);
//!     let connection = Connection { replies: replies.clone(), numbers: AtomicU64::new(0) };
//!     let (first, second) = (connection.ask(|_| ()), connection.ask(|_| ()));
//!     let network = async {
//!         replies.deliver(&1, "to the second".to_owned()).unwrap();
//!         replies.deliver(&0, "to the first".to_owned()).unwrap();
//!         assert!(replies.deliver(&0, "once more".to_owned()).is_err());
//!     };
//!     let (first, second, ()) = tokio::join!(first, second, network);
//!     assert_eq!((first?, second?), ("to the first".to_owned(), "to the second".to_owned()));
//!
//!     let early = connection.ask(|number| replies.deliver(&number, "early".to_owned()).unwrap());
//!     assert_eq!(early.await?, "early");
//!     let pass = async { timer.advance(Duration::from_secs(30)) };
//!     assert_eq!(tokio::join!(connection.ask(|_| ()), pass).0, Err(WaitError::Expired));
//!     assert!(replies.deliver(&3, "late".to_owned()).is_err());
//!     Ok(())
//! }
//! ```
//!
//! A reply that comes late, twice or unasked is handed back by
//! [`deliver`](crate::Replies::deliver). When the connection goes,
//! [`fail_all`](crate::Replies::fail_all) ends the replies expected so far.
//!
//! # Pitfalls
//!
//! - **Sent before it is expected.** A fast reply then finds no waiter.
//! - **Numbers used again.** A late reply to the old request is taken for one to the new. Count up,
//!   or make the connection a part of the key.
//! - **A value that must not be lost**, such as a lease. Its client may go between delivery and
//!   poll: give [`expect_or`](crate::Replies::expect_or) a hook.
//! - **Several replies to one request.** Use a channel, and one wait for its end.
//!
//! Next: [values that only rise](super::watermarks).
