//! A live page of [purgatories](purgatory::Purgatory) and their [timers](timer_core::SystemTimer):
//! what is parked and for which keys, what ends a second and how, how long operations waited, the
//! oldest of them, what a timer holds and does. One self-contained file without outside assets,
//! fed by server-sent events.
//!
//! [`Live`] collects what to show. Then either
//!
//! - your own server serves two paths, with whatever library it has: [`Live::page`] as `text/html`,
//!   and below it `events`, a `text/event-stream` with a [`Live::event`] a few times a second; or
//! - with the feature `axum`, `Live::router` is both, to be merged or nested into your routes, and
//!   `Server` serves routes on a thread of its own in a program that has no server.
//!
//! ```
//! use std::{fmt::Display, time::Duration};
//! use purgatory::{Purgatory, when};
//! use purgatory_live::Live;
//!
//! let fetches = Purgatory::new("fetch")?;
//! let fetch = when(|| false, drop);
//! fetches.try_complete_else_watch(fetch, &["orders-0"], Duration::from_secs(30))?;
//!
//! let live = Live::new().purgatory_with(&fetches, Display::fmt); // its own timer comes along
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
//! The page only reads; nothing can be changed through it. But there is no authentication, and it
//! shows the keys (by their `Debug`, or as [`Live::purgatory_with`] is told): serve it on loopback,
//! or behind whatever guards your other debug pages. Keys are data: they get into the page as
//! text, never as markup, and [`Live::CONTENT_SECURITY_POLICY`] lets the browser run no script
//! but the page's own and ask no other host. No header allows other origins to read the events; a
//! server that must not be reached under another name either (DNS rebinding) refuses a `Host`
//! that it does not know.
//!
//! # Features
//!
//! - `axum` (off by default): `Live::router`, `Server`, and so axum and tokio.

#![cfg_attr(docsrs, feature(doc_cfg))] // docs.rs shows which feature an item is behind
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod event;
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
