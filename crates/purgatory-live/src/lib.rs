//! A live page of [purgatories](purgatory::Purgatory) and their [timers](timer_core::SystemTimer).
//!
//! It shows how many operations are parked and under which keys, how they end, how long they waited,
//! and what each timer does. The page is one file, fed by server-sent events.
//!
//! [`Live`] lists what to show. There are two ways to serve it:
//!
//! - your own server, with any library, serves two paths: [`Live::page`] as `text/html`, and below
//!   it `events`, a `text/event-stream` with a [`Live::event`] a few times per second; or
//! - with the feature `axum`, `Live::router` serves both, merged or nested into your routes. A
//!   program without a server can run `Server`, which serves routes on a thread of its own.
//!
//! ```
//! use std::{fmt::Display, time::Duration};
//! use purgatory::{Purgatory, timer_core::Timer, when};
//! use purgatory_live::Live;
//!
//! let fetches = Purgatory::new("fetch")?;
//! let fetch = when(|| false, drop);
//! fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_secs(30))?;
//!
//! let live = Live::new().purgatory_with(&fetches, Display::fmt).timer(&Timer::shared()?);
//! let page = Live::page(); // GET /live
//! // GET /live/events: one of these every 250 ms.
//! let event = format!("data: {}\n\n", live.event());
//!
//! assert!(page.starts_with("<!doctype html>"));
//! assert!(event.contains(r#""busiest":[{"key":"orders-0","waiters":1}]"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Security
//!
//! The page only reads; nothing can be changed through it. But it has no authentication, and it
//! shows the keys (by their `Debug`, or as [`Live::purgatory_with`] writes them): serve it on
//! loopback, or behind the guard of your other debug pages. Keys are data: they are inserted into
//! the page as text, never as markup, and [`Live::CONTENT_SECURITY_POLICY`] lets the browser run no
//! script but the page's own and ask no other host. No header allows other origins to read the
//! events. To exclude DNS rebinding as well, have the server refuse every `Host` that it does not
//! know.
//!
//! # Features
//!
//! - `axum` (off by default): `Live::router` and `Server`; depends on axum and tokio.

#![cfg_attr(docsrs, feature(doc_cfg))] // docs.rs shows which feature an item is behind
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod event;
mod history;
mod live;
#[cfg(feature = "axum")]
mod router;
#[cfg(feature = "axum")]
mod server;
mod text;

pub use live::Live;
#[cfg(feature = "axum")]
pub use server::Server;

/// The programs in the README, as they are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
