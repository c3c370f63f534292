//! Steps at random.

use std::sync::Arc;

use proptest::prelude::*;

use crate::oracle::steps::{Act, Condition, KEYS, Key, Pick, Plan, Runs, Setup, Style, When};

fn key() -> impl Strategy<Value = Key> {
    1..=KEYS
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        2 => Just(Pick::Own),
        6 => (0u8..8).prop_map(Pick::Recent),
        2 => any::<u16>().prop_map(Pick::Any),
        1 => any::<u8>().prop_map(Pick::At),
    ]
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        2 => Just(When::Zero),
        14 => (1u64..100).prop_map(When::In),
        11 => (100u64..3000).prop_map(When::In),
        4 => (-8i64..80).prop_map(When::At),
        1 => Just(When::Longest),
        8 => Just(When::Never),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        10 => Just(Condition::Flag),
        4 => (1u32..6).prop_map(Condition::Look),
        4 => (key(), 0u64..12).prop_map(|(key, by)| Condition::Value(key, by)),
        6 => Just(Condition::Levels),
    ]
}

/// The keys, hundreds more of them, the watermarks.
fn watches() -> impl Strategy<Value = (Vec<Key>, u32, Vec<(Key, u64)>)> {
    let keys = |most| prop::collection::vec(key(), 1..=most);
    let above = || prop_oneof![40 => 0u64..10, 1 => Just(u64::MAX)];
    let levels = move |most| prop::collection::vec((key(), above()), 1..=most);
    prop_oneof![
        10 => keys(4).prop_map(|keys| (keys, 0, vec![])),
        1 => keys(12).prop_map(|keys| (keys, 0, vec![])),
        6 => levels(1).prop_map(|levels| (vec![], 0, levels)),
        5 => levels(5).prop_map(|levels| (vec![], 0, levels)),
        4 => (keys(3), levels(3)).prop_map(|(keys, levels)| (keys, 0, levels)),
    ]
}

fn plan(nested: BoxedStrategy<Act>) -> impl Strategy<Value = Arc<Plan>> {
    let looks = prop_oneof![1 => Just(1u32), 4 => Just(2), 1 => Just(3)];
    let in_check = prop_oneof![2 => nested.clone(), 1 => in_check()];
    let acts = prop::collection::vec(in_check, 1..4);
    let on_check = (looks, acts, prop::bool::weighted(0.2));
    let then = prop_oneof![
        600 => Just(vec![]),
        400 => prop::collection::vec(nested, 1..4),
        4 => flood(),
    ];
    let style = prop_oneof![
        6 => Just(Style::Callback),
        3 => Just(Style::Wait)
    ];
    let panics = (prop::option::weighted(0.06, 1u32..5), prop::bool::weighted(0.05));
    let rare =
        prop_oneof![300 => Just(None), 2 => (200u32..400).prop_map(Some), 1 => Just(Some(0))];
    let waits = (watches(), any::<bool>(), when(), condition(), rare);
    (waits, panics, prop::option::weighted(0.15, on_check), then, style).prop_map(
        |(waits, (panics_at, then_panics), on_check, then, style)| {
            let ((mut keys, _, mut levels), counted, timeout, condition, rare) = waits;
            if rare == Some(0) {
                (keys, levels) = (vec![], vec![]);
            }
            let many_keys = rare.unwrap_or(0);
            let panics_at = match on_check {
                Some((look, _, true)) => Some(look),
                _ => panics_at,
            };
            let on_check = on_check.map(|(look, acts, _)| (look, acts));
            Arc::new(Plan {
                keys,
                many_keys,
                levels,
                counted,
                timeout,
                conditions: vec![condition],
                panics_at,
                on_check,
                then,
                then_panics,
                style,
            })
        },
    )
}

/// Waits for its flag, or for nothing, and does no more than `then`.
fn simple(key: Key, condition: Condition, then: Vec<Act>) -> Plan {
    Plan { keys: vec![key], conditions: vec![condition], then, ..Plan::default() }
}

/// More callbacks than one call runs itself: operations that end at once.
fn flood() -> impl Strategy<Value = Vec<Act>> {
    let at_once = |key| Arc::new(simple(key, Condition::Look(1), vec![]));
    key().prop_map(move |key| vec![Act::ParkMany(250, at_once(key)); 5])
}

