"""What the clients are tried with: this broker, and a real Kafka 0.9.0.1. Each goes through three phases:
its followers are up, then stopped, then out of the in-sync set.
"""

import os
import re
import signal
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 60
OPTIONS = {
    "up": ["--group-initial-rebalance-delay", "500ms"],
    "stalled": ["--pause-followers", "--replica-lag-time-max-ms", "86400000"],
    "short": ["--pause-followers", "--replica-lag-time-max-ms", "10"],
}


class Server:
    def __init__(self, folder):
        self.folder, self.processes = folder, []

    def prepare(self, topic):
        """Makes it, where its first request would fail."""

    def __enter__(self):
        return self

    def start(self, *words, ready, name, environment=None):
        """Waits for a line of its output, and returns the match."""
        log = self.folder / f"{name}.log"
        with open(log, "w") as out, open(self.folder / f"{name}.err", "w") as err:
            process = subprocess.Popen(
                [*map(str, words)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True, env=os.environ | (environment or {}),
            )
        process.log = log
        self.processes.append(process)
        end = time.monotonic() + START_S
        while not (found := re.search(ready, log.read_text(), re.M)):
            if time.monotonic() > end or process.poll() is not None:
                raise SystemExit(f"{name} did not start: {(self.folder / f'{name}.err').read_text()[-2000:]}")
            time.sleep(0.02)
        return found

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it left
            except ProcessLookupError:
                pass
            process.wait()


class Broker(Server):
    """One for each phase, with its followers inside."""

    name, topic, is_ours, environment = "the broker", "scenarios", True, {}

    def __init__(self, program, folder):
        super().__init__(folder)
        self.program, self.addresses = program, {}

    def address(self, phase):
        return self.addresses[phase]

    def enter(self, phase):
        words = [self.program, "--listen", "127.0.0.1:0", *OPTIONS[phase]]
        self.addresses[phase] = self.start(*words, ready="^broker: listening on (.*)", name=phase)[1]

    def __exit__(self, kind, *_):
        super().__exit__()
        for process in [] if kind else self.processes:
            told = process.log.read_text()
            if process.returncode or "acked before replicated: 0" not in told:
                raise SystemExit(f"the broker ended with {process.returncode}:\n{told}")


class Kafka(Server):
    """Three brokers and a ZooKeeper; the followers are stopped by a signal."""

    name, topic, is_ours, environment = "Kafka 0.9.0.1", "scenarios", False, {"KAFKA": "0.9.0.1"}

    def __init__(self, kafka, folder):
        super().__init__(folder)
        self.kafka = kafka

    def address(self, _):
        return self.leader

    def enter(self, phase):
        if phase == "up" or not self.processes:
            started = self.start(f"{HERE}/kafka.sh", self.kafka, name="kafka", ready=r"^ready: (\S+) (\d+) (\d+)$")
            self.leader, *followers = started.groups()
            self.followers = [int(pid) for pid in followers]
        if phase != "up":
            for pid in self.followers:
                os.kill(pid, signal.SIGSTOP)
        if phase == "short":
            self.wait_until_short()

    def prepare(self, topic):
        """Each partition's leader must know that it is one."""
        if topic != self.topic:
            asked = [word for partition in range(3) for word in ["-t", f"{topic}:{partition}:-1"]]
            self.until(lambda: self.kcat("-L", "-t", topic) and self.kcat("-Q", *asked).count("offset") == 3)

    def wait_until_short(self):
        alone = re.compile(r"partition 0,.*isrs: \d(?!,\d)")
        self.until(lambda: alone.search(self.kcat("-L", "-t", self.topic)))

    def kcat(self, *words):
        words = ["kcat", "-b", self.leader, "-X", "api.version.request=false", "-X",
                 "broker.version.fallback=0.9.0.1", *words]
        return subprocess.run(words, capture_output=True, text=True, timeout=START_S).stdout

    def until(self, condition):
        end = time.monotonic() + START_S
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"Kafka did not settle: {self.kcat('-L')}")
            time.sleep(0.2)
