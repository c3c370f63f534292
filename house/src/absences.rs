//! The absences that docs/ARCHITECTURE.md lists: words that must not stand in some files. Only code
//! counts, not comments, the tests beside the code, or the guide.
use crate::tree::modules;

/// Returns the files of a crate whose code has one of `words`.
fn with(of: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in modules(of) {
        let mut code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or(""));
        let has_word = code.any(|line| words.iter().any(|word| line.contains(word)));
        if has_word && !name.starts_with("guide/") {
            found.push(name);
        }
    }
    found
}

/// Fails if one of `words` stands in the code of a file below `below`.
#[track_caller]
fn absent(of: &str, below: &str, words: &[&str]) {
    assert!(modules(of).iter().any(|(name, _)| name.starts_with(below)));
    let mut found = with(of, words);
    found.retain(|name| name.starts_with(below));
    assert_eq!(found, [""; 0], "{of} has one of {words:?}");
}

const OF_A_SHELL: [&str; 8] = [
    "Instant",
    "SystemTime",
    "Mutex",
    "RwLock",
    ".lock(",
    "Atomic",
    "thread",
    "crate::sync",
];

#[test]
fn wheels_and_shards_know_no_clock_lock_or_thread() {
    absent("timer-core", "wheel/", &OF_A_SHELL);
    absent("purgatory", "shard/", &OF_A_SHELL);
    absent("purgatory", "shard/", &["Ordering"]);
}

#[test]
fn no_failpoint_is_in_the_wheel_or_the_trait_timer() {
    absent("timer-core", "wheel/", &["failpoint", "planted"]);
    absent("timer-core", "timers/timer", &["failpoint", "planted"]);
}

#[test]
fn timers_know_no_operations_nor_purgatories_buckets() {
    absent("timer-core", "", &["operation", "Operation"]);
    absent("purgatory", "", &["bucket", "Bucket"]);
}

#[test]
fn only_the_clock_reads_the_time() {
    let reading = ["Instant", "SystemTime::", "elapsed"];
    let clocks = ["driver/clock", "driver/tokio"];
    assert_eq!(with("timer-core", &reading), clocks);
    absent("purgatory", "", &reading);
}

#[test]
fn only_reaper_workers_waits_and_shutdown_block() {
    let threads = ["thread::park", "thread::sleep", ".recv("];
    let of_timers = [&threads[..], &["parker.park", ".wait", ".join("]].concat();
    let blocking = [
        "driver/driver",
        "driver/executor",
        "driver/reaper",
        "sync/mod",
        "sync/model",
        "timers/periodic",
    ];
    assert_eq!(with("timer-core", &of_timers), blocking);

    // Shards hold the latches of a form, on which `table/form` waits at its shutdown.
    let others = ["Condvar", "Parker", "Latch", "closing.wait", ".join()"];
    let of_forms = [&threads[..], &others].concat();
    let blocking = [
        "shard/entry",
        "shard/mod",
        "table/form",
        "table/frame",
        "wait",
    ];
    assert_eq!(with("purgatory", &of_forms), blocking);
}

#[test]
fn loom_is_known_to_sync_alone() {
    for of in ["timer-core", "purgatory"] {
        let mut found = with(of, &["loom"]);
        found.retain(|name| !name.starts_with("sync/"));
        assert_eq!(found, [""; 0], "{of}");
    }
}

/// `boxed` passes the call on to the operation that it wraps.
#[test]
fn every_ending_is_called_back_in_one_file() {
    let calls = with("purgatory", &[".on_complete("]);
    assert_eq!(calls, ["boxed", "engine/finish"]);
}
