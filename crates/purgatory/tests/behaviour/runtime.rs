//! Callbacks inside a tokio runtime (feature `tokio`).
#![cfg(all(feature = "tokio", not(loom)))]

use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::Instant,
};

use crate::support::*;

fn runtime() -> (Runtime, Handle) {
    let runtime = Builder::new_current_thread().build().unwrap();
    let executor = runtime.handle().clone();
    (runtime, executor)
}

/// Parks an operation whose callback spawns a task that reports the outcome.
fn park_spawning(
    purgatory: &Waiting,
    told: &UnboundedSender<Outcome>,
    timeout: impl Into<Timeout>,
) -> Probe {
    let probe = Probe::new();
    let told = told.clone();
    let spawn = move |outcome| drop(tokio::spawn(async move { told.send(outcome) }));
    purgatory.park(probe.operation().then(spawn), &["a"], timeout);
    probe
}

/// The events and the timer's advance come from threads that are in no runtime.
#[test]
fn callbacks_of_completions_and_expiries_may_spawn() {
    let (runtime, executor) = runtime();
    let (timer, purgatory) =
        by_hand_with(|builder| builder.executor(executor).callbacks_on_executor());
    let (told, mut outcomes) = unbounded_channel();
    park_spawning(&purgatory, &told, MS);
    let completes = park_spawning(&purgatory, &told, NEVER);
    on_another_thread(|| {
        assert!(Handle::try_current().is_err());
        timer.advance(MS);
        completes.make_ready();
        assert_eq!(purgatory.check_and_complete(&"a"), 1);
    });
    assert_eq!(purgatory.stats().callbacks_waiting, 2);
    let both = runtime.block_on(async { [outcomes.recv().await, outcomes.recv().await] });
    assert_eq!(both, [Some(Expired), Some(Completed)]);
    assert_eq!(purgatory.stats().panics, 0);
}

#[test]
fn a_runtime_that_is_gone_loses_no_callback() {
    let (gone, executor) = runtime();
    let (timer, purgatory) = by_hand_with(|builder| builder.executor(executor));
    let (told, mut outcomes) = unbounded_channel();
    let queued = park_spawning(&purgatory, &told, MS);
    timer.advance(MS);
    assert!(!queued.ended());
    drop(gone);
    assert_eq!(queued.endings(), [Expired]);
    let refused = park_spawning(&purgatory, &told, MS);
    timer.advance(MS);
    assert_eq!(refused.endings(), [Expired]);
    assert_eq!(purgatory.stats().panics, 0); // nothing was spawned, and nothing panicked
    assert!(outcomes.try_recv().is_err());
}

/// On a timer that is a task of the runtime, an hour passes at once, in order, and callbacks of
/// expired operations may spawn. A blocking wait in a task is refused: the reaper, a task of the
/// same thread, could not end it.
#[tokio::test(start_paused = true)]
async fn under_a_paused_clock_operations_expire_in_time() {
    let timer = system_timer(|builder| builder.tokio(Handle::current()));
    let purgatory: Waiting = Purgatory::on(&timer, "paused").unwrap();
    let (told, mut outcomes) = unbounded_channel();
    let began = Instant::now();
    let passed = |at| began.elapsed() >= at && began.elapsed() <= at + 2 * MS;
    let last = park_spawning(&purgatory, &told, MS * 3_600_000);
    let first = park_spawning(&purgatory, &told, MS * 500);
    let completes = park_spawning(&purgatory, &told, MS * 1000);
    assert_eq!(outcomes.recv().await, Some(Expired));
    assert!(first.ended() && passed(500 * MS));
    completes.make_ready();
    assert_eq!(purgatory.check_and_complete(&"a"), 1);
    assert_eq!(outcomes.recv().await, Some(Completed));
    assert_eq!(outcomes.recv().await, Some(Expired));
    assert!(last.ended() && passed(3_600_000 * MS));
    assert_eq!((purgatory.len(), purgatory.stats().panics), (0, 0));

    let replies = Replies::<u32, u32>::on(&timer, "r").unwrap();
    let (told, ended) = tokio::sync::oneshot::channel();
    let blocks = move || {
        told.send(replies.expect(1, MS).unwrap().wait_blocking())
            .unwrap()
    };
    timer.schedule(MS, blocks).unwrap();
    assert_eq!(ended.await.unwrap(), Err(WaitError::MustNotBlock));
}

