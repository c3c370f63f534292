//! What bytes can ask of the purgatory: few of them for each step of the model.

use std::sync::Arc;

use ::purgatory::timer_core::{TickLength, WheelSize};
use arbitrary::Arbitrary;

use super::oracle::steps;

/// Watch keys there are.
const KEYS: u8 = 4;

/// Operations in all.
const OPERATIONS_MAX: usize = 400;

/// What the bytes begin with.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Setup {
    tick: Tick,
    slots: u8,
    /// Where the clock starts, in quarters of a tick.
    start: u16,
    max_parked: Option<u8>,
    jobs: Jobs,
    /// All callbacks are jobs, not only those of what expired.
    callbacks_on_executor: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Tick {
    Shortest,
    Millisecond,
    Odd,
    Longest,
}

/// What becomes of the executor's jobs.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum Jobs {
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

/// An operation to be parked. Its check comes true when it is made ready, at a look of its own, or
/// when all its watermarks are reached.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) struct Plan {
    /// A bit a key.
    keys: u8,
    twice: bool,
    levels: Option<Levels>,
    counted: bool,
    timeout: When,
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
    plan: Plan,
    on_check: Option<(u8, Act)>,
    then: Option<Act>,
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

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Step {
    Act(Act),
    Park(Busy),
    Rare(Rare),
}

/// A third of all steps together, at random.
#[derive(Arbitrary, Clone, Copy, Debug)]
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
    pub(super) fn to_model(self) -> steps::Setup {
        let tick_ns = match self.tick {
            Tick::Shortest => TickLength::MIN.as_nanos() as u64,
            Tick::Millisecond => 1_000_000,
            Tick::Odd => 777_777,
            Tick::Longest => TickLength::MAX.as_nanos() as u64,
        };
        steps::Setup {
            tick_ns,
            slots: WheelSize::MIN + usize::from(self.slots),
            start_ns: tick_ns / 4 * u64::from(self.start),
            max_parked: self.max_parked.map(|max| usize::from(max % 32)),
            operations_max: OPERATIONS_MAX,
            rooms: 64,
            executor: match self.jobs {
                Jobs::InPlace => steps::Runs::Inline,
                Jobs::Kept => steps::Runs::Kept,
                Jobs::Dropped => steps::Runs::Dropped,
            },
            all_on_executor: self.callbacks_on_executor,
            end: steps::Act::Shutdown,
        }
    }
}

impl Key {
    fn to_model(self) -> steps::Key {
        steps::Key::from(self.0 % KEYS + 1)
    }
}

impl Rarely {
    /// What ends everything, when its time has come.
    fn to_model(self, end: steps::Act) -> steps::Act {
        if self.0.is_multiple_of(16) { end } else { steps::Act::Several(vec![]) }
    }
}

/// Inside a check or callback as often as not its own operation.
fn pick(inside: bool, pick: Pick) -> steps::Pick {
    if inside && pick.is_multiple_of(2) { steps::Pick::Own } else { steps::Pick::Any(pick.into()) }
}

impl Step {
    /// With what the executor has after it.
    pub(super) fn to_model(self) -> steps::Act {
        let act = match self {
            Step::Act(act) => act.to_model(false),
            Step::Park(busy) => steps::Act::Park(busy.to_model()),
            Step::Rare(Rare::ParkMany(plan, count)) => {
                steps::Act::ParkMany(count, plan.idle().to_model())
            }
            Step::Rare(Rare::ReadyAll) => steps::Act::SetAllFlags,
            Step::Rare(Rare::ToNext) => steps::Act::ToNext,
            Step::Rare(Rare::Jump(bits, by)) => steps::Act::Advance(far(bits, by)),
            Step::Rare(Rare::Pass(count)) => steps::Act::Pass(count.into()),
            Step::Rare(Rare::Snapshot(limit)) => steps::Act::Snapshot(limit.into()),
        };
        steps::Act::Several(vec![act, steps::Act::RunJobs])
    }
}

