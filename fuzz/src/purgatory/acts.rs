//! What bytes can ask of the purgatory.

use std::time::Duration;

use arbitrary::Arbitrary;
use purgatory::Timeout;
use timer_core::{TickLength, WheelSize};

/// Watch keys there are.
pub(super) const KEYS: usize = 4;

/// What the bytes begin with.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) tick: Tick,
    pub(super) slots: u8,
    /// Where the clock starts, in quarters of a tick.
    pub(super) start: u16,
    pub(super) max_parked: Option<u8>,
    pub(super) jobs: Jobs,
    /// All callbacks are jobs, not only those of what expired.
    pub(super) callbacks_on_executor: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Tick {
    Shortest,
    Millisecond,
    Odd,
    Longest,
}

/// What becomes of the executor's jobs.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jobs {
    /// They run in place: there is no executor but the timer's.
    InPlace,
    /// They wait until the operation is over, and run.
    Kept,
    /// They wait until the operation is over, and are dropped.
    Dropped,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Key(u8);

/// One of the operations there have been, by its place among them.
pub(super) type Pick = u8;

/// Quarters of a tick from now; or one of the ends.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum When {
    Zero,
    Soon(u8),
    /// So many bits, shifted to the left.
    Far(u8, u8),
    Ago(u8),
    Longest,
    Never,
}

/// An operation to be parked. Its check comes true when it is made ready, at a look of its own, or when
/// all its watermarks are reached.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Plan {
    /// A bit a key.
    keys: u8,
    twice: bool,
    levels: Option<Levels>,
    pub(super) counted: bool,
    pub(super) timeout: When,
    true_at: Option<u8>,
    panics_at: Option<u8>,
    then_panics: bool,
    /// How often it is parked again when it is over.
    again: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Levels {
    first: Level,
    second: Option<Level>,
}

/// A key, and how far above its value.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Level {
    key: Key,
    by: u8,
}

/// An operation with something to do in a check and when it is over.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Busy {
    pub(super) plan: Plan,
    pub(super) on_check: Option<(u8, Act)>,
    pub(super) then: Option<Act>,
}

/// What can be done anywhere, in checks and callbacks too.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Act {
    Park(Plan),
    /// The operation's check is true from now on; nobody is told.
    Ready(Pick),
    Event(Key),
    /// The key's value rises, and is told.
    Rise(Key, u8),
    /// A value so far below the key's is told.
    TellLess(Key, u8),
    CancelKey(Key),
    Cancel(Pick),
    Complete(Pick),
    Reschedule(Pick, When),
    Defer(Key),
    DeferRise(Key, u8),
    RunDeferred,
    /// Quarters of a tick.
    Advance(u16),
    Shutdown(Rarely),
    ShutdownTimer(Rarely),
    DropHandle(Rarely),
}

/// Once in sixteen times: nothing much happens after it.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Rarely(u8);

#[derive(Arbitrary, Debug)]
pub(super) enum Step {
    Act(Act),
    Park(Busy),
    Rare(Rare),
}

/// A third of all steps together, at random.
#[derive(Arbitrary, Debug)]
pub(super) enum Rare {
    ParkMany(Plan, u8),
    ReadyAll,
    ToNext,
    /// Quarters of a tick, shifted to the left.
    Jump(u8, u8),
    /// Time that no wheel is turned for.
    Pass(u8),
    Snapshot(u8),
}

impl Setup {
    pub(super) fn tick(self) -> TickLength {
        TickLength::new(match self.tick {
            Tick::Shortest => TickLength::MIN,
            Tick::Millisecond => Duration::from_millis(1),
            Tick::Odd => Duration::from_nanos(777_777),
            Tick::Longest => TickLength::MAX,
        })
        .expect("within the bounds")
    }

    pub(super) fn wheel_size(self) -> WheelSize {
        WheelSize::new(WheelSize::MIN + usize::from(self.slots)).expect("within the bounds")
    }
}

impl Key {
    pub(super) fn index(self) -> usize {
        usize::from(self.0) % KEYS
    }
}

impl Rarely {
    pub(super) const NOW: Rarely = Rarely(0);

    fn is_now(self) -> bool {
        self.0.is_multiple_of(16)
    }
}

impl Act {
    /// It would end everything, and its time has not come.
    pub(super) fn is_idle(self) -> bool {
        match self {
            Act::Shutdown(rarely) | Act::ShutdownTimer(rarely) | Act::DropHandle(rarely) => {
                !rarely.is_now()
            }
            _ => false,
        }
    }
}

impl Plan {
    /// Its plain keys, some of them twice.
    pub(super) fn keys(&self) -> Vec<usize> {
        let times = if self.twice { 2 } else { 1 };
        let named = (0..KEYS).filter(|key| self.keys >> key & 1 == 1);
        named.flat_map(|key| std::iter::repeat_n(key, times)).collect()
    }

    /// Key and threshold, over what the keys have reached.
    pub(super) fn levels(&self, values: &[u64; KEYS]) -> Vec<(usize, u64)> {
        let all = self.levels.map(|levels| [Some(levels.first), levels.second]);
        let threshold = |Level { key, by }: Level| {
            let key = key.index();
            (key, values[key] + u64::from(by % 8))
        };
        all.into_iter().flatten().flatten().map(threshold).collect()
    }

    pub(super) fn is_true_at(&self, look: u32) -> bool {
        self.true_at.is_some_and(|at| look > u32::from(at % 4))
    }

    pub(super) fn panics_at(&self, look: u32) -> bool {
        self.panics_at.is_some_and(|at| look == u32::from(at % 4) + 1)
    }

    /// Of a callback.
    pub(super) fn panics_then(&self) -> bool {
        self.then_panics
    }

    /// With nothing else to do.
    pub(super) fn idle(self) -> Busy {
        Busy { plan: self, on_check: None, then: None }
    }

    /// What it parks when it is over.
    pub(super) fn next(self) -> Option<Plan> {
        let again = self.again % 8;
        (again > 0).then(|| Plan { again: again - 1, ..self })
    }
}

impl When {
    pub(super) fn timeout(self, now_ns: u64, tick: TickLength) -> Timeout {
        let quarters = |count: u64| quarters(tick, count);
        match self {
            When::Zero => Timeout::After(Duration::ZERO),
            When::Soon(count) => Timeout::After(quarters(count.into())),
            When::Far(bits, by) => Timeout::After(quarters(u64::from(bits) << (by % 57))),
            When::Ago(count) => {
                let by_ns = u64::try_from(quarters(count.into()).as_nanos()).unwrap_or(u64::MAX);
                Timeout::At(now_ns.saturating_sub(by_ns))
            }
            When::Longest => Timeout::After(Duration::MAX),
            When::Never => Timeout::Never,
        }
    }
}

/// So many quarters of a tick.
pub(super) fn quarters(tick: TickLength, count: u64) -> Duration {
    let ns = tick.length().as_nanos() / 4 * u128::from(count);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}
