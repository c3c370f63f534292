#!/usr/bin/env python3
"""Real clients against the broker: what they do in each scenario, held against docs/BROKER.md.

Installs each client into a cache, puts it through every scenario (scenarios.py) by its driver
(protocol.py), and prints a row for each: how many went as promised, and what came otherwise (– the
client has no such thing). Fails where a row differs from the page, or, with CI=true, where a client
could not be installed.
"""

import argparse
import contextlib
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

from catalogue import CLIENTS, HERE
from scenarios import OPTIONS, SCENARIOS, CannotDo, Failed

PAGE = HERE.parents[2] / "docs/BROKER.md"
MARKS = "<!-- clients: just clients --write -->\n", "<!-- clients end -->"
ANSWER_S = 30
START_S = 60
JOBS = 3
# These processes are killed when this program ends, however it does.
processes = []


def progress(*words):
    sys.stderr.write(" ".join(words).strip() + "\n")


def start(command, **options):
    process = subprocess.Popen([*map(str, command)], text=True, start_new_session=True, **options)
    processes.append(process)
    return process


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Driver:
    """A process with one client; its answers arrive on a queue."""

    def __init__(self, client, address):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = start([*client.command, address], env=os.environ | client.environment, **pipes)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("error the client's process ended")

    def send(self, verb, **arguments):
        words = [verb, *(f"{name}={value}" for name, value in arguments.items())]
        with contextlib.suppress(BrokenPipeError):  # that it ended is on the queue
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()

    def receive(self):
        try:
            status, *words = self.lines.get(timeout=ANSWER_S).split()
        except queue.Empty:
            raise Failed(f"no answer in {ANSWER_S} s") from None
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


class Cell:
    """One client in one scenario, with the drivers that it has started."""

    def __init__(self, client, scenario, address):
        self.client, self.scenario, self.address, self.drivers = client, scenario, address, []
        self.topic = re.sub("[^a-z0-9]+", "-", f"{client.name} {scenario}".lower())

    def driver(self):
        self.drivers.append(Driver(self.client, self.address))
        return self.drivers[-1]

    def run(self):
        """Returns ✓, –, or what came instead."""
        words, begin = "", time.monotonic()
        try:
            words = SCENARIOS[self.scenario][2](self) or ""
            cell = "✓"
        except CannotDo:
            cell = "–"
        except Failed as failed:
            words = str(failed)
            cell = " ".join(words.replace("|", "/").split()[:6])
        for driver in self.drivers:
            kill(driver.process)
        progress(f"{self.client.name}, {self.scenario}: {cell} ({time.monotonic() - begin:.1f} s)", words)
        return cell


class Broker:
    """A broker whose followers are in the state of a phase."""

    def __init__(self, program, phase, folder):
        self.log = folder / f"{phase}.log"
        with open(self.log, "w") as out:
            words = [program, "--listen", "127.0.0.1:0", *OPTIONS[phase]]
            self.process = start(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while not (found := re.search("^broker: listening on (.*)\n", self.log.read_text())):
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"the broker did not start: {phase}")
            time.sleep(0.02)
        self.address = found[1]

    def stop(self):
        self.process.terminate()
        if self.process.wait(START_S) or "acked before replicated: 0" not in self.log.read_text():
            raise SystemExit(f"the broker ended with {self.process.returncode}:\n{self.log.read_text()}")


def options():
    names = "\n".join(f"  {name:<12} {promise}" for name, (_, promise, _) in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"clients: {', '.join(CLIENTS)}\n\nscenarios:\n{names}",
    )
    parser.add_argument("broker", help="the program, target/release/examples/broker")
    parser.add_argument("--only", action="append", metavar="CLIENT", choices=CLIENTS, help="this one; may be repeated")
    parser.add_argument("--write", action="store_true", help="put what was found on the page")
    return parser.parse_args()


def try_all(args, folder):
    """Returns the label and cells of each client that could be tried, and the names of the other clients."""
    there, missing = [], []
    for client in (CLIENTS[name] for name in args.only or CLIENTS):
        progress(f"installing {client.name}")
        if problem := client.install(folder):
            progress(f"!!! {client.name} IS NOT TRIED: {problem}")
            missing.append(client.name)
        else:
            there.append(client)
    brokers = {phase: Broker(args.broker, phase, folder) for phase in OPTIONS}
    with ThreadPoolExecutor(JOBS) as pool:
        cells = {
            client: [pool.submit(Cell(client, name, brokers[phase].address).run)
                     for name, (phase, _, _) in SCENARIOS.items()]
            for client in there
        }
        columns = {client.name: [client.label(), *(cell.result() for cell in cells[client])] for client in there}
    for broker in brokers.values():
        broker.stop()
    return columns, missing


def lines_of(columns):
    """Returns a row for the page for each client."""
    lines = {}
    for name, (label, *cells) in columns.items():
        otherwise = "; ".join(f"{scenario}: {cell}" for scenario, cell in zip(SCENARIOS, cells) if cell != "✓")
        lines[name] = f"| {label} | {cells.count('✓')} of {len(cells)} | {otherwise} |\n"
    return lines


def lines_on(page):
    """Returns the rows that the page has."""
    rows = [line for line in page.splitlines(keepends=True) if line.startswith("| ")][2:]  # after the head
    return {row.split()[1]: row for row in rows}


def text(lines):
    rows = "".join(lines[name] for name in CLIENTS if name in lines)
    return f"| Client | As promised | Otherwise |\n| --- | --- | --- |\n{rows}"


def main():
    args = options()
    with tempfile.TemporaryDirectory() as folder:
        columns, missing = try_all(args, Path(folder))
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    page, _, after = rest.partition(MARKS[1])
    found, known = lines_of(columns), lines_on(page)
    print(text(found), end="")
    if args.write:
        PAGE.write_text(f"{before}{MARKS[0]}\n{text(known | found)}\n{MARKS[1]}{after}")
        return
    wrong = [name for name, lines in found.items() if known.get(name) != lines]
    for name in wrong:
        progress(f"FAILED: {name}: docs/BROKER.md has other lines")
    if wrong or missing and os.environ.get("CI") == "true":
        raise SystemExit(1)
    progress(f"clients: {len(columns)} are as docs/BROKER.md has them; not tried: {', '.join(missing) or 'none'}")


signal.signal(signal.SIGTERM, signal.default_int_handler)
try:
    main()
except KeyboardInterrupt:
    raise SystemExit(130)
finally:
    for each in processes:
        kill(each)
