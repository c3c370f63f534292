#!/usr/bin/env python3
"""Counts what the commonest calls do to a machine with many processors: lock holds, and cache lines that move.

    benches/lines.py                   builds `peers`, and prints a table for 1 to 64 processors
    benches/lines.py --calls 2048      makes more calls of each kind

Valgrind's lackey lists each instruction and each access to memory of the program `peers --calls`, which makes the
calls one after the other on one thread. The rest is a model. There are N processors, each with a cache that
loses nothing. Each call runs alone on one of them, drawn at random, so no call waits for a lock. A line *moves*
when a processor reads or writes it without having it while another processor has it, and when a processor writes
a line that another has as well. The reply of `Replies` is taken where it was expected. In `home`, all calls on a
key run on one processor, as when each thread has keys of its own.

The stack, thread-locals, the allocator's cache of the thread, and the program's own data (the operations'
conditions and counts) are left out. A lock hold is a pair of atomic accesses to one byte, as a mutex of
parking_lot makes them. `held` counts the instructions between the two.

Figures are means of a call; an expiry is one of 512 that are due at once, and includes its share of the
visits to all shards. Needs valgrind, binutils (x86-64) and 1 GB for temporary files, and takes some minutes.
"""
import argparse
import collections
import os
import random
import subprocess
import sys
import tempfile

from instructions import Atomics, build

PROCESSORS = [1, 2, 4, 16, 64]
# The kinds of calls, in the order of their marks in `peers --calls`; the first mark ends a call.
KINDS = ["end", "Other", "Park", "Event", "Advance", "Expect", "Deliver", "Take", "Cancel", "Expire"]
KINDS += ["ParkThree", "EventThree"]
# The kinds in the table, each with its name and the number of operations of a call.
ROWS = [
    ("Park", "park, one key", 1),
    ("Event", "event, one waiter", 1),
    ("Advance", "advance, one waiter", 1),
    ("Expect", "`expect` and first poll", 1),
    ("Deliver", "`deliver`", 1),
    ("Take", "last poll", 1),
    ("Cancel", "cancel, by id", 1),
    ("Expire", "expire, 512 at once", 512),
    ("ParkThree", "park, three keys", 1),
    ("EventThree", "event, three keys", 1),
]

LINE = 64

# The counts of one call.
Call = collections.namedtuple("Call", "kind instructions atomics holds held lines")


class Places:
    """The places in the process's memory, as the program printed them."""

    def __init__(self, said):
        words = dict(line.split(" ", 1) for line in said if not line.startswith("call "))
        self.base = int(words["base"].split("-")[0], 16)
        bench, size = words["bench"].split()
        self.marks = int(bench, 16)
        stack = int(words["stack"], 16)
        local = int(words["local"], 16)
        # The allocator keeps the thread's cache at the start of the heap.
        heap = int(words["heap"].split("-")[0], 16) if words["heap"].strip() else 0
        self.left_out = [
            (self.marks, self.marks + int(size)),
            (stack - (1 << 20), stack + (1 << 16)),
            (local - 0x2000, local + 0x2000),
            (heap, heap + 0x300),
        ]

    def counts(self, address):
        return not any(begin <= address < end for begin, end in self.left_out)


