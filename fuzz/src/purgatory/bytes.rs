//! What bytes can ask of the purgatory: few of them for each step of the model.

use std::{iter::repeat_n, sync::Arc};

use ::purgatory::timer_core::{TickLength, WheelSize};
use arbitrary::{Arbitrary, Unstructured};

use super::oracle::steps::{Act, Condition, Key, Pick, Plan, Runs, Setup, When};

/// Watch keys there are.
const KEYS: u8 = 4;

/// Operations in all.
const OPERATIONS_MAX: usize = 400;

/// The bytes of a record; where they end, zeros follow.
pub(super) struct Bytes<'a>(pub(super) Unstructured<'a>);

impl<'a> Bytes<'a> {
    fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// One of so many, in four bytes.
    fn one_of(&mut self, count: u64) -> usize {
        ((u64::from(self.any::<u32>()) * count) >> 32) as usize
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
            max_parked: self.option(|bytes| usize::from(bytes.any::<u8>() % 32)),
            executor: [Runs::Inline, Runs::Kept, Runs::Dropped][self.one_of(3)],
            all_on_executor: self.any(),
            operations_max: OPERATIONS_MAX,
            rooms: 64,
            end: Act::Shutdown,
        }
    }

    /// With what the executor has after it.
    pub(super) fn step(&mut self) -> Act {
        let act = match self.one_of(3) {
            0 => self.act(false),
            1 => Act::Park(self.busy()),
            _ => self.rare(),
        };
        Act::Several(vec![act, Act::RunJobs])
    }

    /// A third of all steps together, at random.
    fn rare(&mut self) -> Act {
        match self.one_of(6) {
            0 => {
                let plan = self.plan();
                Act::ParkMany(self.any(), Arc::new(plan))
            }
            1 => Act::SetAllFlags,
            2 => Act::ToNext,
            3 => Act::Advance(self.far()),
            4 => Act::Pass(self.byte()),
            _ => Act::EventForOne(self.key()),
        }
    }

    /// What can be done anywhere, in checks and callbacks too.
    fn act(&mut self, inside: bool) -> Act {
        match self.one_of(16) {
            0 => Act::Park(Arc::new(self.plan())),
            1 => Act::SetFlag(Pick::At(self.any())),
            2 => Act::Event(self.key()),
            3 => Act::Rise(self.key(), self.by()),
            4 => Act::Claim(self.key(), -(self.by() as i64)),
            5 => Act::CancelKey(self.key()),
            6 => Act::Cancel(self.pick(inside)),
            7 => Act::Complete(self.pick(inside)),
            8 => Act::Reschedule(self.pick(inside), self.when()),
            9..12 => Act::EventForOne(self.key()),
            12 => Act::Advance(self.any::<u16>().into()),
            13 => self.rarely(Act::Shutdown),
            14 => self.rarely(Act::ShutdownTimer),
            _ => self.rarely(Act::DropHandle),
        }
    }

    /// Once in sixteen times: nothing much happens after it.
    fn rarely(&mut self, end: Act) -> Act {
        if self.byte() % 16 == 0 { end } else { Act::Several(vec![]) }
    }

    fn key(&mut self) -> Key {
        Key::from(self.any::<u8>() % KEYS + 1)
    }

    /// How far a value rises.
    fn by(&mut self) -> u64 {
        self.byte() % 8
    }

    /// Inside a check or callback as often as not its own operation.
    fn pick(&mut self, inside: bool) -> Pick {
        let pick = self.any::<u8>();
        if inside && pick % 2 == 0 { Pick::Own } else { Pick::Any(pick.into()) }
    }

    /// The look at which something happens.
    fn look(&mut self) -> u32 {
        u32::from(self.any::<u8>() % 4) + 1
    }

    /// So many quarters of a tick.
    fn far(&mut self) -> u64 {
        self.byte() << (self.byte() % 57)
    }

    fn when(&mut self) -> When {
        match self.one_of(6) {
            0 => When::Zero,
            1 => When::In(self.byte()),
            2 => When::In(self.far()),
            3 => When::At(-(self.byte() as i64)),
            4 => When::Longest,
            _ => When::Never,
        }
    }

    /// An operation to be parked, and parked again so often when it is over. Its check comes true
    /// when it is made ready, at a look of its own, or when all its watermarks are reached.
    fn plan(&mut self) -> Plan {
        let (named, twice) = self.any::<(u8, bool)>();
        let named = (0..KEYS).filter(|key| named >> key & 1 == 1);
        let named = named.flat_map(|key| repeat_n(Key::from(key + 1), if twice { 2 } else { 1 }));
        let level = |bytes: &mut Self| (bytes.key(), bytes.by());
        let levels = self.option(|bytes| [Some(level(bytes)), bytes.option(level)]);
        let levels: Vec<_> = levels.into_iter().flatten().flatten().collect();
        let ready = (!levels.is_empty()).then_some(Condition::Levels);
        let once = Plan {
            keys: named.collect(),
            levels,
            counted: self.any(),
            timeout: self.when(),
            conditions: [
                Some(Condition::Flag),
                ready,
                self.option(Self::look).map(Condition::Look),
            ]
            .into_iter()
            .flatten()
            .collect(),
            panics_at: self.option(Self::look),
            then_panics: self.any(),
            ..Plan::default()
        };
        (0..self.any::<u8>() % 8).fold(once.clone(), |next, _| Plan {
            then: vec![Act::Park(Arc::new(next))],
            ..once.clone()
        })
    }

    /// An operation with something to do in a check and when it is over.
    fn busy(&mut self) -> Arc<Plan> {
        let mut plan = self.plan();
        plan.on_check = self.option(|bytes| (bytes.look(), vec![bytes.act(true)]));
        let then = self.option(|bytes| bytes.act(true));
        plan.then.splice(0..0, then);
        Arc::new(plan)
    }
}
