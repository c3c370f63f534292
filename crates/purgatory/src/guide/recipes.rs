//! Recipes: requests that servers hold, as programs.
//!
#![doc = include_str!("links.md")]
#![doc = include_str!("recipes.md")]

/// Declares a module for each program, which shows its file; its doc test runs it.
macro_rules! programs {
    ($($name:ident, $file:literal;)*) => {$(
        #[doc = concat!("The program `", $file, "`.\n\n```\n", include_str!($file), "\n```")]
        pub mod $name {}
    )*};
}

programs! {
    acks_all, "recipes/acks_all.rs";
    alter_partition, "recipes/alter_partition.rs";
    connection, "recipes/connection.rs";
    connection_pool, "recipes/connection_pool.rs";
    cores, "recipes/cores.rs";
    deadline, "recipes/deadline.rs";
    debounce, "recipes/debounce.rs";
    drain, "recipes/drain.rs";
    epochs, "recipes/epochs.rs";
    forgotten, "recipes/forgotten.rs";
    held_pulls, "recipes/held_pulls.rs";
    joint_consensus, "recipes/joint_consensus.rs";
    leases, "recipes/leases.rs";
    load_once, "recipes/load_once.rs";
    lock_waits, "recipes/lock_waits.rs";
    long_poll, "recipes/long_poll.rs";
    one_thread, "recipes/one_thread.rs";
    queue, "recipes/queue.rs";
    quorum_write, "recipes/quorum_write.rs";
    read_index, "recipes/read_index.rs";
    request_reply, "recipes/request_reply.rs";
    retry, "recipes/retry.rs";
    sessions, "recipes/sessions.rs";
    signal_after_unlock, "recipes/signal_after_unlock.rs";
    single_flight, "recipes/single_flight.rs";
    stored_poll, "recipes/stored_poll.rs";
    throttle, "recipes/throttle.rs";
}

/// The program `recipes/paused_clock.rs`, which needs the feature `tokio`.
#[cfg_attr(
    feature = "tokio",
    doc = concat!("\n```\n", include_str!("recipes/paused_clock.rs"), "\n```")
)]
pub mod paused_clock {}
