//! Users' code that misbehaves: executors that are late or drop their jobs, wakers that panic,
//! handles that are dropped where no thread expects it.

use crate::support::*;

/// The timer's only worker would have to expire the wait that blocks it.
#[test]
fn a_blocking_wait_on_a_timers_worker_is_refused() {
    let timer = SystemTimer::new().unwrap();
    let purgatory: Purgatory<u32> = Purgatory::on(&timer, "worker").unwrap();
    let (send, result) = mpsc::channel();
    let inside = purgatory.clone();
    let task = move || {
        send.send(inside.wait(&[1], MS, || None::<()>).wait_blocking())
            .unwrap()
    };
    timer.schedule(MS, task).unwrap();
    assert_eq!(result.recv(), Ok(Err(WaitError::MustNotBlock)));
    assert!(purgatory.is_empty());
}

/// A condition panics, then the waker that its end calls: two panics at once would be an abort.
#[test]
fn a_waker_may_panic_with_its_condition() {
    let (_timer, purgatory) = by_hand::<u32, BoxedOperation>();
    let mut first = true;
    let condition = move || {
        assert!(std::mem::take(&mut first), "in a condition");
        None::<()>
    };
    let mut wait = purgatory.wait(&[1], MINUTE, condition);
    let panics = waker(|| panic!("in a waker"));
    assert!(poll_by(&mut wait, &panics).is_pending());
    assert_eq!(purgatory.check_and_complete(&1), 0);
    let expected = Err(WaitError::Cancelled(CancelReason::Panicked));
    assert_eq!(wait.wait_blocking(), expected);
}

/// The threads are the reaper and the worker, known by their names.
#[cfg(target_os = "linux")]
#[test]
fn a_held_future_keeps_no_threads() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("lingers")).count()
    };
    let purgatory: Purgatory<u32> = Purgatory::new("lingers").unwrap();
    let wait = purgatory.wait(&[1], MINUTE, || None::<()>);
    drop(purgatory);
    while threads() > 0 {
        thread::yield_now(); // for ever, if they stayed
    }
    let expected = Err(WaitError::Cancelled(CancelReason::Dropped));
    assert_eq!(wait.wait_blocking(), expected);
}

#[test]
fn a_purgatory_dropped_in_its_own_timers_callback() {
    let timer = SystemTimer::new().unwrap();
    let inside = Purgatory::builder("inside").timer(&timer);
    let purgatory: Purgatory<u32> = inside.build().unwrap();
    drop(timer);
    let (send, ended) = mpsc::channel();
    let other = Probe::parked(&purgatory, &[2], MINUTE);
    let slot = Mutex::new(Some(purgatory.clone()));
    let operation = Probe::new().operation().then(move |outcome| {
        drop(slot.lock().unwrap().take());
        send.send(outcome).unwrap();
    });
    purgatory.park(operation, &[1], MS);
    drop(purgatory);
    assert_eq!(ended.recv(), Ok(Outcome::Expired));
    while !other.ended() {
        thread::yield_now(); // called back once the outer callback has returned
    }
    assert_eq!(other.endings(), [DROPPED]);
}

/// An executor that runs its jobs in place, and drops a purgatory's handle after the first.
#[derive(Clone, Debug, Default)]
struct LetsGo(Arc<Mutex<Option<Purgatory<u32>>>>);

impl Executor for LetsGo {
    fn execute(&self, job: Job) {
        let purgatory = self.0.lock().unwrap().take();
        job.run();
        drop(purgatory);
    }
}

