//! Decodes bytes into steps of the purgatory's model, few bytes for each step. The test `models`
//! also uses this.

use std::{iter::repeat_n, sync::Arc};

use ::purgatory::timer_core::{TickLength, WheelSize};
use arbitrary::{Arbitrary, Unstructured};

use super::oracle::steps::{Act, Condition, KEYS, Key, Pick, Plan, Runs, Setup, Then, When};

/// The number of bytes of a step; the longest takes 200.
pub(super) const RECORD: usize = 200;

/// The maximum number of operations.
const OPERATIONS_MAX: usize = 4000;

/// The bytes of a record, followed by zeros.
pub(super) struct Bytes<'a>(Unstructured<'a>);

impl<'a> Bytes<'a> {
    pub(super) fn new(record: &'a [u8]) -> Self {
        Bytes(Unstructured::new(record))
    }

    fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// Draws an index below `count`, from two bytes.
    fn one_of(&mut self, count: u64) -> usize {
        ((u64::from(self.any::<u16>()) * count) >> 16) as usize
    }

    fn option<T>(&mut self, some: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.any() { Some(some(self)) } else { None }
    }

    fn byte(&mut self) -> u64 {
        self.any::<u8>().into()
    }

    /// Decodes the setup, which the first bytes hold.
    pub(super) fn setup(&mut self) -> Setup {
        // From the shortest to the longest tick, including an odd one.
        let [shortest, longest] = [TickLength::MIN, TickLength::MAX].map(|tick| tick.as_nanos());
        let tick_ns = [shortest as u64, 1_000_000, 777_777, longest as u64][self.one_of(4)];
        Setup {
            tick_ns,
            slots: WheelSize::MIN + usize::from(self.any::<u8>()),
            start_ns: tick_ns / 4 * u64::from(self.any::<u16>()),
            max_parked: [None, None, Some(usize::from(self.any::<u8>() % 32))][self.one_of(3)],
            executor: [Runs::Inline, Runs::Kept, Runs::Dropped][self.one_of(3)],
            all_on_executor: self.any(),
            operations_max: OPERATIONS_MAX,
            shards: [1, 2, 64][self.one_of(3)],
            end: [Act::Shutdown, Act::ShutdownTimer, Act::DropHandle][self.one_of(3)].clone(),
        }
    }

    /// Decodes a step, and the number of the executor's jobs that run after it.
    pub(super) fn step(&mut self) -> Act {
        let act = match self.one_of(3) {
            0 => self.act(None),
            1 => Act::Park(self.busy(2)),
            _ => self.rare(),
        };
        let jobs = if self.any() { usize::MAX } else { 1 };
        Act::Several(vec![act, Act::RunJobs(jobs)])
    }

    /// Decodes a rare step. A third of all steps are rare ones.
    fn rare(&mut self) -> Act {
        match self.one_of(48) {
            0 => Act::ParkMany(self.any(), self.busy(1)),
            1..8 => Act::SetAllFlags,
            8..24 => Act::Advance(self.far()),
            24..28 => Act::Pass(self.byte()),
            28..30 => self.crowd(),
            30 if self.byte() < 64 => self.flood(),
            _ => Act::EventForOne(self.key()),
        }
    }

    /// Decodes an act that is legal anywhere: as a step, or in a check or callback. `inside` is the
    /// number of levels below in which operations may act again; `None` for a step.
    fn act(&mut self, inside: Option<u32>) -> Act {
        // Most acts are signals and cancels; an end of everything is rare.
        let is_inside = inside.is_some();
        match self.one_of(18) {
            0 => Act::Park(self.busy(inside.unwrap_or(1).saturating_sub(1))),
            1 => Act::SetFlag(self.pick(is_inside)),
            2..6 => Act::Event(self.key()),
            6 => self.all_of_key(),
            7..9 => Act::Cancel(self.pick(is_inside)),
            9 => Act::Complete(self.pick(is_inside)),
            10 => Act::Reschedule(self.pick(is_inside), self.when()),
            11 => Act::EventForOne(self.key()),
            12 => self.reach(is_inside),
            13..15 => Act::Advance(self.byte() / 2),
            15 => self.rarely(Act::Shutdown),
            16 => self.rarely(Act::ShutdownTimer),
            _ => self.rarely(Act::DropHandle),
        }
    }

    fn all_of_key(&mut self) -> Act {
        let key = self.key();
        match self.one_of(4) {
            0 => Act::CompleteKey(key),
            1 => Act::RescheduleKey(key, self.when()),
            _ => Act::CancelKey(key),
        }
    }

