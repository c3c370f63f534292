//! Tasks of one thread, as a runtime runs them: a task is polled when it is new, and again only
//! after its waker was called. The thread sleeps while no task is ready.
//!
//! `FuturesUnordered` keeps the list of woken tasks. Unlike tasks that tokio spawns, its tasks may
//! borrow the contender. With a counted reference in each task, two threads would write to one
//! count. Each task is one allocation, for every contender.

use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt};

/// The tasks of one thread.
pub(super) type Tasks<F> = FuturesUnordered<F>;

/// Polls the tasks that are new or were woken, until none is left. Ready if one of them ended.
pub(super) fn poll_woken<F: Future>(tasks: &mut Tasks<F>, context: &mut Context<'_>) -> Poll<()> {
    let mut ended = Poll::Pending;
    while let Poll::Ready(Some(_)) = tasks.poll_next_unpin(context) {
        ended = Poll::Ready(());
    }
    ended
}

/// Runs the ready tasks, without waiting.
pub(super) async fn run_woken<F: Future>(tasks: &mut Tasks<F>) {
    std::future::poll_fn(|context| {
        _ = poll_woken(tasks, context);
        Poll::Ready(())
    })
    .await;
}

/// Runs tasks until at most `pending_max` have not ended. Sleeps while none is ready.
pub(super) async fn run_until<F: Future>(tasks: &mut Tasks<F>, pending_max: usize) {
    run_woken(tasks).await;
    while tasks.len() > pending_max {
        _ = tasks.next().await;
    }
}
