#!/usr/bin/env python3
"""Starts every example with bad input: bad_input.py target/release/examples

Each must end by itself with the exit code that its --help names (2: an argument is wrong, 1: it cannot run), say on
standard error which value it refused and what it expected, and not panic. Parsers have tables of their own, beside
them; here are the programs as they are run: flags, files, ports that are taken. All of this, and good input, comes
once more with a standard error that nobody reads: the exit code stays.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

DEADLINE_S = 60


def cases(taken, closed):
    """(program, arguments, exit code, texts on standard error); `taken` is an address in use, `closed` has no server."""
    for program in ["acks_all", "broker", "external_events", "misbehave", "recurring", "virtual_time", "waiting", "local"]:
        yield program, ["--no-such-flag"], 2, ["--no-such-flag"]
    for program in ["acks_all", "broker", "external_events", "misbehave"]:
        yield program, ["--metrics-addr", "localhost"], 2, ["localhost", "IP:PORT"]
        listen = [] if program in ("acks_all", "misbehave") else ["--listen", "127.0.0.1:0"]
        yield program, ["--metrics-addr", taken, *listen], 1, [taken, "in use"]
    yield "acks_all", ["--timeout", "0s"], 2, ["0s", "from 1ms to 1h"]
    yield "acks_all", ["--timeout", "1ns"], 2, ["1ns", "from 1ms to 1h"]
    yield "acks_all", ["--timeout", "-1s"], 2, ["-1s", "from 1ms to 1h"]
    yield "acks_all", ["--timeout", "584554530872years"], 2, ["584554530872years", "from 1ms to 1h"]
    yield "acks_all", ["--seconds", "-1"], 2, ["-1", "from 0.1 to 86400"]
    yield "acks_all", ["--rate", "-1"], 2, ["-1", "from 0 to 100000000"]
    yield "acks_all", ["--stall-for", "1h", "--drop-follower"], 2, ["--drop-follower", "before the end of the run, 10.0s"]
    yield "acks_all", ["--truncate", "--follower-lag", "1m"], 2, ["--truncate", "before the end of the run, 10.0s"]
    yield "acks_all", ["--by", "raft"], 2, ["raft", "kafka, replica-sets"]
    yield "acks_all", ["--stall-for", "1s", "--join-follower"], 2, ["--drop-follower"]
    yield "acks_all", ["--input", "/no/such/file"], 1, ["/no/such/file"]
    yield "acks_all", ["--input", "/"], 1, ["cannot read /"]
    yield "acks_all", ["--input", "/dev/null"], 1, ["/dev/null is empty"]
    yield "acks_all", ["--input", "/dev/zero"], 1, ["/dev/zero is longer than the 16 MiB"]
    yield "broker", ["--listen", taken], 1, [f"cannot listen on {taken}", "in use"]
    yield "broker", ["cluster", "--listen", taken], 1, [f"cannot listen on {taken}", "the leader, ended"]
    yield "broker", ["--follower-interval", "18446744073709551616s"], 2, ["18446744073709551616s", "from 0s to 5m"]
    yield "broker", ["--follower-interval", "-1s"], 2, ["-1s", "from 0s to 5m"]
    yield "broker", ["--partitions", "-1"], 2, ["-1", "from 1 to 1000"]
    yield "broker", ["--max-connections", "0"], 2, ["0", "from 1 to 1000000"]
    yield "broker", ["--node", "2"], 2, ["--cluster"]
    yield "broker", ["--node", "2", "--cluster", "here"], 2, ["here", "1=IP:PORT,2,3"]
    yield "external_events", ["--listen", taken], 1, [f"cannot listen on {taken}", "in use"]
    yield "external_events", ["--nats", closed], 1, [f"cannot connect to the NATS server at {closed}"]
    yield "external_events", ["--max-wait", "1h 1ns"], 2, ["1h 1ns", "from 1ms to 1h"]
    yield "external_events", ["--max-wait", "-1s"], 2, ["-1s", "from 1ms to 1h"]
    yield "external_events", ["--max-parked", "-1"], 2, ["-1", "from 1 to 1000000"]
    yield "recurring", ["--zone", "Nowhere/Land"], 2, ["Nowhere/Land"]
    yield "recurring", ["--from", "2026-02-30"], 2, ["2026-02-30"]
    yield "recurring", ["--from", "9999-12-01"], 1, ["9999-12-01", "9999-12-31"]
    yield "recurring", ["--months", "1201"], 2, ["1201", "from 1 to 1200"]
    yield "recurring", ["--months", "-1"], 2, ["-1", "from 1 to 1200"]
    yield "recurring", ["61 * * * *"], 2, ["61 * * * *"]
    yield "virtual_time", ["--seeds", "0"], 2, ["0", "from 1 to"]
    yield "virtual_time", ["--seeds", "-1"], 2, ["-1", "from 1 to"]
    for seed in ["one", "-1", "18446744073709551616"]:
        yield "virtual_time", ["--seed", seed], 2, [seed, "from 0 to 18446744073709551615"]


# These run to the end even if their standard error has no reader.
UNHEARD = [("acks_all", "--seconds", "0.1"), ("virtual_time", "--seeds", "10"), ("recurring",), ("waiting",), ("local",)]
# These serve no clients, so their shutdown waits for no connection.
SERVERS = [
    ("broker", "--listen", "127.0.0.1:0"),
    ("external_events", "--listen", "127.0.0.1:0", "--shutdown-within", "0s"),
    ("misbehave",),
]


def unheard(folder, program, arguments, code, serves=False):
    """Runs a program whose standard error has no reader; what it says is lost, and it goes on. A server is ended."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [Path(folder) / program, *arguments]
    ran = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writer)
    os.close(writer)
    try:
        if serves:
            time.sleep(1)
            ran.terminate()
        ran.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        ran.kill()
        fail(program, arguments, f"goes on after {DEADLINE_S} s without a reader of standard error", "")
    if ran.returncode != code:
        fail(program, arguments, f"exit code {ran.returncode} without a reader of standard error, expected {code}", "")


def fail(program, arguments, why, said):
    raise SystemExit(f"FAILED: {' '.join([program, *arguments])}: {why}\n{said}")


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: bad_input.py target/release/examples")
    listening, unbound = socket.socket(), socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    unbound.bind(("127.0.0.1", 0))  # bound, and nothing listens
    taken, closed = (f"127.0.0.1:{each.getsockname()[1]}" for each in (listening, unbound))
    count = 0
    for program, arguments, code, texts in cases(taken, closed):
        command = [Path(sys.argv[1]) / program, *arguments]
        try:
            ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            fail(program, arguments, f"goes on after {DEADLINE_S} s", "")
        said = ran.stderr
        if ran.returncode != code:
            fail(program, arguments, f"exit code {ran.returncode}, expected {code}", said)
        for text in texts:
            if text not in said:
                fail(program, arguments, f"does not say {text!r}", said)
        if "panicked" in said:
            fail(program, arguments, "panicked", said)
        unheard(sys.argv[1], program, arguments, code)
        count += 1
    for program, *arguments in UNHEARD:
        unheard(sys.argv[1], program, arguments, 0)
    for program, *arguments in SERVERS:
        unheard(sys.argv[1], program, arguments, 0, serves=True)
    print(f"bad input: passed, {count} cases")


main()