    /// Decodes how a parked operation is reached.
    fn reach(&mut self, inside: bool) -> Act {
        match self.one_of(8) {
            0 | 1 => Act::Look(self.pick(inside)),
            2..5 => Act::Take(self.pick(inside), Then::ParkAgain),
            5 | 6 => Act::Take(self.pick(inside), Then::Drop),
            _ => Act::TakeKey(self.key()),
        }
    }

    /// Returns `end` once in 32 times, since little happens after it.
    fn rarely(&mut self, end: Act) -> Act {
        if self.byte() >= 248 {
            end
        } else {
            Act::Several(vec![])
        }
    }

    fn key(&mut self) -> Key {
        Key::from(self.any::<u8>()) % KEYS + 1
    }

    /// Picks an operation: inside a check or callback its own, half of the time; else any, or a
    /// recent one.
    fn pick(&mut self, inside: bool) -> Pick {
        let pick = self.any::<u8>();
        match pick % 4 {
            0 | 1 if inside => Pick::Own,
            0 | 2 => Pick::Any(self.any()),
            _ => Pick::Recent(pick / 16),
        }
    }

    /// Decodes the number of the check in which something happens.
    fn check_number(&mut self) -> u32 {
        u32::from(self.any::<u8>() % 4) + 1
    }

    /// Decodes a number of quarters of a tick.
    fn far(&mut self) -> u64 {
        self.byte() << (self.byte() % 24)
    }

    fn when(&mut self) -> When {
        match self.one_of(12) {
            0 => When::Zero,
            1..5 => When::In(self.byte()),
            5..8 => When::In(self.far()),
            8 => When::At(self.byte() as i64 - 32),
            9 => When::Longest,
            _ => When::Never,
        }
    }

    /// Decodes an operation to park. Its check becomes true when its flag is set, or at a certain
    /// check number.
    fn plan(&mut self) -> Plan {
        // A quarter of all keys, sometimes all of them twice.
        let [some, others, twice] = self.any::<[u8; 3]>();
        let keys = (1..=KEYS).filter(|key| (some & others) >> key & 1 == 1);
        let times = if twice < 32 { 2 } else { 1 };
        let keys = keys.flat_map(|key| repeat_n(key, times)).collect();

        // A flag or a number of checks.
        let condition = if self.byte() < 64 {
            Condition::Look(self.check_number())
        } else {
            Condition::Flag
        };
        Plan {
            keys,
            many_keys: if self.byte() == 255 {
                200 + self.byte() as u32 % 200
            } else {
                0
            },
            timeout: self.when(),
            conditions: vec![condition],
            panics_at: if self.byte() < 16 {
                Some(self.check_number())
            } else {
                None
            },
            then_panics: self.byte() < 16,
            ..Plan::default()
        }
    }

    /// Decodes an operation that may act in a check and in its callback.
    fn busy(&mut self, depth: u32) -> Arc<Plan> {
        let mut plan = self.plan();
        if depth > 0 {
            // One to three acts, in the check and in the callback.
            let acts = |bytes: &mut Self| {
                let count = 1 + bytes.one_of(3);
                (0..count).map(|_| bytes.act(Some(depth))).collect()
            };
            if self.byte() < 96 {
                plan.on_check = Some((self.check_number(), acts(self)));
            }
            plan.then = self.option(acts).unwrap_or_default();
        }
        Arc::new(plan)
    }

    /// Decodes more operations under one key than a walk takes in a batch. Their callbacks end
    /// operations that the walk has not reached, or park new ones behind them.
    fn crowd(&mut self) -> Act {
        // Callbacks that end or park others.
        let key = self.key();
        let ends = |bytes: &mut Self| match bytes.one_of(4) {
            0 => Act::Cancel(Pick::Any(bytes.any())),
            1 => Act::Complete(Pick::Any(bytes.any())),
            2 => Act::Cancel(Pick::Recent(bytes.any())),
            _ => Act::Park(Arc::new(Plan {
                keys: vec![key],
                ..Plan::default()
            })),
        };

        // All of them wait under the key.
        let plan = Plan {
            keys: vec![key],
            conditions: vec![Condition::Flag],
            then: (0..1 + self.one_of(3)).map(|_| ends(self)).collect(),
            ..Plan::default()
        };
        let park = Act::ParkMany(140 + self.any::<u8>() % 100, Arc::new(plan));
        Act::Several(vec![park, Act::SetAllFlags, Act::Event(key)])
    }

    /// Decodes more callbacks than one call runs itself: a callback parks operations that end at
    /// once.
    fn flood(&mut self) -> Act {
        let key = self.key();
        let plan = || Plan {
            keys: vec![key],
            conditions: vec![Condition::Look(1)],
            ..Plan::default()
        };
        let then = vec![Act::ParkMany(250, Arc::new(plan())); 5];
        Act::Park(Arc::new(Plan { then, ..plan() }))
    }
}
