//! A long-poll gateway: a request waits in a purgatory until an event from outside completes it, or
//! until its timeout fires. Here the event is a POST to this gateway, or to another gateway that
//! shares its NATS server.
//!
//! | Where | What |
//! |---|---|
//! | [`args`] | the command line |
//! | [`orders`] | the state, its waits, and the one rule: first the state changes, then its key is signalled |
//! | [`nats`] | the events as a JetStream stream, followed without a gap |
//! | [`routes`] | HTTP in front |

pub mod args;
pub mod nats;
pub mod orders;
pub mod routes;
