#!/usr/bin/env python3
"""Runs the benches, keeps the tables that they print in benches/results, and writes them into the pages.

    benches/tables.py measure [NAME ...]   run the commands of these records, or of all; then write the pages
    ... | benches/tables.py record NAME    keep the Markdown tables that a command prints
    benches/tables.py                      write the tables between the marks of the pages
    benches/tables.py --check              fail if a page has other figures

A mark is a line <!-- NAME --> before a table and a line <!-- end --> after it. A line above each table names its date,
commit and machine, unless they are those of the first table. README's table has the rows of COSTS. The tables of
`peers` and `bytes` have the rows of ASKED, each with the best of what programs have and the best by hand. Of other
records a page may show fewer rows and columns. Times need a quiet machine; counts (COUNTED) do not.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches/results"
PAGES = ["README.md", "docs/BENCHMARKS.md"]

# The command of each record.
BIN = "cargo run --release -p purgatory-benches --bin"
COUNTED = {
    "instructions": "benches/instructions.py",
    "by_hand": "benches/instructions.py --by-hand",
    "lines": "benches/lines.py",
}
COMMANDS = {
    **COUNTED,
    "peers": f"{BIN} peers",
    "bytes": f"{BIN} peers --features count-allocations -- --only bytes --only make-drop-allocations",
    "purgatory_perf": f"{BIN} purgatory_perf",
    "schemes": f"{BIN} schemes",
    "sizes": "benches/sizes.py",
}

# The rows that README quotes: each in words, and the row of `peers`.
COSTS = [("park and complete, a callback", "park-complete-1key-callback"),
         ("park and complete, a future", "park-complete-1key-future"),
         ("expect a reply and deliver it", "replies-1t")]

# The rows of `peers` and `bytes` that the pages show; the records have all rows.
ASKED = """
schedule-cancel-1t-1m random-replace-1m lateness-1m-per-s-p99 park-complete-1key-callback
park-complete-3keys-callback park-complete-2t-other-keys-callback park-complete-1key-future
park-complete-2t-other-keys-future park-complete-1m-1key-future hot-key-future acks-all-1t-callback acks-all-1t-future
replica-set-3 replies-1t replies-2t permits-free permits-queue poll-loop-late-p99 expire-operations-callback-p50
expire-operations-callback-p99 scale-id-1key-1t scale-event-1key-1t scale-event-3keys-1t
make-drop-future
bytes-per-timer bytes-per-parked-1key-callback bytes-per-parked-1key-future bytes-idle-callback bytes-100-future
""".split()

# The rows and columns of counted records that the pages show.
COUNTED_ROWS = {
    "instructions": """park-complete-1key-callback acks-all-1t-callback acks-all-1t-future replica-set-3 permits-queue
                       queue-insert-remove""".split(),
    "by_hand": ["park-complete-1key-callback", "park-complete-1key-future", "replies-1t"],
    "lines": ["park, one key", "event, one waiter", "advance, one waiter", "`expect` and first poll", "`deliver`",
              "last poll", "cancel, by id", "expire, 512 at once", "park, three keys", "event, three keys"],
}
COLUMNS = {
    "instructions": ["row", "contender", "instructions", "atomics"],
    "by_hand": ["row", "contender", "instructions", "atomics"],
    "lines": ["call", "instructions", "held", "lock holds", "moves, 64"],
}

# Contenders that an expert writes for one purpose; the others are what programs commonly have.
BY_HAND = ["btree-map", "callbacks-sweep", "mutex-oneshot", "slots-sweep", "slots-timeout", "wakers-sweep",
           "wakers-timeout"]

# Measures in which ours is compared with itself: their tables are shown unchanged.
OURSELVES = ["observed", "publish-nothing-parked"]


def cells(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def tables_in(lines):
    """Returns the Markdown tables among these lines, each as a list of rows of cells."""
    tables, inside = [], False
    for line in lines:
        row = line.startswith("|")
        if row and not inside:
            tables.append([])
        if row and not set(line.strip()) <= set("|-: "):
            tables[-1].append(cells(line))
        inside = row
    return tables


def read(name):
    """Returns the comment of a record, and its tables."""
    about, tables = "", [[]]
    for line in (RESULTS / f"{name}.tsv").read_text().splitlines():
        if line.startswith("# "):
            about = line[2:]
        elif line:
            tables[-1].append(line.split("\t"))
        else:
            tables.append([])
    return about, tables


def record(name, lines):
    tables = tables_in(lines)
    if not tables:
        sys.exit(f"FAILED: no table for {name}")
    parts = ["\n".join("\t".join(row) for row in table) + "\n" for table in tables]
    (RESULTS / f"{name}.tsv").write_text(f"# {made(name)}\n" + "\n".join(parts))


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def made(name):
    """Describes a record that is made now: the date, the commit of the libraries, the machine and the tools."""
    sources = [":(glob)crates/*/src/**/*.rs"]
    commit = output("git", "log", "-1", "--format=%h", "--", *sources)
    changed = " and changes" if output("git", "status", "--porcelain", "--", *sources) else ""
    cpu = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    cpu = {key.strip(): value.strip() for key, value in cpu.items()}
    kind = "virtual machine, " if "hypervisor" in cpu.get("flags", "").split() else ""
    about = f"{time.strftime('%B %Y')}, commit {commit}{changed}, {kind}{os.cpu_count()} cores of an {cpu['model name']}, "
    about += " ".join(output("rustc", "--version").split()[:2])
    return about + (", " + output("valgrind", "--version").replace("-", " ") if name in COUNTED else "")


def measure(names):
    """Runs the commands one after the other, shows their output, and records it."""
    unknown = [name for name in names if name not in COMMANDS]
    if unknown:
        sys.exit(f"no such record: {unknown}; there are {', '.join(COMMANDS)}")
    for name in names or COMMANDS:
        begun, lines = time.monotonic(), []
        if name not in COUNTED and os.getloadavg()[0] > 0.5:
            print(f"the machine is busy: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        print(f"{name}: {COMMANDS[name]}", file=sys.stderr)
        with subprocess.Popen(COMMANDS[name].split(), cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
            for line in program.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
        if program.returncode != 0:
            sys.exit(f"FAILED: {name}: {COMMANDS[name]}")
        record(name, lines)
        print(f"{name}: {(time.monotonic() - begun) / 60:.1f} min", file=sys.stderr)


def markdown(table):
    head, *rows = table
    return ["| " + " | ".join(row) + " |" if row else "|" + "---|" * len(head) for row in [head, [], *rows]]


def costs():
    """Returns a short table of some rows, with the best of each in bold, as in the record."""
    about, tables = read("peers")
    short = [["in ns", "ours", "hand-written, a map of oneshots", "one lock and a sweep", "row"]]
    rows = by_name(tables)
    for words, name in COSTS:
        row = rows[name]
        sweep = next(row[contender] for contender in row if contender.endswith("-sweep"))
        short.append([words, row["ours"], row["dashmap-oneshot"], sweep, f"`{name}`"])
    return [*markdown(short), "", f"Bold is fastest, by `{COMMANDS['peers']}`",
            f"([more rows](docs/BENCHMARKS.md); {about}).",
            "One lock and a sweep, by hand, are [cheaper](docs/BENCHMARKS.md#the-best-by-hand)."]


def by_name(tables):
    """Returns the rows of tables by name, each a dictionary by column."""
    return {row[0]: dict(zip(table[0], row)) for table in tables for row in table[1:]}


def number(cell):
    return float(cell.strip("*").replace(" ", ""))


def best(row, contenders):
    """Returns the least figure among these contenders of a row, with the contender's name."""
    there = [name for name in contenders if row.get(name)]
    if not there:
        return ""
    name = min(there, key=lambda name: number(row[name]))
    return f"{row[name]} ({name})"


