//! Calls have layers, as imports have. The methods of one type stand in several files, so a call
//! such as `self.finish(..)` needs no import, and files can call each other in circles that
//! [`layers`](crate::layers) does not see. This test follows the calls between the files of a
//! folder and fails on a circle, and on a call to a file above: `docs/ARCHITECTURE.md` has the
//! order.
//!
//! A call inside a closure counts where the closure stands, on whatever thread it runs. A call
//! through a trait object is not followed: a job's work is decided in the topmost file, behind a
//! trait or an enum.

mod graph;

use std::collections::BTreeSet;

use crate::{
    calls::graph::Calls,
    imports::in_circles,
    layers::Order,
    pending::{TANGLED, split},
    tree::{drawing, none, sources, text},
};

/// Folders whose files have an order, each with its crate. The order is in the page's line that
/// begins with the folder's name.
const FOLDERS: [(&str, &str); 5] = [
    ("purgatory", "engine"),
    ("purgatory", "shard"),
    ("timer-core", "driver"),
    ("timer-core", "timers"),
    ("timer-core", "wheel"),
];

#[test]
fn no_file_calls_upwards_or_in_a_circle() {
    let mut wrong = Vec::new();
    for (of, folder) in FOLDERS {
        let calls = Calls::between(&sources(of));
        let calls = calls.inside(folder);
        assert!(
            !calls.0.is_empty(),
            "{folder} has files that call each other"
        );
        for fault in faults(&calls, &Order::read(folder), folder) {
            wrong.push(format!("crates/{of}/src/{fault}"));
        }
    }
    none(split("calls", TANGLED, wrong));
}

/// The circles and the upward calls between the files of a folder.
fn faults(calls: &Calls, order: &Order, folder: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    // A call must lead to a lower place, and not be a part of a circle.
    let place = |file: &str| order.place(file.strip_prefix(folder)?.strip_prefix('/')?);
    let circle = in_circles(&calls.files());
    for call in &calls.0 {
        let in_circle = circle.contains(&call.from) && circle.contains(&call.to);
        let below = place(&call.from) > place(&call.to);
        if !below {
            wrong.push(format!("{call}, which is not below"));
        } else if in_circle {
            wrong.push(format!("{call}, in a circle of files"));
        }
    }
    // A file without a place would be above and below all others.
    let there: BTreeSet<&str> = calls.0.iter().map(|call| call.from.as_str()).collect();
    for file in there {
        if place(file).is_none() {
            wrong.push(format!("{file} is not in the order of {folder}"));
        }
    }
    wrong
}

/// In docs/ARCHITECTURE.md's drawing of an operation's ways each step after `>` is a call of the
/// step before it.
#[test]
fn ways_of_an_operation_are_those_of_the_code() {
    let page = text("docs/ARCHITECTURE.md");
    let calls = Calls::between(&sources("purgatory"));
    let mut wrong = Vec::new();
    let mut steps = 0;
    for way in drawing(&page, "## The way of an operation").lines() {
        // The first word of a line is the name of the way.
        let way = way.split_once(' ').map_or("", |(_, way)| way);
        for run in way.split(';') {
            let functions: Vec<&str> = run.split('>').map(str::trim).collect();
            for pair in functions.windows(2) {
                steps += 1;
                if !calls.has(pair[0], pair[1]) {
                    wrong.push(format!("{} does not call {}", pair[0], pair[1]));
                }
            }
        }
    }
    assert!(steps > 15, "{steps} steps are drawn");
    none(wrong);
}

/// The order `low < mid < high` of the folder `f`.
#[track_caller]
fn told(files: &[(&str, &str)]) -> Vec<String> {
    let mut named = Vec::new();
    for (name, text) in files {
        named.push((format!("f/{name}"), (*text).to_owned()));
    }
    let calls = Calls::between(&named).inside("f");
    faults(&calls, &Order::parse("low < mid < high"), "f")
}

const LOW: &str = "pub struct Core { list: Mutex<List> } pub struct List;
    impl Core { fn free(&self) {} fn list(&self) -> MutexGuard<'_, List> { self.list.lock() } }
    impl List { fn add_one(&mut self) {} }
    pub fn note() {}";

#[test]
fn a_call_upwards_is_told_however_it_is_written() {
    for code in [
        "impl Core { fn low(&self) { self.end_all() } }",
        "impl Core { fn low(self: &Arc<Self>) { let core = self.clone(); run(move || core.end_all()) } }",
        "impl Core { fn low(&self) { Self::end_all(self) } }",
        "impl Core { fn low(&self) { list.iter().map(Core::end_all); } }",
        "struct Guard<'a> { core: &'a Arc<Core> } impl Drop for Guard<'_> { fn drop(&mut self) { self.core.end_all() } }",
        "fn low(core: &Core) { assert!(core.end_all()); }",
        "fn low() { unknown().end_all() }",
        "use crate::f::high::end_now; fn low() { end_now() }",
        "use crate::f::high; fn low() { high::end_now() }",
        "use crate::f::high::end_now as now; fn low() { now() }",
    ] {
        let high = "impl Core { fn end_all(&self) {} } pub fn end_now() {}";
        let found = told(&[("low", &format!("{LOW} {code}")), ("high", high)]);
        assert_eq!(found.len(), 1, "{code}: {found:?}");
        assert!(found[0].contains("which is not below"), "{found:?}");
    }
}

#[test]
fn a_circle_of_calls_is_told() {
    let low = format!("{LOW} impl Core {{ fn take(&self) {{ self.recheck() }} }}");
    let high = "impl Core { fn recheck(&self) { self.settle() } }";
    let mid = "impl Core { fn settle(&self) { self.free(); self.take() } }";
    let found = told(&[("low", &low), ("mid", mid), ("high", high)]);
    let expected = [
        "f/high.rs:1: `recheck` calls `Core::settle` in f/mid, in a circle of files",
        "f/low.rs:4: `take` calls `Core::recheck` in f/high, which is not below",
        "f/mid.rs:1: `settle` calls `Core::free` in f/low, in a circle of files",
        "f/mid.rs:1: `settle` calls `Core::take` in f/low, in a circle of files",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_call_downwards_or_of_another_type_is_not_told() {
    let high = "impl Core { fn end_all(&self) {} } pub fn end_now() {}";
    for code in [
        "impl Core { fn mid(&self) { self.free(); self.list().add_one(); note() } }",
        "impl Other { fn end_all(&self) {} fn mid(&self) { self.end_all() } }",
        "struct Held { other: Other } impl Held { fn mid(&self) { self.other.end_all() } }",
        "fn mid(end_now: u8) { f(end_now) }",
        "#[cfg(test)] mod tests { fn mid(core: &Core) { core.end_all() } }",
        "/// [`Core::end_all`]\nfn mid() {}",
    ] {
        let found = told(&[("low", LOW), ("mid", code), ("high", high)]);
        assert_eq!(found, [""; 0], "{code}");
    }
}

#[test]
fn a_file_that_is_in_no_order_is_told() {
    let found = told(&[("low", LOW), ("new", "fn new(core: &Core) { core.free() }")]);
    let last = "f/new is not in the order of f";
    assert_eq!(found.last().map(String::as_str), Some(last));
}
