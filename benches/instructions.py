#!/usr/bin/env python3
"""Counts the cost of an operation: instructions, atomic instructions and misses of the first data cache.

    benches/instructions.py                   builds `peers` and counts each row, ours and hand-written
    benches/instructions.py BEFORE AFTER      counts the same with two builds of `peers`, and compares
    benches/instructions.py --row MEASURE     counts one measure; may be given more than once
    benches/instructions.py --by-hand         counts the best by hand, instead of what programs have

A clock says little on a shared machine; counts differ by some hundredth from run to run (hash
seeds and the bucket of a deadline vary). Each figure is the difference between two runs of `peers`, one
with few operations and one with many, divided by the difference in operations, so that starting and
ending the process does not count. Both are medians of three runs. All threads count, including the
reaper's and the runtime's.

Callgrind executes the program and models a 32 KiB first-level cache, 8-way, with lines of 64 bytes,
whatever the machine has. A locked instruction or an exchange with memory counts as atomic (x86-64). Needs
valgrind and binutils, and takes about ten minutes a build.
"""
import argparse
import collections
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

# Operations of a round, in the short run and in the long one. Multiples of 512, so that the windows of
# all rows are full.
FEW = 4096
MANY = 20480

# The number of runs; their median counts.
RUNS = 3

# The work of a row, for N operations a round: `park` and `queue-…` warm up with N; the others warm up with
# an eighth of N, and do two rounds for each that is requested. With two threads, each parks N.
PARK = 2.0
PARK_TWO = 2 * PARK
OTHERS = 2 * (1 + 1 / 8)
QUEUE = 2.0

# The measure, its factor, and its contenders.
ROWS = [
    ("park-complete-1key-callback", PARK, ["ours", "dashmap-oneshot"]),
    ("park-complete-1key-future", PARK, ["ours", "dashmap-oneshot"]),
    ("park-complete-3keys-callback", PARK, ["ours", "dashmap-oneshot"]),
    ("acks-all-1t-callback", OTHERS, ["ours", "btree-map"]),
    ("acks-all-1t-future", OTHERS, ["ours", "dashmap-oneshot"]),
    ("replica-set-3", OTHERS, ["ours", "btree-map"]),
    ("replies-1t", OTHERS, ["ours", "dashmap-oneshot"]),
    ("permits-free", OTHERS, ["ours", "tokio-semaphore"]),
    ("permits-queue", OTHERS, ["ours", "tokio-semaphore"]),
    ("queue-insert-remove", QUEUE, ["ours", "delay-queue"]),
    ("queue-poll-idle", QUEUE, ["ours", "delay-queue"]),
]

# Contenders in which requests wait under one key, or for a reply, with the best by hand.
FUTURES = ["ours", "dashmap-oneshot", "wakers-timeout", "wakers-sweep"]
CALLBACKS = ["ours", "dashmap-oneshot", "callbacks-sweep"]
REPLIES = ["ours", "dashmap-oneshot", "slots-timeout", "slots-sweep"]
BY_HAND = [
    ("park-complete-1key-callback", PARK, CALLBACKS),
    ("park-complete-1key-future", PARK, FUTURES),
    ("park-complete-2t-other-keys-future", PARK_TWO, FUTURES),
    ("replies-1t", OTHERS, REPLIES),
    ("replies-2t", OTHERS, REPLIES),
]

ROOT = pathlib.Path(__file__).resolve().parent.parent

CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64"]

# One instruction of a disassembly: its address, and its text.
DISASSEMBLED = re.compile(r"^\s*([0-9a-f]+):\s+(.*)$")
# An exchange with memory is atomic without a prefix.
ATOMIC = re.compile(r"^lock\b|^xchg.*\(")

Cost = collections.namedtuple("Cost", "instructions atomics misses")


def build():
    """Builds `peers` of this working tree; returns its path."""
    command = ["cargo", "build", "--release", "-p", "purgatory-benches", "--bin", "peers"]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / "target/release/peers"


class Atomics:
    """The addresses of atomic instructions, by object file."""

    def __init__(self):
        self.known = {}

    def of(self, path):
        if path not in self.known:
            self.known[path] = self.disassembled(path)
        return self.known[path]

    @staticmethod
    def disassembled(path):
        # Callgrind writes `???` for code that it cannot name; the kernel's page is not a file either.
        if not pathlib.Path(path).is_file():
            return frozenset()
        command = ["objdump", "--disassemble", "--no-show-raw-insn", path]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = (DISASSEMBLED.match(line) for line in listing.splitlines())
        return frozenset(int(line[1], 16) for line in found if line and ATOMIC.match(line[2]))


