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
    let pure = ["wheel", "geometry", "delay_queue", "task_list", "arena", "pages", "tick"]
        .map(String::from);
    for file in &pure {
        absent("timer-core", &OF_A_SHELL, |name| name == file);
    }
}

#[test]
fn the_state_machine_and_the_lists_know_no_clock_lock_or_thread() {
    let words = &OF_A_SHELL[..6]; // `entry` asks `sync` whether a model planted a fault
    absent("purgatory", words, |name| name == "entry");
    for file in ["watch/stripe", "watch/records", "watch/heap"] {
        absent("purgatory", words, |name| name == file);
    }
}

#[test]
fn the_timer_knows_no_operations_and_the_purgatory_no_buckets() {
    absent("timer-core", &["operation", "Operation"], |_| true);
    absent("purgatory", &["bucket", "Bucket"], |name| name != "metrics");
}

#[test]
fn only_the_clock_reads_the_time() {
    let reading = ["Instant", "SystemTime::", "elapsed"];
    absent("timer-core", &reading, |name| name != "clock");
    absent("timer-core", &["clock_gettime"], |name| name != "boot_clock");
    absent("purgatory", &reading, |_| true);
}

#[test]
fn only_the_reaper_the_workers_wait_and_shutdown_block() {
    let blocking = ["parker.park", ".wait(", ".join(", ".recv(", "sleep("];
    absent("timer-core", &blocking, |name| {
        !["reaper", "executor", "system", "sync"].contains(&name)
    });
    absent("timer-core", &["parker.park", ".wait(", ".recv("], |name| name == "system");
    absent("purgatory", &blocking, |name| name != "wait");
    absent("purgatory", &["thread::park"], |name| name != "wait");
}

#[test]
fn loom_and_shuttle_are_known_to_sync_alone() {
    absent("timer-core", &["loom", "shuttle"], |name| name != "sync");
    absent("purgatory", &["loom", "shuttle"], |name| name != "sync");
}
