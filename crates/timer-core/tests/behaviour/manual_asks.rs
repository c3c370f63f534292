//! A manual timer asks only wheels that were locked. The tests count, and time nothing.

use std::future::poll_fn;

use timer_core::driver::{ShardLook, Shards, WheelOwner};

use crate::support::*;

const SHARDS: usize = 128;

/// An owner of wheels that counts how often it is asked, and its rounds.
struct Asked {
    shards: Shards<TimingWheel<()>>,
    looks: AtomicUsize,
    advances: AtomicUsize,
    rounds: AtomicUsize,
}

impl Asked {
    fn on(timer: &ManualTimer) -> Arc<Self> {
        let driver = timer.driver();
        let owner = Arc::new(Asked {
            shards: driver.shards(SHARDS, (), |(), plan| plan.wheel()),
            looks: AtomicUsize::new(0),
            advances: AtomicUsize::new(0),
            rounds: AtomicUsize::new(0),
        });
        assert!(driver.attach(&owner, &owner.shards));
        owner
    }

    fn insert(&self, shard: usize, tick: u64) {
        let mut shard = self.shards.lock(shard);
        let scheduled = shard.insert(tick, ()).unwrap();
        shard.work_at(scheduled.due);
    }

    /// Returns how often it was asked, advanced and told of the end of a round.
    fn counts(&self) -> [usize; 3] {
        [&self.looks, &self.advances, &self.rounds].map(|count| count.load(SeqCst))
    }
}

impl WheelOwner for Asked {
    fn advance(&self, shard: usize, now_tick: u64) -> Advanced {
        self.advances.fetch_add(1, SeqCst);
        let mut shard = self.shards.lock(shard);
        let advanced = shard.advance(now_tick, usize::MAX, |task| task.take());
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        self.rounds.fetch_add(1, SeqCst);
    }

