//! The absences that docs/ARCHITECTURE.md lists: what must not stand where. Code only; comments and
//! the tests beside the code may say what they like.
use crate::tree::sources;

/// Fails if one of `words` stands in the code of a file that `concerns` picks.
#[track_caller]
fn absent(of: &str, words: &[&str], concerns: impl Fn(&str) -> bool) {
    let mut looked_at = 0;
    for (name, text) in sources(of).iter().filter(|(name, _)| concerns(name)) {
        looked_at += 1;
        for (at, line) in code(text).enumerate() {
            let found = words.iter().find(|&&word| line.contains(word));
            assert_eq!(found, None, "{of}/src/{name}.rs:{}: {line}", at + 1);
        }
    }
    assert!(looked_at > 0, "no file of {of} was looked at");
}

/// The lines of a text without their comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
}

const OF_A_SHELL: [&str; 7] = [
    "Instant",
    "SystemTime",
    "Mutex",
    "RwLock",
    "Atomic",
    "thread",
    "crate::sync",
];

#[test]
fn the_wheel_knows_no_clock_lock_or_thread() {
    absent("timer-core", &OF_A_SHELL, |name| name.starts_with("wheel/"));
}

#[test]
fn no_failpoint_is_in_the_wheel_or_the_trait_timer() {
    absent("timer-core", &["failpoint", "planted"], |name| {
        name.starts_with("wheel/") || name == "timers/timer"
    });
}

#[test]
fn a_shard_knows_no_clock_lock_or_thread() {
    let words = [&OF_A_SHELL[..], &["Ordering", ".lock("]].concat();
    absent("purgatory", &words, |name| name.starts_with("shard/"));
}

#[test]
fn timers_know_no_operations_nor_purgatories_buckets() {
    absent("timer-core", &["operation", "Operation"], |_| true);
    absent("purgatory", &["bucket", "Bucket"], |_| true);
}

#[test]
fn only_the_clock_reads_the_time() {
    let reading = ["Instant", "SystemTime::", "elapsed"];
    let clocks = ["driver/clock", "driver/tokio"];
    absent("timer-core", &reading, |name| !clocks.contains(&name));
    absent("purgatory", &reading, |_| true);
}

#[test]
fn only_reaper_workers_waits_and_shutdown_block() {
    let blocking = [
        "parker.park",
        ".wait(",
        ".join(",
        ".recv(",
        "thread::sleep",
        "thread::{sleep",
    ];
    absent("timer-core", &blocking, |name| {
        ![
            "driver/reaper",
            "driver/executor",
            "timers/periodic",
            "driver/driver",
            "sync/model",
        ]
        .contains(&name)
    });
    absent("timer-core", &["parker.park", ".recv("], |name| {
        name == "driver/driver"
    });
    absent("timer-core", &["parker.park", ".join(", ".recv("], |name| {
        name == "timers/periodic"
    });
    absent(
        "purgatory",
        &["parker.park", ".recv(", "thread::sleep"],
        |_| true,
    );
    // A member joins a replica set; nothing joins a thread.
    absent("purgatory", &[".join("], |name| {
        !name.starts_with("replica_sets/")
    });
    let futures = ["purgatory/end", "monitor"];
    // The `wait` of a shard and of an entry returns the wait that is there; `table/close` waits.
    let engines = ["table/", "replies/", "watermarks/", "permits/"];
    absent("purgatory", &[".wait("], |name| {
        !futures.contains(&name) && !engines.iter().any(|engine| name.starts_with(engine))
    });
    absent("purgatory", &["thread::park"], |name| name != "wait");
}

#[test]
fn loom_is_known_to_sync_alone() {
    absent("timer-core", &["loom"], |name| !name.starts_with("sync/"));
    absent("purgatory", &["loom"], |name| !name.starts_with("sync/"));
}

/// The wrappers at the crate's root hand the call on to the operation that they wrap.
#[test]
fn every_ending_is_called_back_in_one_file() {
    let mut found = Vec::new();
    for (name, text) in sources("purgatory") {
        let calls_back = code(&text).any(|line| line.contains(".on_complete("));
        if name.contains('/') && calls_back {
            found.push(name);
        }
    }
    assert_eq!(found, ["engine/finish"]);
}