def asked(tables):
    """Returns the rows of ASKED, each with the best of two kinds of contenders."""
    rows = by_name(tables)
    short = [["row", "ours", "what programs have", "the best by hand"]]
    for name in ASKED:
        if name not in rows:
            continue  # the other record has it
        row = rows[name]
        others = [contender for contender in row if contender not in ["row", "unit", "ours", *BY_HAND]]
        short.append([f"`{name}`", f"{row['ours']} {row['unit']}", best(row, others), best(row, BY_HAND)])
    return [short, *(table for table in tables if table[1][0] in OURSELVES)]


def selected(name, table):
    """Returns the rows and columns of a table that the page shows, always with the first column."""
    if name in COUNTED_ROWS:
        table = [table[0], *(row for row in table if row[0] in COUNTED_ROWS[name])]
    columns = COLUMNS.get(name, table[0])
    kept = [at for at, head in enumerate(table[0]) if at == 0 or head in columns]
    return [[row[at] for at in kept] for row in table]


def side_by_side(tables):
    """Joins the last columns of all tables by their first columns; a head is the words before its first comma."""
    rows = {row[0]: [row[0]] for row in tables[0][1:]}
    for table in tables:
        last = {row[0]: row[-1] for row in table[1:]}
        for name in rows:
            rows[name].append(last.get(name, ""))
    heads = [table[0][0].split(",")[0] for table in tables]
    return [[tables[0][0][-1], *heads], *rows.values()]


def made_beside(name, about):
    """Describes when and where a record was made, without the parts that `peers`, the page's first table, names."""
    first, _ = read("peers")
    own = [part for part in about.split(", ") if part not in first.split(", ")]
    # A record that names no compiler may have been made with another.
    if name == "peers" or "rustc" not in about:
        return about
    told = ", ".join([*own, "otherwise as the first table"]) if own else "as the first table"
    return told[0].upper() + told[1:]


def block(name):
    if name == "costs":
        return costs()
    about, tables = read(name)
    if name in ["peers", "bytes"]:
        tables = asked(tables)
    elif name == "schemes":
        tables = [side_by_side(tables)]
    else:
        tables = [selected(name, table) for table in tables]
    lines = [f"*{made_beside(name, about)}.*"]
    for table in tables:
        lines += ["", *markdown(table)]
    return lines


def written(page):
    """Returns the page with the tables of the records between its marks."""
    out, skipping = [], False
    for line in (ROOT / page).read_text().splitlines():
        skipping = skipping and line != "<!-- end -->"
        if not skipping:
            out.append(line)
        name = line.removeprefix("<!-- ").removesuffix(" -->")
        if line == f"<!-- {name} -->" and (name == "costs" or (RESULTS / f"{name}.tsv").exists()):
            out += block(name)
            skipping = True
    return "\n".join(out) + "\n"


def main(mode="", *names):
    if mode == "record" and len(names) == 1:
        return record(names[0], sys.stdin.read().splitlines())
    if mode == "measure":
        measure(names)
    elif mode not in ["", "--check"] or names:
        sys.exit(__doc__)
    marked = "".join((ROOT / page).read_text() for page in PAGES)
    unmarked = [path.stem for path in RESULTS.glob("*.tsv") if f"\n<!-- {path.stem} -->\n" not in marked]
    if unmarked:
        sys.exit(f"FAILED: no page has a mark for {', '.join(unmarked)}")
    for page in PAGES:
        if mode != "--check":
            (ROOT / page).write_text(written(page))
        elif written(page) != (ROOT / page).read_text():
            sys.exit(f"FAILED: {page} has other figures than benches/results; run benches/tables.py")


main(*sys.argv[1:])