    fn look(&self, shard: usize) -> ShardLook {
        self.looks.fetch_add(1, SeqCst);
        self.shards.look(shard)
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    fn timer_closed(self: Arc<Self>) {}
}

/// Sleeps that often for a millisecond each, while the timer settles.
fn settle_over_sleeps(timer: &ManualTimer, sleeps: u32) {
    let asleep = async {
        for _ in 0..sleeps {
            timer.sleep(MS).await.unwrap();
        }
        timer.now()
    };
    let settled = timer.settle(MS * sleeps);
    let both = futures_util::future::join(asleep, settled);
    assert_eq!(pollster::block_on(both).0, timer.now());
}

#[test]
fn settling_asks_no_wheel_that_nobody_locked() {
    let timer = ManualTimer::new();
    let idle = [(); 8].map(|()| Asked::on(&timer));
    for owner in &idle {
        owner.insert(7, 3_600_000);
    }
    settle_over_sleeps(&timer, 1);
    let before = idle.each_ref().map(|owner| owner.counts());
    assert!(
        before.iter().all(|counts| counts[0] <= 2 * SHARDS),
        "{before:?}"
    );
    settle_over_sleeps(&timer, 1000);
    timer.advance(SECOND);
    let after = idle.each_ref().map(|owner| owner.counts());
    assert_eq!(before, after);
    // They were not forgotten.
    timer.advance(HOUR);
    assert!(idle.iter().all(|owner| owner.counts()[2] > 0));
    assert_eq!(timer.stats().pending, 0);
}

/// An insertion and an advance a tick: one look after each.
#[test]
fn one_shard_in_use_is_asked_after_each_use() {
    let timer = ManualTimer::new();
    let owner = Asked::on(&timer);
    timer.advance(MS);
    let [looks, advances, _] = owner.counts();
    for tick in 2..1002 {
        owner.insert(99, tick);
        assert_eq!(timer.next_due_in(), Some(MS));
        assert_eq!(timer.next_due_in(), Some(MS));
        timer.advance(MS);
        assert_eq!(timer.next_due_in(), None);
    }
    let after = owner.counts();
    assert_eq!([after[0] - looks, after[1] - advances], [2000, 1000]);
}

#[test]
fn tasks_that_schedule_nothing_let_a_settle_end() {
    let timer = ManualTimer::new();
    let handle = timer.schedule(HOUR, || ()).unwrap();
    // It is polled for ever, and looks at the timer each time.
    let mut settled = std::pin::pin!(timer.settle(SECOND));
    pollster::block_on(poll_fn(|context| {
        assert!(timer.is_pending(handle) && timer.len() == 1 && timer.sleepers() == 0);
        settled.as_mut().poll(context)
    }));
    assert_eq!(timer.now().as_nanos(), 1_000_000_000);
}

/// Whatever they schedule: here nothing comes before what there is.
#[test]
fn a_settle_goes_on_while_tasks_schedule() {
    let timer = ManualTimer::new();
    let mut settled = pin!(timer.settle(Duration::ZERO));
    for _ in 0..5 {
        for _ in 0..60 {
            assert!(poll(&mut settled).is_pending());
        }
        timer.schedule(HOUR, || ()).unwrap();
    }
    while poll(&mut settled).is_pending() {}
}

/// Locked before it is attached, and gone with what it had.
#[test]
fn owners_come_and_go_between_two_questions() {
    let timer = ManualTimer::new();
    let driver = timer.driver();
    let shards = driver.shards(SHARDS, (), |(), plan| plan.wheel());
    drop(shards.lock(70));
    assert_eq!(timer.next_due_in(), None);
    let owner = Arc::new(Asked {
        shards,
        looks: AtomicUsize::new(0),
        advances: AtomicUsize::new(0),
        rounds: AtomicUsize::new(0),
    });
    assert!(driver.attach(&owner, &owner.shards));
    owner.insert(70, 9);
    owner.insert(1, 5);
    assert_eq!(timer.next_due_in(), Some(MS * 5));
    let tasks = timer.with_handler(|(): ()| ());
    tasks.schedule(MS * 3, ()).unwrap();
    assert_eq!(timer.next_due_in(), Some(MS * 3));
    drop(tasks);
    assert_eq!(timer.next_due_in(), Some(MS * 5));
    drop(owner);
    assert_eq!(timer.next_due_in(), None);
    assert!(!timer.advance_to_next());
}

/// A task scheduled by one that runs is due in the same tick, on wheels that were passed already.
#[test]
fn a_tick_is_done_with_all_that_its_tasks_schedule() {
    let timer = ManualTimer::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let later = timer.with_handler(|task: Box<dyn FnOnce() + Send>| task());
    let again = timer.clone();
    let count = ran.clone();
    let task = move || {
        let now = again.now();
        let scheduled = again.schedule_at(now, move || _ = count.fetch_add(1, SeqCst));
        scheduled.unwrap();
    };
    later.schedule(MS * 5, Box::new(task)).unwrap();
    timer.advance(MS * 5);
    assert_eq!(ran.load(SeqCst), 1);
    assert_eq!(timer.now().as_nanos(), 5_000_000);
}

/// Time goes as far as it is told to, however often the settle looks meanwhile.
#[test]
fn a_settle_waits_for_an_advance_on_another_thread() {
    let (timer, stop) = (ManualTimer::new(), Stop::armed());
    let held = stop.clone();
    timer.schedule(MS, move || held.here()).unwrap();
    timer.schedule(5 * MS, || ()).unwrap();
    let advancing = timer.clone();
    let advance = thread::spawn(move || advancing.advance(MS));
    let mut settle = pin!(timer.settle(10 * MS));
    stop.meanwhile(|| {
        for _ in 0..1000 {
            assert!(poll(&mut settle).is_pending());
        }
    });
    advance.join().unwrap();
    while poll(&mut settle).is_pending() {}
    assert_eq!((timer.now().as_nanos(), timer.len()), (11_000_000, 0));
}