/// The last handle is dropped while the reaper holds references to the shards, so the reaper drops
/// the last reference.
#[test]
fn the_reaper_drops_no_hook_of_a_purgatory() {
    let timer = SystemTimer::new().unwrap();
    let lets_go = LetsGo::default();
    let (tell, told) = mpsc::channel();
    let hook = TellsWhere(tell);
    let builder = Purgatory::builder("gone")
        .timer(&timer)
        .executor(lets_go.clone());
    let purgatory: Purgatory<u32> = builder.check_at_expiry(move |_| _ = &hook).build().unwrap();
    let id = purgatory.park(never(), &[1], MINUTE);
    // The executor waits until this thread has handed its handle over.
    let mut has = lets_go.0.lock().unwrap();
    purgatory.reschedule(id, MS);
    *has = Some(purgatory);
    drop(has);
    let dropped_by = told.recv_timeout(MINUTE).unwrap();
    assert!(dropped_by.contains("worker"), "{dropped_by}");
    timer.shutdown(Duration::MAX);
}

thread_local! {
    static JOBS: RefCell<Vec<Job>> = const { RefCell::new(Vec::new()) };
}

/// An executor that keeps its jobs in a thread-local of the calling thread.
#[derive(Debug)]
struct WithTheThread;

impl Executor for WithTheThread {
    fn execute(&self, job: Job) {
        JOBS.with(|jobs| jobs.borrow_mut().push(job));
    }
}

/// The jobs are dropped, and so run, after the thread's queue of nested calls is gone.
#[test]
fn jobs_dropped_as_their_thread_ends_lose_nothing() {
    let timer = system_timer(|builder| builder.executor(WithTheThread));
    let purgatory: Purgatory<u32> = Purgatory::on(&timer, "ends").unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let inside = purgatory.clone();
    let counted = ended.clone();
    let cancels = move || {
        JOBS.with(|jobs| assert!(jobs.borrow().is_empty())); // initialised first, so dropped last
        for _ in 0..2000 {
            let counted = counted.clone();
            let operation = when(|| false, move |_| _ = counted.fetch_add(1, SeqCst));
            inside.park(operation, &[1], MINUTE);
        }
        let all = inside.clone();
        let act = move |_| assert_eq!(all.cancel_for_key(&1, "by a callback"), 2000);
        let parked = inside.try_complete_else_watch(when(|| true, act), &[2], MINUTE);
        parked.unwrap();
    };
    thread::spawn(cancels).join().unwrap();
    assert_eq!(ended.load(SeqCst), 2000);
}

/// Begins a chain of operations that end at once; each callback parks the next one.
fn link(purgatory: Purgatory<u32>, left: usize, ended: Arc<AtomicUsize>) {
    let inside = purgatory.clone();
    let next = move |_| {
        ended.fetch_add(1, SeqCst);
        if left > 0 {
            link(inside, left - 1, ended);
        }
    };
    let parked = purgatory.try_complete_else_watch(when(|| true, next), &[1], MINUTE);
    parked.unwrap();
}

/// An inline timer's executor runs jobs in the call that hands them over.
#[test]
fn a_chain_with_jobs_run_in_place_needs_no_stack() {
    let timer = SystemTimer::builder().inline().build().unwrap();
    let builder = Purgatory::builder("chain").timer(&timer);
    let purgatory = builder.callbacks_on_executor().build().unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    on_stack(128 << 10, move || link(purgatory, 200_000, counted));
    assert_eq!(ended.load(SeqCst), 200_001);
}

thread_local! {
    /// Begins a chain when the thread's destructors run.
    static AT_THE_END: RefCell<Option<OnDrop>> = const { RefCell::new(None) };
}

/// A purgatory's own thread-locals are gone by then.
#[test]
fn a_chain_begun_by_a_destructor_needs_no_stack() {
    let (_timer, purgatory) = by_hand();
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    let ends = move || {
        let inside = purgatory.clone();
        let begins = OnDrop::new(move || link(inside.clone(), 200_000, counted.clone()));
        AT_THE_END.set(Some(begins)); // initialised first, so dropped last
        purgatory.park(never(), &[2], MINUTE);
        assert_eq!(purgatory.cancel_for_key(&2, "by the thread"), 1);
    };
    on_stack(128 << 10, ends);
    assert_eq!(ended.load(SeqCst), 200_001);
}
