#!/usr/bin/env python3
"""Prints a table of the KB that each form adds to a binary, with the default features and without metrics.

Builds programs that use one form each, in a project of their own under target/sizes, with `--release` and
`strip = true`; subtracts the size of a program that does the same by hand, with a thread, a lock, a map and channels.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "target/sizes"
FEATURES = {"default features": [], "without `metrics`": ["--no-default-features", "--features", "parking_lot"]}

MANIFEST = """[package]
name = "sizes"
edition = "2024"
[features]
default = ["metrics", "parking_lot"]
metrics = ["purgatory/metrics"]
parking_lot = ["purgatory/parking_lot"]
[dependencies]
purgatory = { path = "../../crates/purgatory", default-features = false }
[profile.release]
strip = true
[workspace]
"""

BY_HAND = """
    let channels = Arc::new(Mutex::new(HashMap::new()));
    let (sender, receiver) = mpsc::channel();
    channels.lock().unwrap().insert(1, sender);
    let theirs = channels.clone();
    thread::spawn(move || theirs.lock().unwrap().remove(&1).map(|sender| sender.send(7)));
    println!("{:?}", receiver.recv_timeout(SECOND));"""

# The `main` of a program, by the form that it uses.
FORMS = {
    "`SystemTimer`, a task": """
    let (sender, receiver) = mpsc::channel();
    let timer = timer_core::SystemTimer::new().unwrap();
    timer.schedule(Duration::from_millis(1), move || sender.send(7).unwrap()).unwrap();
    println!("{:?}", receiver.recv_timeout(SECOND));""",
    "`Replies`": """
    let replies = purgatory::Replies::<u64, u64>::new("replies").unwrap();
    let reply = replies.expect(1, SECOND).unwrap();
    replies.deliver(&1, 7).unwrap();
    println!("{:?}", reply.wait_blocking());""",
    "`Watermarks`": """
    let log_ends = purgatory::Watermarks::<u64>::new("log ends").unwrap();
    let fetch = log_ends.wait_for(&1, 7, SECOND);
    log_ends.advance(&1, 7).unwrap();
    println!("{:?}", fetch.wait_blocking());""",
    "`Permits`": """
    let permits = purgatory::Permits::new("permits", 1).unwrap();
    let permit = permits.acquire(1, SECOND).wait_blocking();
    println!("{:?} {}", permit.is_ok(), permits.taken());""",
    "`Purgatory::wait`": """
    let waits = purgatory::Purgatory::<u64>::new("waits").unwrap();
    let done = Arc::new(Mutex::new(false));
    let seen = done.clone();
    let wait = waits.wait(&[1], SECOND, move || *seen.lock().unwrap());
    *done.lock().unwrap() = true;
    println!("{} {:?}", waits.check_and_complete(&1), wait.wait_blocking());""",
}


def write_programs(mains):
    """Writes a program for each `main`, named by its number."""
    programs = PROJECT / "src/bin"
    programs.mkdir(parents=True, exist_ok=True)
    (PROJECT / "Cargo.toml").write_text(MANIFEST)
    shutil.copy(ROOT / "Cargo.lock", PROJECT / "Cargo.lock")
    for number, main in enumerate(mains):
        used = "use std::{collections::HashMap, sync::{mpsc, Arc, Mutex}, thread, time::Duration};"
        text = f"#![allow(unused)]\n{used}\nuse purgatory::timer_core;\n"
        text += f"const SECOND: Duration = Duration::from_secs(1);\nfn main() {{{main}\n}}\n"
        (programs / f"program{number}.rs").write_text(text)


def sizes(count, features):
    """Builds the programs with these features; returns their sizes in bytes."""
    print(f"building {count} programs: {' '.join(features) or 'default features'}", file=sys.stderr)
    subprocess.run(["cargo", "build", "--quiet", "--release", *features], cwd=PROJECT, check=True)
    return [(PROJECT / f"target/release/program{number}").stat().st_size for number in range(count)]


def main():
    mains = [BY_HAND, *FORMS.values()]
    write_programs(mains)
    built = [sizes(len(mains), features) for features in FEATURES.values()]
    print("| adds, in KB | " + " | ".join(FEATURES) + " |")
    print("|---|" + "---|" * len(FEATURES))
    for number, form in enumerate(FORMS, start=1):
        added = [(of[number] - of[0]) / 1000 for of in built]
        print(f"| {form} | " + " | ".join(f"{kilobytes:.0f}" for kilobytes in added) + " |")


if __name__ == "__main__":
    main()