/// A loop over ready waits takes part in the runtime's cooperative budget: its task yields, so that
/// futures joined with it get their turn.
#[tokio::test]
async fn loop_over_ready_waits_yields_to_its_neighbours() {
    let replies: Replies<u32, u32> = Replies::on(&ManualTimer::new(), "r").unwrap();
    let answered = async {
        for number in 0..10_000 {
            let reply = replies.expect(number, NEVER).unwrap();
            replies.deliver(&number, number).unwrap();
            assert_eq!(reply.await, Ok(number));
        }
    };
    assert!(turns_of_a_neighbour_of(answered).await > 10);
    let permits = Permits::on(&ManualTimer::new(), "p", 1).unwrap();
    let free = async {
        for _ in 0..10_000 {
            assert!(permits.acquire(1, NEVER).await.is_ok());
        }
    };
    assert!(turns_of_a_neighbour_of(free).await > 10);
    let mut stream = replies.expect_many(0, usize::MAX, NEVER).unwrap();
    for number in 0..10_000 {
        replies.deliver(&0, number).unwrap();
    }
    let taken = async {
        for number in 0..10_000 {
            assert_eq!(stream.next_reply().await, Some(Ok(number)));
        }
    };
    assert!(turns_of_a_neighbour_of(taken).await > 10);
}

/// `try_take` and a poll with a no-op waker need no budget: they find an answer even when it is
/// used up. A task that blocks, though it should not, cannot yield: it waits as any thread does.
#[tokio::test]
async fn try_take_needs_no_budget() {
    let replies: Replies<u32, u32> = Replies::on(&ManualTimer::new(), "r").unwrap();
    let permits = Permits::on(&ManualTimer::new(), "p", 1).unwrap();
    for number in 0..1000 {
        let answered = || {
            let reply = replies.expect(number, NEVER).unwrap();
            replies.deliver(&number, number).unwrap();
            reply
        };
        assert_eq!(answered().try_take().ok(), Some(Ok(number)));
        assert_eq!(over(&mut answered()), Ok(number));
        assert_eq!(answered().wait_blocking(), Ok(number));
        assert!(permits.acquire(1, NEVER).wait_blocking().is_ok());
    }
}

/// The lines that a program would have, with the runtime's clock paused.
#[tokio::test(start_paused = true)]
async fn forms_on_a_runtimes_timer_expire_by_its_clock() {
    let timer = Timer::tokio().unwrap();
    let hour = MS * 3_600_000;
    let began = Instant::now();
    let purgatory = Purgatory::<u32>::on(&timer, "purgatory").unwrap();
    let monitor = Monitor::<u32, bool>::on(&timer, "monitor", true).unwrap();
    let replies = Replies::<u32, u32>::on(&timer, "replies").unwrap();
    let scopes = ReplyScope::<&str>::on(&timer, "scopes").unwrap();
    let ends = Watermarks::<u32>::on(&timer, "ends").unwrap();
    let sets = ReplicaSets::<(), usize>::on(&timer, "sets").unwrap();
    let permits = Permits::on(&timer, "permits", 0).unwrap();
    let reply = replies.expect(1, hour).unwrap();
    let scope = scopes.another();
    let (_, ping) = scope.expect(hour).unwrap();
    assert!(purgatory.wait(&[1], hour, || false).await.is_err());
    assert!(began.elapsed() >= hour && began.elapsed() <= hour + 2 * MS);
    assert!(reply.await.unwrap_err().is_expired());
    assert!(ping.await.unwrap_err().is_expired());
    assert!(ends.wait_for(&1, 7, MS).await.unwrap_err().is_expired());
    assert!(permits.acquire(1, MS).await.unwrap_err().is_expired());
    let open = monitor.wait(&[1], MS, |is_open| *is_open);
    assert!(open.await.is_ok());
    assert!(sets.waits().is_empty());
    // All of these forms are on that timer.
    timer.shutdown(Duration::ZERO);
    let late = monitor.wait(&[1], hour, |_| false);
    assert!(late.await.unwrap_err().is_shutdown());
    assert_eq!(sets.waits().shutdown(Duration::ZERO), 0);
}