/// More than a walk takes at a time under one key, some of which end others that it has yet to come
/// by (or its last), and some park others behind them.
fn crowd() -> impl Strategy<Value = Act> {
    let ends = prop_oneof![
        any::<u16>().prop_map(|at| Act::Cancel(Pick::Any(at))),
        any::<u16>().prop_map(|at| Act::Complete(Pick::Any(at))),
        (0u8..200).prop_map(|back| Act::Cancel(Pick::Recent(back))),
        Just(Act::Cancel(Pick::Recent(0))),
    ];
    let by_check = (1u32..3).prop_map(Condition::Look);
    let condition = prop_oneof![3 => Just(Condition::Flag), 1 => by_check];
    let form = prop_oneof![1 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let then = (prop::collection::vec(ends, 1..3), any::<bool>());
    let crowd = (key(), 140u8..240, then, condition, form);
    crowd.prop_map(|(key, count, (mut then, parks), condition, form)| {
        if parks {
            then.push(Act::Park(Arc::new(simple(key, Condition::Flag, vec![]))));
        }
        let mut plan = simple(key, condition, then);
        let mut event = Act::Event(key);
        if let Some(counted) = form {
            (plan.keys, plan.levels, plan.counted) = (vec![], vec![(key, 1)], counted);
            event = Act::Rise(key, 1);
        }
        let idle = Act::ParkMany(9, Arc::new(simple(key, Condition::Flag, vec![])));
        let park = Act::ParkMany(count, Arc::new(plan));
        Act::Several(vec![idle, park, Act::SetAllFlags, event])
    })
}

/// What concerns the operation that is being checked, or others checked with it.
fn in_check() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Cancel(Pick::Own)),
        8 => Just(Act::Complete(Pick::Own)),
        8 => Just(Act::DropFuture(Pick::Own)),
        8 => Just(Act::SetFlag(Pick::Own)),
        8 => key().prop_map(Act::Event),
        4 => key().prop_map(Act::EventForOne),
        8 => key().prop_map(Act::CancelKey),
        8 => when().prop_map(|when| Act::Reschedule(Pick::Own, when)),
        8 => (0u64..100).prop_map(Act::Advance),
        1 => Just(Act::Shutdown),
    ]
}

/// What somebody does, parking operations whose checks and callbacks do `nested`; a step is done
/// often enough to keep the number of what is parked.
fn act(nested: Option<BoxedStrategy<Act>>, is_step: bool) -> BoxedStrategy<Act> {
    let number = |step, inside| if is_step { step } else { inside };
    let mut acts = vec![
        (7, pick().prop_map(Act::SetFlag).boxed()),
        (2, Just(Act::SetAllFlags).boxed()),
        (10, key().prop_map(Act::Event).boxed()),
        (5, key().prop_map(Act::EventForOne).boxed()),
        (2, prop::collection::vec(key(), 0..5).prop_map(Act::Events).boxed()),
        (10, (key(), 0u64..5).prop_map(|(key, by)| Act::Rise(key, by)).boxed()),
        (2, (key(), claim()).prop_map(|(key, by)| Act::Claim(key, by)).boxed()),
        (2, key().prop_map(Act::CancelKey).boxed()),
        (4, pick().prop_map(Act::Cancel).boxed()),
        (3, pick().prop_map(Act::Complete).boxed()),
        (4, (pick(), when()).prop_map(|(pick, when)| Act::Reschedule(pick, when)).boxed()),
        (number(8, 2), (0u64..60).prop_map(Act::Advance).boxed()),
        (number(5, 1), pick().prop_map(Act::Poll).boxed()),
        (3, pick().prop_map(Act::DropFuture).boxed()),
        (1, Just(Act::Block).boxed()),
        (number(7, 1), Just(Act::RunJob).boxed()),
    ];
    if is_step {
        acts.push((1, (100u64..20_000).prop_map(Act::Advance).boxed()));
        acts.push((1, (0u64..60).prop_map(Act::Pass).boxed()));
        acts.push((1, Just(Act::ToNext).boxed()));
        acts.push((1, Just(Act::RunJobs).boxed()));
    }
    acts.iter_mut().for_each(|(weight, _)| *weight *= 20);
    acts.push((number(1, 6), Just(Act::DropHandle).boxed()));
    acts.push((number(1, 4), Just(Act::Shutdown).boxed()));
    acts.push((1, Just(Act::ShutdownTimer).boxed()));
    if let Some(nested) = nested {
        let plan = plan(nested).boxed();
        acts.push((number(600, 200), plan.clone().prop_map(Act::Park).boxed()));
        let many = (20u8..200, plan).prop_map(|(count, plan)| Act::ParkMany(count, plan));
        acts.push((number(5, 1), many.boxed()));
        if is_step {
            acts.push((2, crowd().boxed()));
        }
    }
    prop::strategy::Union::new_weighted(acts).boxed()
}

fn claim() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -6i64..8, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

pub(super) fn step() -> BoxedStrategy<Act> {
    let innermost = act(None, false);
    let inner = act(Some(innermost), false);
    act(Some(inner), true)
}

pub(super) fn setup() -> impl Strategy<Value = Setup> {
    let max_parked = prop_oneof![
        14 => Just(None),
        1 => Just(Some(0)),
        4 => (1usize..12).prop_map(Some),
    ];
    let end = prop::sample::select(vec![Act::Shutdown, Act::ShutdownTimer, Act::DropHandle]);
    let tick_ns = prop::sample::select(vec![100_000, 777_777, 1_000_000, 1_000_000_000]);
    let slots = prop::sample::select(vec![2, 20, 64]);
    let executor = prop_oneof![
        7 => (Just(Runs::Inline), prop::bool::weighted(0.3)),
        2 => (Just(Runs::Kept), prop::bool::weighted(0.2)),
        1 => (Just(Runs::Dropped), prop::bool::weighted(0.2)),
    ];
    let rooms = prop::sample::select(vec![1, 2, 64]);
    (tick_ns, slots, 0u64..10_000_000, max_parked, rooms, executor, end).prop_map(
        |(tick_ns, slots, start_ns, max_parked, rooms, (executor, all_on_executor), end)| Setup {
            tick_ns,
            slots,
            start_ns,
            max_parked,
            operations_max: usize::MAX,
            rooms,
            executor,
            all_on_executor,
            end,
        },
    )
}