def counted(profile, atomics):
    """Sums up a profile of callgrind, which has a line for each instruction."""
    column = {}
    here = frozenset()
    calls = False
    total = collections.Counter()
    for line in profile:
        if line.startswith("events:"):
            column = {name: at + 2 for at, name in enumerate(line.split()[1:])}
        elif line.startswith("ob="):
            here = atomics.of(line[3:].strip())
        elif line.startswith("calls="):
            # The line below a call has the callee's cost, which is counted in the callee.
            calls = True
        elif line.startswith("0x"):
            if calls:
                calls = False
                continue
            fields = line.split()

            def event(name):
                # Callgrind leaves out zeros at the end of a line.
                at = column[name]
                return int(fields[at]) if at < len(fields) else 0

            executed = event("Ir")
            total["instructions"] += executed
            total["misses"] += event("D1mr") + event("D1mw")
            if int(fields[0], 16) in here:
                total["atomics"] += executed
    return Cost(total["instructions"], total["atomics"], total["misses"])


def median_of_runs(binary, measure, contender, operations, atomics):
    """Counts some runs of `peers`; returns the median of each count."""
    runs = [run(binary, measure, contender, operations, atomics) for _ in range(RUNS)]
    return Cost(*map(statistics.median, zip(*runs)))


def run(binary, measure, contender, operations, atomics):
    """Counts one run of `peers`."""
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / "profile"
        callgrind = ["valgrind", "--quiet", "--tool=callgrind", "--dump-instr=yes", *CACHES]
        callgrind += ["--compress-strings=no", "--compress-pos=no", f"--callgrind-out-file={profile}"]
        peers = [str(binary), "--rounds", "1", "--operations", str(operations)]
        peers += ["--only", measure, "--contender", contender]
        done = subprocess.run(callgrind + peers, capture_output=True, text=True)
        # After a wrong name or a failed self-check the counts would mean nothing.
        if done.returncode != 0 or measure not in done.stdout:
            sys.exit(f"{' '.join(peers)} failed:\n{done.stdout}{done.stderr}")
        with open(profile, encoding="utf-8") as lines:
            return counted(lines, atomics)


def cost(binary, measure, factor, contender, atomics):
    """Returns the cost of one operation."""
    few = median_of_runs(binary, measure, contender, FEW, atomics)
    many = median_of_runs(binary, measure, contender, MANY, atomics)
    operations = (MANY - FEW) * factor
    return Cost(*((more - less) / operations for more, less in zip(many, few)))


def table(rows, binaries):
    """Prints a Markdown table, each line as soon as it is counted."""
    compared = len(binaries) > 1
    head = ["row", "contender"] + ["build"] * compared
    head += ["instructions", "atomics", "D1 misses"] + ["times the first"] * compared
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    atomics = Atomics()
    for measure, factor, contenders in rows:
        for contender in contenders:
            first = None
            for binary in binaries:
                one = cost(binary, measure, factor, contender, atomics)
                first = first or one
                cells = [measure, contender] + [pathlib.Path(binary).name] * compared
                cells += [f"{one.instructions:.0f}", f"{one.atomics:.1f}", f"{round(one.misses, 1) + 0.0:.1f}"]
                cells += [f"{one.instructions / first.instructions:.3f}"] * compared
                print("| " + " | ".join(cells) + " |", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("binary", nargs="*", help="a build of peers; this working tree's when left out")
    arguments.add_argument("--row", action="append", help="a measure, such as replies-1t; all when left out")
    arguments.add_argument("--by-hand", action="store_true", help="the best waits and replies by hand")
    arguments.add_argument("--ours", action="store_true", help="leave out what is hand-written")
    given = arguments.parse_args()

    all_rows = BY_HAND if given.by_hand else ROWS
    rows = [row for row in all_rows if not given.row or row[0] in given.row]
    if not rows:
        arguments.error(f"no such row; there are {', '.join(row[0] for row in all_rows)}")
    if given.ours:
        rows = [(measure, factor, ["ours"]) for measure, factor, _ in rows]
    table(rows, given.binary or [build()])


if __name__ == "__main__":
    main()
