//! What bytes can ask of the purgatory: few of them for each step of the model. The test `models`
//! takes its steps from here, too.

use std::{iter::repeat_n, sync::Arc};

use ::purgatory::timer_core::{TickLength, WheelSize};
use arbitrary::{Arbitrary, Unstructured};

use super::oracle::steps::{Act, Condition, KEYS, Key, Pick, Plan, Runs, Setup, When};

/// Bytes of a step; the widest takes 200.
pub(super) const RECORD: usize = 200;

/// Operations in all.
const OPERATIONS_MAX: usize = 4000;

/// The bytes of a record; where they end, zeros follow.
pub(super) struct Bytes<'a>(Unstructured<'a>);

impl<'a> Bytes<'a> {
    pub(super) fn new(record: &'a [u8]) -> Self {
        Bytes(Unstructured::new(record))
    }

    fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// One of so many, in two bytes.
    fn one_of(&mut self, count: u64) -> usize {
        ((u64::from(self.any::<u16>()) * count) >> 16) as usize
    }

    fn option<T>(&mut self, some: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.any::<bool>().then(|| some(self))
    }

    fn byte(&mut self) -> u64 {
        self.any::<u8>().into()
    }

    /// What the bytes begin with.
    pub(super) fn setup(&mut self) -> Setup {
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

    /// Every other time with what the executor has after it.
    pub(super) fn step(&mut self) -> Act {
        let act = match self.one_of(3) {
            0 => self.act(None),
            1 => Act::Park(self.busy(2)),
            _ => self.rare(),
        };
        let jobs = if self.any() { usize::MAX } else { 1 };
        Act::Several(vec![act, Act::RunJobs(jobs)])
    }

    /// A third of all steps together, at random.
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

    /// What can be done anywhere: as a step, or in the check or callback of an operation, which may
    /// park others that do the same so many times deeper.
    fn act(&mut self, inside: Option<u32>) -> Act {
        let is_inside = inside.is_some();
        match self.one_of(18) {
            0 => Act::Park(self.busy(inside.unwrap_or(1).saturating_sub(1))),
            1 => Act::SetFlag(self.pick(is_inside)),
            2..4 => Act::Event(self.key()),
            4..6 => Act::AdvanceWatermark(self.key(), self.by()),
            6 => Act::CancelKey(self.key()),
            7..9 => Act::Cancel(self.pick(is_inside)),
            9 => Act::Complete(self.pick(is_inside)),
            10 => Act::Reschedule(self.pick(is_inside), self.when()),
            11..13 => Act::EventForOne(self.key()),
            13..15 => Act::Advance(self.byte() / 2),
            15 => self.rarely(Act::Shutdown),
            16 => self.rarely(Act::ShutdownTimer),
            _ => self.rarely(Act::DropHandle),
        }
    }

    /// Once in 32 times: nothing much happens after it.
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

    /// How far a value rises; or a lower one, or by mistake the highest, is told.
    fn by(&mut self) -> i64 {
        match self.any::<u8>() {
            255 => i64::MAX,
            254 => i64::MIN,
            by @ 224.. => 223 - i64::from(by),
            by => i64::from(by % 6),
        }
    }

    /// Inside a check or callback as often as not its own operation; one of all, or of the latest.
    fn pick(&mut self, inside: bool) -> Pick {
        let pick = self.any::<u8>();
        match pick % 4 {
            0 | 1 if inside => Pick::Own,
            0 | 2 => Pick::Any(self.any()),
            _ => Pick::Recent(pick / 16),
        }
    }

    /// The look at which something happens.
    fn look(&mut self) -> u32 {
        u32::from(self.any::<u8>() % 4) + 1
    }

    /// So many quarters of a tick.
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

    /// An operation to be parked. Its check comes true when it is made ready, at a look of its own,
    /// or when all its watermarks are reached.
    fn plan(&mut self) -> Plan {
        let (named, of_these, twice) = self.any::<(u8, u8, u8)>();
        let keys = (1..=KEYS).filter(|key| (named & of_these) >> key & 1 == 1);
        let keys = keys
            .flat_map(|key| repeat_n(key, if twice < 32 { 2 } else { 1 }))
            .collect();
        let count = [0, 0, 1, 1, 2, 4][self.one_of(6)];
        let level = |_| {
            (
                self.key(),
                [self.byte() % 10, u64::MAX][usize::from(self.byte() == 255)],
            )
        };
        let levels: Vec<_> = (0..count).map(level).collect();
        let at_look = if self.byte() < 64 {
            Condition::Look(self.look())
        } else {
            Condition::Flag
        };
        let reached = (!levels.is_empty() && self.any()).then_some(Condition::Levels);
        Plan {
            keys,
            many_keys: if self.byte() == 255 {
                200 + self.byte() as u32 % 200
            } else {
                0
            },
            levels,
            counted: self.any(),
            timeout: self.when(),
            conditions: [Some(at_look), reached].into_iter().flatten().collect(),
            panics_at: (self.byte() < 16).then(|| self.look()),
            then_panics: self.byte() < 16,
            ..Plan::default()
        }
    }

    /// An operation with something to do in a check and when it is over.
    fn busy(&mut self, depth: u32) -> Arc<Plan> {
        let mut plan = self.plan();
        if depth > 0 {
            let acts = |bytes: &mut Self| {
                (0..1 + bytes.one_of(3))
                    .map(|_| bytes.act(Some(depth)))
                    .collect::<Vec<_>>()
            };
            if self.byte() < 96 {
                plan.on_check = Some((self.look(), acts(self)));
            }
            plan.then = self.option(acts).unwrap_or_default();
        }
        Arc::new(plan)
    }

    /// More under one key than a walk, or a rise, takes at a time; their callbacks end others that
    /// it has yet to come by, or park behind them.
    fn crowd(&mut self) -> Act {
        let key = self.key();
        let (keys, levels) = ([vec![key], vec![]], [vec![], vec![(key, 1)]]);
        let form = self.one_of(2);
        let ends = |bytes: &mut Self| match bytes.one_of(4) {
            0 => Act::Cancel(Pick::Any(bytes.any())),
            1 => Act::Complete(Pick::Any(bytes.any())),
            2 => Act::Cancel(Pick::Recent(bytes.any())),
            _ => Act::Park(Arc::new(Plan {
                keys: vec![key],
                ..Plan::default()
            })),
        };
        let plan = Plan {
            keys: keys[form].clone(),
            levels: levels[form].clone(),
            counted: self.any(),
            conditions: vec![Condition::Flag],
            then: (0..1 + self.one_of(3)).map(|_| ends(self)).collect(),
            ..Plan::default()
        };
        let park = Act::ParkMany(140 + self.any::<u8>() % 100, Arc::new(plan));
        let event = [Act::Event(key), Act::AdvanceWatermark(key, 1)][form].clone();
        Act::Several(vec![park, Act::SetAllFlags, event])
    }

    /// More callbacks than one call runs itself: operations that end at once, parked by another's.
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