impl Act {
    fn to_model(self, inside: bool) -> steps::Act {
        let pick = |number| pick(inside, number);
        match self {
            Act::Park(plan) => steps::Act::Park(plan.idle().to_model()),
            Act::Ready(number) => steps::Act::SetFlag(steps::Pick::At(number)),
            Act::Event(key) => steps::Act::Event(key.to_model()),
            Act::Rise(key, by) => steps::Act::Rise(key.to_model(), (by % 8).into()),
            Act::TellLess(key, by) => steps::Act::Claim(key.to_model(), -i64::from(by % 8)),
            Act::CancelKey(key) => steps::Act::CancelKey(key.to_model()),
            Act::Cancel(number) => steps::Act::Cancel(pick(number)),
            Act::Complete(number) => steps::Act::Complete(pick(number)),
            Act::Reschedule(number, when) => steps::Act::Reschedule(pick(number), when.to_model()),
            Act::Defer(key) => steps::Act::Defer(key.to_model()),
            Act::DeferRise(key, by) => steps::Act::DeferRise(key.to_model(), (by % 8).into()),
            Act::RunDeferred => steps::Act::RunDeferred,
            Act::Advance(count) => steps::Act::Advance(count.into()),
            Act::Shutdown(rarely) => rarely.to_model(steps::Act::Shutdown),
            Act::ShutdownTimer(rarely) => rarely.to_model(steps::Act::ShutdownTimer),
            Act::DropHandle(rarely) => rarely.to_model(steps::Act::DropHandle),
        }
    }
}

impl Plan {
    /// With nothing else to do.
    fn idle(self) -> Busy {
        Busy { plan: self, on_check: None, then: None }
    }
}

impl Busy {
    fn to_model(self) -> Arc<steps::Plan> {
        let Busy { plan, on_check, then } = self;
        let times = if plan.twice { 2 } else { 1 };
        let named = (0..KEYS).filter(|key| plan.keys >> key & 1 == 1);
        let keys = named.flat_map(|key| std::iter::repeat_n(steps::Key::from(key + 1), times));
        let levels = plan.levels.map(|levels| [Some(levels.first), levels.second]);
        let level = |Level { key, by }: Level| (key.to_model(), u64::from(by % 8));
        let levels: Vec<_> = levels.into_iter().flatten().flatten().map(level).collect();
        let look = |at: u8| u32::from(at % 4) + 1;
        let ready = (!levels.is_empty()).then_some(steps::Condition::Levels);
        let true_at = plan.true_at.map(|at| steps::Condition::Look(look(at)));
        let again = plan.again % 8;
        let next = || Plan { again: again - 1, ..plan }.idle().to_model();
        let next = (again > 0).then(|| steps::Act::Park(next()));
        Arc::new(steps::Plan {
            keys: keys.collect(),
            many_keys: 0,
            levels,
            counted: plan.counted,
            timeout: plan.timeout.to_model(),
            conditions: [Some(steps::Condition::Flag), ready, true_at]
                .into_iter()
                .flatten()
                .collect(),
            panics_at: plan.panics_at.map(look),
            on_check: on_check.map(|(at, act)| (look(at), vec![act.to_model(true)])),
            then: then.map(|act| act.to_model(true)).into_iter().chain(next).collect(),
            then_panics: plan.then_panics,
            style: steps::Style::Callback,
        })
    }
}

impl When {
    fn to_model(self) -> steps::When {
        match self {
            When::Zero => steps::When::Zero,
            When::Soon(count) => steps::When::In(count.into()),
            When::Far(bits, by) => steps::When::In(far(bits, by)),
            When::Ago(count) => steps::When::At(-i64::from(count)),
            When::Longest => steps::When::Longest,
            When::Never => steps::When::Never,
        }
    }
}

/// So many quarters of a tick.
fn far(bits: u8, by: u8) -> u64 {
    u64::from(bits) << (by % 57)
}
