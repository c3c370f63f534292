"""How fast a broker acknowledges acks=all produces: started by figures.sh.

figures.py measure NAME ADDRESS KAFKA09 ROUNDS SECONDS PID...   prints a JSON line a run
figures.py table FILE...                                        prints the table
figures.py load ...                                             a process with some of a run's clients

A run is one load over 1 or 100 connections, a confluent-kafka producer each:

  batched  as many records as are acknowledged, batched as the client does by default
  single   the same with one record a request
  paced    1000 records/s over all connections, with linger.ms=0

Records have 100 bytes and go to one partition. Latency is the time from produce() to the delivery
callback. CPU is that of all processes of the broker. The share is of the samples that perf takes of its
(leader's) process under the load called single: those in a function of the purgatory or the timer. What such a function calls and is
not inlined, as a lock or a hash table, is not in it.
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial

TOPIC = "figures"  # as in figures.sh
VALUE = b"x" * 100
CONNECTIONS = [1, 100]
LOADS = {"batched": 0, "single": 0, "paced": 1000}  # records a second, over all connections
PROCESSES = 2  # of clients, when there are connections enough
WAITING_MAX = {"batched": 100_000, "single": 2000, "paced": 100_000}  # records, over all connections
WARM_UP_S = 2
END_MAX_S = 30
OURS = re.compile(r"[<&]*(mut )?(purgatory|timer_core)::")


class Load:
    """Some of the connections of a run, in this process."""

    def __init__(self, address, kafka09, load, connections, rate, start, end):
        self.address, self.kafka09, self.load = address, kafka09, load
        self.connections = connections
        self.waiting_max = WAITING_MAX[load] // (connections * (1 if connections == 1 else PROCESSES))
        self.interval = connections / rate if rate else 0
        self.start, self.end = start, end
        self.latencies, self.acknowledged, self.errors = [], 0, 0

    def producer(self):
        import confluent_kafka

        config = {"log_level": 3, "bootstrap.servers": self.address, "acks": "all"}
        config["queue.buffering.max.messages"] = self.waiting_max
        if self.load != "batched":
            config["linger.ms"] = 0
        if self.load == "single":
            config["batch.num.messages"] = 1
        if self.kafka09:
            config |= {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}
        return confluent_kafka.Producer(config)

    def delivered(self, begun, error, _):
        now = time.monotonic()
        self.errors += error is not None
        if error is None and self.start <= now < self.end:
            self.acknowledged += 1
            self.latencies.append(now - begun)

    def pace(self, producer, at):
        """One connection, on a thread of its own: it waits for callbacks and for its next record."""
        while at < self.end:
            while (left := at - time.monotonic()) > 0:
                producer.poll(left)
            on_delivery = partial(self.delivered, time.monotonic())
            producer.produce(TOPIC, VALUE, partition=0, on_delivery=on_delivery)
            at += self.interval
        self.errors += producer.flush(END_MAX_S)

    def paced(self):
        begin = time.monotonic()
        threads = [
            threading.Thread(target=self.pace, args=(self.producer(), begin + self.interval * at))
            for at in [at / self.connections for at in range(self.connections)]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def counted(self, error, _):
        self.errors += error is not None
        self.acknowledged += error is None and self.start <= time.monotonic() < self.end

    def unpaced(self):
        producers = [self.producer() for _ in range(self.connections)]
        while time.monotonic() < self.end:
            full = 0
            for producer in producers:
                try:
                    for _ in range(100):
                        producer.produce(TOPIC, VALUE, partition=0, on_delivery=self.counted)
                except BufferError:
                    full += 1
                producer.poll(0)
            if full == len(producers):
                producers[0].poll(0.001)
        for producer in producers:
            self.errors += producer.flush(END_MAX_S)

    def run(self):
        self.paced() if self.interval else self.unpaced()
        print(json.dumps([self.acknowledged, self.latencies if self.interval else [], self.errors]))


def cpu_s(pids):
    """The CPU time of these processes so far."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_cpu_s():
    """The CPU time of everything on this machine so far."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


class Perf:
    """The share of a process's samples that are in functions of the purgatory or the timer."""

    def __init__(self, pid, seconds):
        self.file = tempfile.NamedTemporaryFile()
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-p", pid, "-o", self.file.name]
        command += ["--", "sleep", str(seconds)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def share(self):
        if self.process.wait(END_MAX_S) != 0:
            return None
        command = ["perf", "script", "-i", self.file.name, "-F", "ip,sym"]
        script = subprocess.run(command, capture_output=True, text=True)
        symbols = [line.split(None, 1)[1] for line in script.stdout.splitlines() if " " in line.strip()]
        ours = sum(OURS.match(symbol) is not None for symbol in symbols)
        return [ours, len(symbols)]


def measure(name, address, kafka09, rounds, seconds, *pids):
    kafka09, rounds, seconds = kafka09 == "yes", int(rounds), float(seconds)
    for number in range(rounds + 1):  # the first warms up, and counts for nothing
        for connections in CONNECTIONS:
            for kind, rate in LOADS.items():
                start = time.monotonic() + WARM_UP_S
                end = start + seconds
                processes = min(PROCESSES, connections)
                arguments = [address, kafka09, kind, connections // processes, rate / processes, start, end]
                command = [sys.executable, __file__, "load", *map(json.dumps, arguments)]
                loads = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
                time.sleep(start - time.monotonic())
                sampled = kind == "single" and not kafka09 and shutil.which("perf")  # it holds others up
                perf = Perf(pids[0], seconds) if sampled else None
                clients = [load.pid for load in loads]
                watches = [lambda: cpu_s(pids), lambda: cpu_s(clients), machine_cpu_s]
                before = [watch() for watch in watches]
                time.sleep(max(0, end - time.monotonic()))
                spent, by_clients, by_all = (watch() - then for watch, then in zip(watches, before))
                ended = [json.loads(load.communicate(timeout=2 * END_MAX_S)[0]) for load in loads]
                assert all(load.returncode == 0 for load in loads), "a client failed"
                acknowledged, latencies, errors = map(sum, zip(*ended), [0, [], 0])
                assert errors == 0 and acknowledged > 0, f"{errors} errors, {acknowledged} acknowledged"
                run = {"name": name, "connections": connections, "load": kind}
                run["rate"] = acknowledged / seconds
                run["others"] = (by_all - spent - by_clients) / seconds
                run["cpu_us"] = spent / acknowledged * 1e6
                if rate:
                    run["p50"], run["p99"] = percentiles(latencies)
                run["perf"] = perf.share() if perf else None
                if number > 0:
                    print(json.dumps(run), flush=True)


def percentiles(latencies):
    cuts = statistics.quantiles(latencies, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def table(*files):
    runs = [json.loads(line) for file in files for line in open(file)]
    row = "{:<26} {:>11} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8}".format
    print(row("", "", "batched", "single", "single", "single", "paced", "paced"))
    print(row("acks=all", "connections", "records/s", "requests/s", "CPU us each", "share", "p50 ms", "p99 ms"))
    for name in dict.fromkeys(run["name"] for run in runs):
        for connections in CONNECTIONS:
            of = [run for run in runs if (run["name"], run["connections"]) == (name, connections)]
            of = {load: [run for run in of if run["load"] == load] for load in LOADS}
            median = lambda load, key: statistics.median(run[key] for run in of[load])
            cells = [f"{median('batched', 'rate'):.0f}", f"{median('single', 'rate'):.0f}"]
            cells += [f"{median('single', 'cpu_us'):.0f}", share(of["single"])]
            cells += [f"{median('paced', 'p50'):.2f}", f"{median('paced', 'p99'):.2f}"]
            print(row(name, connections, *cells))


    others = [run["others"] for run in runs]
    print(f"other processes of this machine used {statistics.median(others):.2f} of its {os.cpu_count()}"
          f" cores at the median of the runs, {max(others):.2f} at most")


def share(runs):
    counts = [run["perf"] for run in runs if run["perf"]]
    ours, samples = map(sum, zip(*counts, [0, 0]))
    return f"{100 * ours / samples:.1f} %" if samples else "-"


if sys.argv[1] == "load":
    Load(*map(json.loads, sys.argv[2:])).run()
else:
    {"measure": measure, "table": table}[sys.argv[1]](*sys.argv[2:])
