//! The absences that docs/ARCHITECTURE.md lists: what must not stand where. Code only; comments and
//! the tests beside the code may say what they like.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A source file without comments and without its tests.
struct Source {
    name: String,
    code: Vec<(usize, String)>,
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The sources of one crate, `name` as a path below its `src`, without the ending.
fn sources(of: &str) -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of).join("src");
    let mut paths = Vec::new();
    files(&src, &mut paths);
    // Without models, which are of tests, and recipes, which are their readers'.
    paths.retain(|path| {
        !["model", "guide/recipes/"].iter().any(|other| path.to_str().unwrap().contains(other))
    });
    assert!(paths.len() > 5, "{of} has its sources there");
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        let code = shipped.lines().enumerate().map(|(number, line)| {
            let code = line.split("//").next().unwrap();
            (number + 1, code.to_owned())
        });
        let name = path.strip_prefix(&src).unwrap().with_extension("");
        Source { name: name.to_str().unwrap().to_owned(), code: code.collect() }
    };
    paths.iter().map(read).collect()
}

/// Fails if one of `words` stands in the code of a file that `concerns` picks.
#[track_caller]
fn absent(of: &str, words: &[&str], concerns: impl Fn(&str) -> bool) {
    let mut looked_at = 0;
    for source in sources(of).iter().filter(|source| concerns(&source.name)) {
        looked_at += 1;
        for (number, line) in &source.code {
            let found = words.iter().find(|&&word| line.contains(word));
            assert_eq!(found, None, "{of}/src/{}.rs:{number}: {line}", source.name);
        }
    }
    assert!(looked_at > 0, "no file of {of} was looked at");
}

const OF_A_SHELL: [&str; 7] =
    ["Instant", "SystemTime", "Mutex", "RwLock", "Atomic", "thread", "crate::sync"];

#[test]
fn the_wheel_and_what_is_below_it_know_no_clock_lock_or_thread() {
    absent("timer-core", &OF_A_SHELL, |name| name.starts_with("wheel/"));
}

#[test]
fn no_failpoint_is_in_the_wheel_or_in_the_trait_of_a_timer() {
    absent("timer-core", &["failpoint", "planted"], |name| {
        name.starts_with("wheel/") || name == "timers/timer"
    });
}

#[test]
fn a_room_knows_no_clock_lock_or_thread() {
    let words = [&OF_A_SHELL[..], &["Ordering", ".lock("]].concat();
    absent("purgatory", &words, |name| name.starts_with("room/"));
}

#[test]
fn the_timer_knows_no_operations_and_the_purgatory_no_buckets() {
    absent("timer-core", &["operation", "Operation"], |_| true);
    absent("purgatory", &["bucket", "Bucket"], |name| name != "observe/metrics");
}

#[test]
fn only_the_clock_reads_the_time() {
    let reading = ["Instant", "SystemTime::", "elapsed"];
    let clocks = ["driver/clock", "driver/tokio"];
    absent("timer-core", &reading, |name| !clocks.contains(&name));
    absent("purgatory", &reading, |_| true);
}

#[test]
fn only_the_reaper_the_workers_wait_and_shutdown_block() {
    let blocking = ["parker.park", ".wait(", ".join(", ".recv(", "thread::sleep", "thread::{sleep"];
    absent("timer-core", &blocking, |name| {
        !["driver/reaper", "driver/executor", "timers/periodic", "driver/driver", "sync/model"]
            .contains(&name)
    });
    absent("timer-core", &["parker.park", ".wait(", ".recv("], |name| name == "driver/driver");
    absent("timer-core", &["parker.park", ".join(", ".recv("], |name| name == "timers/periodic");
    absent("purgatory", &["parker.park", ".join(", ".recv(", "thread::sleep"], |_| true);
    let futures = ["handles/wait", "handles/purgatory", "handles/monitor", "handles/watermarks"];
    absent("purgatory", &[".wait("], |name| !futures.contains(&name));
    absent("purgatory", &["thread::park"], |name| name != "handles/wait");
}

#[test]
fn loom_and_shuttle_are_known_to_sync_alone() {
    absent("timer-core", &["loom", "shuttle"], |name| !name.starts_with("sync/"));
    absent("purgatory", &["loom", "shuttle"], |name| {
        !name.starts_with("sync/") && name != "failpoints"
    });
}

#[test]
fn every_ending_is_called_back_in_one_place() {
    let places = |source: &Source| {
        let calls = source.code.iter().filter(|(_, line)| line.contains(".on_complete("));
        vec![source.name.clone(); calls.count()]
    };
    let endings = sources("purgatory");
    let of_paths = endings.iter().filter(|source| !source.name.starts_with("handles/"));
    let mut found: Vec<_> = of_paths.flat_map(places).collect();
    found.sort();
    assert_eq!(found, ["engine/complete"]);
}

/// Each function in docs/ARCHITECTURE.md's drawing of an operation's ways is one of the code.
#[test]
fn ways_of_an_operation_are_those_of_the_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let drawing = page.split("## The way of an operation").nth(1).unwrap();
    let drawing = drawing.split("```text").nth(1).unwrap().split("```").next().unwrap();
    let sources = sources("purgatory");
    let has = |function: &str| {
        let [plain, generic] = ["(", "<"].map(|end| format!("fn {function}{end}"));
        let lines = sources.iter().flat_map(|source| &source.code);
        lines.into_iter().any(|(_, line)| line.contains(&plain) || line.contains(&generic))
    };
    let mut steps = 0;
    for way in drawing.lines().filter(|line| !line.trim().is_empty()) {
        let (_, way) = way.split_once(' ').unwrap();
        for step in way.split(['>', ';', ',']) {
            let function = step.trim().rsplit("::").next().unwrap();
            assert!(has(function), "no function {function} in the code");
            steps += 1;
        }
    }
    assert!(steps > 20, "{steps} steps are drawn");
}
