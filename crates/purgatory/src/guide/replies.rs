//! Request and reply: [`Replies`](crate::Replies), a map of those who wait that is right.
//!
//! # When
//!
//! Requests go out over a connection, each with a number, and what comes back is matched by it. By
//! hand that is [a map of channels and a timeout](super::by_hand#a-map-of-channels-and-a-timeout),
//! and most of its mistakes cannot be made here: register first, then send.
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
