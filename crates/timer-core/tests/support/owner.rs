//! An owner of wheels that counts the calls of its timer, and panics where a test says so.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use timer_core::driver::{Driver, ShardLook, Shards, WheelOwner};

use crate::support::*;

/// The calls that may panic.
#[derive(Clone, Copy, PartialEq)]
pub enum At {
    FirstAdvance,
    RoundOver,
    Close,
}

pub struct Owner {
    pub shards: Shards<TimingWheel<()>>,
    panics: &'static [At],
    looks: AtomicUsize,
    advances: AtomicUsize,
    fired: AtomicUsize,
    rounds: AtomicUsize,
    closed: AtomicBool,
    /// Called at each look.
    pub at_look: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The calls to an owner so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    pub looks: usize,
    pub advances: usize,
    pub fired: usize,
    pub rounds: usize,
    pub closed: bool,
}

impl Owner {
    /// Makes an owner that is not attached yet.
    pub fn new(driver: &Driver, shards: usize, panics: &'static [At]) -> Arc<Self> {
        Arc::new(Owner {
            shards: driver.shards(shards, (), |(), plan| plan.wheel()),
            panics,
            looks: AtomicUsize::new(0),
            advances: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
            rounds: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            at_look: OnceLock::new(),
        })
    }

    /// Makes an owner and attaches it.
    pub fn on(driver: &Driver, shards: usize, panics: &'static [At]) -> Arc<Self> {
        let owner = Owner::new(driver, shards, panics);
        assert!(driver.attach(&owner, &owner.shards));
        owner
    }

    pub fn insert(&self, shard: usize, tick: u64) {
        let mut shard = self.shards.lock(shard);
        let scheduled = shard.insert(tick, ()).unwrap();
        shard.work_at(scheduled.due);
    }

    pub fn asked(&self) -> Asked {
        Asked {
            looks: self.looks.load(SeqCst),
            advances: self.advances.load(SeqCst),
            fired: self.fired.load(SeqCst),
            rounds: self.rounds.load(SeqCst),
            closed: self.closed.load(SeqCst),
        }
    }

    fn may_panic(&self, at: At) {
        assert!(!self.panics.contains(&at), "where it was told to");
    }
}

impl WheelOwner for Owner {
    fn advance(&self, shard: usize, now_tick: u64) -> Advanced {
        if self.advances.fetch_add(1, SeqCst) == 0 {
            self.may_panic(At::FirstAdvance);
        }
        let mut shard = self.shards.lock(shard);
        let advanced = shard.advance(now_tick, usize::MAX, |task| task.take());
        self.fired.fetch_add(advanced.fired, SeqCst);
        shard.advanced(advanced.next_due);
        advanced
    }

    fn round_over(self: Arc<Self>) {
        self.rounds.fetch_add(1, SeqCst);
        self.may_panic(At::RoundOver);
    }

    fn look(&self, shard: usize) -> ShardLook {
        self.looks.fetch_add(1, SeqCst);
        if let Some(act) = self.at_look.get() {
            act();
        }
        self.shards.look(shard)
    }

    fn add_to(&self, stats: &mut TimerStats) {
        self.shards.add_to(stats);
    }

    fn timer_closed(self: Arc<Self>) {
        self.may_panic(At::Close);
        self.closed.store(true, SeqCst);
    }
}
