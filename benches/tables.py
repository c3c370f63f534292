#!/usr/bin/env python3
"""Keeps the figures of README.md and docs/BENCHMARKS.md as they were measured, in benches/results.

    benches/tables.py record NAME    read a bench's output, and keep its tables in benches/results/NAME.tsv
    benches/tables.py                write the tables between the marks of both pages
    benches/tables.py --check        fail if a page has other figures

A mark is a line <!-- NAME --> before and a line <!-- end --> after. README's are the rows of COSTS.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches/results"
PAGES = ["README.md", "docs/BENCHMARKS.md"]
# What README quotes: the row, in words, and the row of `peers`.
COSTS = [("park and complete, a callback", "park-complete-1key-callback"),
         ("park and complete, a future", "park-complete-1key-future"),
         ("expect a reply and deliver it", "replies-1t")]


def cells(row):
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def tables_in(lines):
    """The Markdown tables among these lines, each a list of rows of cells."""
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
    """The comment of a record, and its tables."""
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
    path = RESULTS / f"{name}.tsv"
    about = read(name)[0] if path.exists() else "when, on which machine"
    parts = ["\n".join("\t".join(row) for row in table) + "\n" for table in tables_in(lines)]
    path.write_text(f"# {about}\n" + "\n".join(parts))


def markdown(table):
    head, *rows = table
    return ["| " + " | ".join(row) + " |" if row else "|" + "---|" * len(head) for row in [head, [], *rows]]


def costs():
    """A short table of some rows, with the best of each in bold, as in the record."""
    about, tables = read("peers")
    rows = {row[0]: (table[0], row) for table in tables for row in table[1:]}
    units = {rows[name][1][1] for _, name in COSTS}
    if len(units) > 1:
        sys.exit(f"FAILED: the rows of README have several units: {units}")
    short = [[f"in {units.pop()}", "ours", "hand-written, a map of oneshots", "row"]]
    for words, name in COSTS:
        head, row = rows[name]
        ours, other = row[head.index("ours")], row[head.index("dashmap-oneshot")]
        short.append([words, ours, other, f"`{name}`"])
    return [*markdown(short), "", "Bold is faster, by `cargo run --release -p purgatory-benches --bin peers`",
            f"([all rows](docs/BENCHMARKS.md); {about}). "
            "A map of slots with a sweep, by hand, is [cheaper](docs/BENCHMARKS.md#the-best-by-hand)."]


def block(name):
    if name == "costs":
        return costs()
    lines = []
    for table in read(name)[1]:
        lines += ["", *markdown(table)] if lines else markdown(table)
    return lines


def written(page):
    """The page with the tables of the records between its marks."""
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


def main(mode="", name=""):
    if mode == "record" and name:
        return record(name, sys.stdin.read().splitlines())
    if mode not in ["", "--check"]:
        sys.exit(__doc__)
    for page in PAGES:
        if mode == "":
            (ROOT / page).write_text(written(page))
        elif written(page) != (ROOT / page).read_text():
            sys.exit(f"FAILED: {page} has other figures than benches/results; run benches/tables.py")


main(*sys.argv[1:])
