//! Request and reply: [`Replies`](crate::Replies), a map of those who wait that is right.
//!
//! # When
//!
//! Requests go out over a connection, each with a number, and what comes back is matched by it. By
//! hand that is [a map of channels and a timeout](super::by_hand#a-map-of-channels-and-a-timeout),
//! and most of its mistakes cannot be made here: register first, then send.
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
//! # In every order
//!
//! | What happens | What comes of it |
//! |---|---|
//! | the reply comes before anybody polls | it is there |
//! | it comes twice, late or unasked | [`deliver`](crate::Replies::deliver) hands it back |
//! | it never comes | [`Expired`](crate::WaitError::Expired) |
//! | the client goes | its key is free; a value not taken yet goes to the hook of [`expect_or`](crate::Replies::expect_or) |
//! | the connection goes | [`fail_all`](crate::Replies::fail_all): what was expected fails, what comes after does not |
//! | the same key once more | [`AlreadyExpected`](crate::AlreadyExpected) hands it back |
//!
//! # What can go wrong
//!
//! - **Sent first.** Between sending and [`expect`](crate::Replies::expect) a fast reply is
//!   unasked.
//! - **Numbers used again.** A late reply to the old request is taken for one to the new. Count up,
//!   or let the key name the connection, too.
//! - **A value that must not be lost** (a connection, a lease) wants the hook: between delivery and
//!   poll its client may go.
//! - **Several replies to one request** are a stream: a channel, with one wait for its end.
//!
//! Next: [values that only rise](super::watermarks).