def calls_of(trace, places, atomics):
    """Reads lackey's list; yields each marked call."""
    ends = places.marks
    kind = None
    atomic = locked = False
    for line in trace:
        what = line[:2]
        if what == "I ":
            atomic = int(line[3:].split(",")[0], 16) - places.base in atomics
            if kind:
                instructions += 1
                atomic_count += atomic
                held += locked
            continue
        if line[:1] != " ":
            continue
        address, size = line[3:].split(",")
        address = int(address, 16)
        if ends <= address < ends + 64:
            if address == ends and kind:
                yield Call(kind, instructions, atomic_count, locks / 2, held, lines)
                kind = None
            elif address != ends:
                kind = KINDS[address - ends]
                instructions = atomic_count = locks = held = 0
                lines = {}
            continue
        if kind and places.counts(address):
            wrote = line[1] != "L"
            for at in range(address // LINE, (address + int(size) - 1) // LINE + 1):
                lines[at] = lines.get(at, False) or wrote
            if atomic and int(size) == 1:
                locks += 1
                locked = locks % 2 == 1


def moved(calls, keys, processors, home):
    """Counts the lines that move, by kind of call.

    Line 1 is written by each call, so it moves with every change of processor. Line 2 is only read, so
    each processor gets it once.

    >>> lines = {1: True, 2: False}
    >>> calls = [Call("Park", 0, 0, 0, 0, lines)] * 4
    >>> moved(calls, [0, 0, 0, 0], 2, home=True)["Park"]
    0
    >>> moved(calls, [0, 1, 0, 1], 2, home=True)["Park"]
    4

    Two processors read a line, and one of them writes it: the other loses it.

    >>> calls = [Call(kind, 0, 0, 0, 0, {1: kind == "Event"}) for kind in ["Park", "Park", "Event", "Park"]]
    >>> moved(calls, [0, 1, 1, 0], 2, home=True)
    Counter({'Park': 2, 'Event': 1})
    """
    draw = random.Random(1)
    # The processors that have a line, as bits, by line.
    having = {}
    expected_on = {}
    moves = collections.Counter()
    for call, key in zip(calls, keys):
        here = key % processors if home else draw.randrange(processors)
        # Timers expire on a thread of their own, and a reply is taken where it was expected.
        if call.kind == "Expire":
            here = 0
        elif call.kind == "Expect":
            expected_on[key] = here
        elif call.kind == "Take":
            here = expected_on.get(key, here)
        bit = 1 << here
        for line, wrote in call.lines.items():
            have = having.get(line, 0)
            if have and (not have & bit or (wrote and have != bit)):
                moves[call.kind] += 1
            having[line] = bit if wrote else have | bit
    return moves


def table(calls, keys):
    """Prints a Markdown table."""
    head = ["call", "instructions", "held", "atomics", "lock holds", "lines", "written"]
    head += [f"moves, {n}" for n in PROCESSORS] + [f"home, {PROCESSORS[-1]}"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    columns = [moved(calls, keys, n, False) for n in PROCESSORS] + [moved(calls, keys, PROCESSORS[-1], True)]
    for kind, name, operations in ROWS:
        of_kind = [call for call in calls if call.kind == kind]
        count = len(of_kind) * operations
        mean = lambda total: total / count
        cells = [
            name,
            f"{mean(sum(call.instructions for call in of_kind)):.0f}",
            f"{mean(sum(call.held for call in of_kind)):.0f}",
            f"{mean(sum(call.atomics for call in of_kind)):.1f}",
            f"{mean(sum(call.holds for call in of_kind)):.1f}",
            f"{mean(sum(len(call.lines) for call in of_kind)):.1f}",
            f"{mean(sum(sum(call.lines.values()) for call in of_kind)):.1f}",
        ]
        cells += [f"{mean(moves[kind]):.1f}" for moves in columns]
        print("| " + " | ".join(cells) + " |")


def traced(binary, calls):
    """Runs the program under lackey; returns the marked calls and their keys."""
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "trace")
        command = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-file={pipe}"]
        command += [str(binary), "--calls", str(calls)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        said = done.stdout.splitlines()
        made = [line.split() for line in said if line.startswith("call ")]
        with open(pipe, encoding="utf-8") as trace:
            found = list(calls_of(trace, Places(said), Atomics.disassembled(str(binary))))
    if [call.kind for call in found] != [kind for _, kind, _ in made]:
        sys.exit(f"{len(found)} calls in the trace, and {len(made)} were made")
    return found, [int(key) for _, _, key in made]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("binary", nargs="?", help="a build of peers; this working tree's when left out")
    arguments.add_argument("--calls", type=int, default=1024, help="calls of each kind")
    given = arguments.parse_args()
    table(*traced(given.binary or build(), given.calls))


if __name__ == "__main__":
    main()
