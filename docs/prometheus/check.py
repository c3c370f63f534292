"""The assertions that check.sh makes by query: check.py PATH/acks_all PATH/broker PATH/misbehave

Starts the programs, and a Prometheus that scrapes them each second. It has the alerts of alerts.yml twice: as they are,
and with their minutes made seconds.

The machine may be busy. Every wait looks for a state that lasts until it is seen, with a deadline that only
a failure reaches; books are compared when nothing moves. A busy machine may really hold up a program
that does nothing wrong: see `check_healthy`.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
DASHBOARD = HERE.parent / "grafana" / "purgatory.json"
DEADLINE_S = 120
HELD_UP_S = 0.5
RATE_INTERVAL = "5s"  # for scrapes that are a second apart

# The alerts that each program has to provoke.
HELD_UP = {"PurgatoryExpiresLate"}  # acks_all, stopped while its produces expire
WRONG = HELD_UP | {  # misbehave
    "PurgatoryStuck",
    "PurgatoryCheckStuck",
    "PurgatoryRefuses",
    "PurgatoryPanics",
    "PurgatoryMissesEvents",
    "PurgatoryExecutorBacklog",
    "PurgatoryCallbacksLate",
    "PurgatoryBelowFloor",
    "TimerBehind",
    "TimerSaturated",
    "TimerPanics",
}
# Alerts on times that a busy machine also makes long, each with the histogram that it looks at and its bound.
MEASURED = {
    "PurgatoryExpiresLate": ("purgatory_expiry_lateness_seconds_bucket", "0.25"),
    "PurgatoryCallbacksLate": ("purgatory_callback_delay_seconds_bucket", "0.25"),
    "TimerBehind": ("timer_turn_seconds_bucket", "0.1"),
}

# At rest the purgatory's books agree with each other ...
BOOKS = [
    "sum(purgatory_parked_total{I})"
    " == sum(purgatory_ended_total{I}) + sum(purgatory_taken_total{I}) + sum(purgatory_parked{I})",
    "purgatory_parked{I} == 0",
    'purgatory_ended_total{I,outcome="completed"} == purgatory_wait_seconds_count{I}',
    'purgatory_ended_total{I,outcome="completed"} == ignoring(le) purgatory_wait_seconds_bucket{I,le="+Inf"}',
    'purgatory_ended_total{I,outcome="expired"} == ignoring(outcome) purgatory_expiry_lateness_seconds_count{I}',
    'purgatory_ended_total{I,outcome="expired"} == ignoring(outcome) purgatory_callback_delay_seconds_count{I}',
    'sum(purgatory_cancelled_total{I}) == sum(purgatory_ended_total{I,outcome="cancelled"})',
    "purgatory_callbacks_waiting{I} == 0",
    "purgatory_oldest_age_seconds{I} == 0",
    "purgatory_keys{I} == 0",
    "purgatory_watched{I} == 0",
    "purgatory_panics_total{I} == 0",
    "purgatory_missed_events_total{I} == 0",
]
# ... and with the counts of acks_all itself; a record that is in sync at once is not parked.
RECORDS = [
    "sum(acks_all_records_produced_total{I}) == sum(purgatory_parked_total{I} + purgatory_ended_at_once_total{I})",
    'sum(acks_all_records_ended_total{I,outcome="completed"})'
    ' == sum(purgatory_ended_total{I,outcome="completed"}) + sum(purgatory_ended_at_once_total{I})',
    'sum(acks_all_records_ended_total{I,outcome="expired"}) == sum(purgatory_ended_total{I,outcome="expired"})',
    'sum(acks_all_records_ended_total{I,outcome="cancelled"}) == sum(purgatory_ended_total{I,outcome="cancelled"})',
    # Something happened at all, and the timer was told of it.
    'purgatory_ended_total{I,outcome="completed"} > 1000',
    'purgatory_ended_total{I,outcome="expired"} > 100',
    'sum(timer_fired_total{I}) == sum(purgatory_ended_total{I,outcome="expired"})',
    'sum(timer_cancelled_total{I}) == sum(purgatory_ended_total{I,outcome="completed"})',
    "timer_pending{I} == 0",
]


class Failed(Exception):
    pass


def until(what, look, seconds=DEADLINE_S):
    """Calls `look` until it finds something, and returns that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = look()
        if seen:
            return seen
        time.sleep(0.1)
    raise Failed(f"not within {seconds} s: {what}")


class Program:
    """A process, with files for its output. All processes are ended together."""

    running = []

    def __init__(self, work, name, *command, stdin=subprocess.DEVNULL):
        self.work, self.name = work, name
        self.out, self.err = work / f"{name}.out", work / f"{name}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=os.environ | {"RUST_BACKTRACE": "0"},
            )
        Program.running.append(self)

    def printed(self, pattern, where):
        """Returns the first group of a pattern in the process's output, once it is there."""

        def look():
            found = re.search(pattern, where.read_text(), re.MULTILINE)
            if not found and self.process.poll() is not None:
                raise Failed(f"{self.name} ended with status {self.process.returncode}")
            return found and found[1]

        return until(f"{pattern!r} from {self.name}", look)

    def serves(self):
        """Waits until the program serves its metrics, and notes where."""
        self.instance = self.printed(r"^metrics: http://([^/\s]+)/metrics", self.err)
        return self

    def interrupt(self):
        """Sends Ctrl-C, upon which the program has to end well."""
        self.process.send_signal(signal.SIGINT)
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} goes on after Ctrl-C") from None
        if status != 0:
            raise Failed(f"{self.name} ended with status {status} after Ctrl-C")
        print(f"   {self.name} ended well after Ctrl-C")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()  # even if it is stopped
            self.process.wait()

    @classmethod
    def end_all(cls):
        for program in cls.running:
            program.end()


class Cluster(Program):
    """A broker whose followers are processes, which can be stopped."""

    followers = []

    def find_followers(self):
        process = r"^broker: node {} is process (\d+)$"
        self.followers = [int(self.printed(process.format(node), self.out)) for node in [2, 3]]

    def followers_do(self, number):
        for follower in self.followers:
            os.kill(follower, number)

    def stop_followers(self):
        """Stops the followers. A fetch that they have sent may still be served; no other follows."""
        self.followers_do(signal.SIGSTOP)
        state = re.compile(r"^State:\tT", re.MULTILINE)
        for follower in self.followers:
            status = Path(f"/proc/{follower}/status")
            until("a follower has stopped", lambda: state.search(status.read_text()))

    def interrupt(self):
        super().interrupt()
        self.followers = []  # they ended with the broker

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.followers_do(signal.SIGKILL)  # a stopped follower would not notice its leader's end
        super().end()


class Producer(Program):
    """A kcat that produces lines with acks=all."""

    def __init__(self, broker, lines, *options):
        name = f"kcat at the {broker.name}"
        command = ["kcat", "-P", "-b", broker.listens, "-t", "lines", "-X", "acks=all", *options]
        text = broker.work / f"{name}.in"
        text.write_text("\n".join(lines))
        with text.open() as stdin:
            super().__init__(broker.work, name, *command, stdin=stdin)

    def ended(self):
        """Waits for the end of kcat; returns its status and its messages."""
        until(f"the end of {self.name}", lambda: self.process.poll() is not None)
        return self.process.returncode, self.err.read_text()

    def is_acknowledged(self):
        status, said = self.ended()
        if status != 0:
            raise Failed(f"{self.name} was not acknowledged: {said}")


class Prometheus(Program):
    """A Prometheus on a free port of loopback, asked through its HTTP API."""

    def __init__(self, work, instances):
        config = (HERE / "prometheus.yml").read_text()
        config, times = re.subn(r"_interval: 15s", "_interval: 1s", config)
        config, targets = re.subn(r"targets: \[.*\]", f"targets: {json.dumps(instances)}", config)
        config, rules = re.subn(r"- alerts.yml", f"- {HERE}/alerts.yml\n  - {work}/shortened.yml", config)
        if (times, targets, rules) != (2, 1, 1):
            raise Failed("prometheus.yml is not what is expected here")
        (work / "prometheus.yml").write_text(config)
        # Minutes become seconds in the times that an alert waits for, looks back on and compares with.
        shortened = re.sub(r"\b(\d+)m\b", r"\1s", (HERE / "alerts.yml").read_text())
        shortened = re.sub(r"\* 60\b", "* 1", shortened)
        shortened = shortened.replace("        labels:\n", "        labels:\n          shortened: yes\n")
        (work / "shortened.yml").write_text(shortened.replace("shortened: yes", 'shortened: "yes"'))
        super().__init__(
            work,
            "prometheus",
            "prometheus",
            f"--config.file={work}/prometheus.yml",
            f"--storage.tsdb.path={work}/data",
            "--web.listen-address=127.0.0.1:0",
        )
        self.address = self.printed(r'msg="Listening on".* address=(\S+)', self.err)
        until("the Prometheus is ready", self.is_ready)

    def is_ready(self):
        try:
            return fetch(f"http://{self.address}/-/ready")
        except urllib.error.HTTPError:  # not yet
            return None

    def get(self, path, **arguments):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            return json.loads(fetch(url))["data"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{arguments}: {error.read().decode()}") from None

    def query(self, expression):
        """Returns the series that an expression gives now, each as (labels, value)."""
        answer = self.get("query", query=expression)
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in answer["result"]]

    def values(self, expression, since):
        """Returns all values that an expression gave since then, in any series."""
        result = self.get("query_range", query=expression, start=since, end=time.time(), step="1s")
        return [float(value) for series in result["result"] for _, value in series["values"]]

    def fired(self, program):
        """Returns the labels of the shortened alerts that have been firing for a program."""
        firing = f'ALERTS{{instance="{program.instance}",alertstate="firing",shortened="yes"}}'
        return [labels for labels, _ in self.query(f"last_over_time({firing}[1h])")]

    def names_fired(self, program):
        return {labels["alertname"] for labels in self.fired(program)}

    def await_scrape(self, program):
        """Waits until the program is scraped after now."""
        now = time.time()
        newest = f'timestamp(purgatory_parked_total{{instance="{program.instance}"}}) > {now}'
        until(f"a scrape of {program.name}", lambda: self.query(newest))


def fetch(url):
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return answer.read()


def check_exposition(program):
    """Checks that promtool accepts the metrics that the program serves."""
    page = fetch(f"http://{program.instance}/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    said = (checked.stdout + checked.stderr).decode().strip()
    if checked.returncode != 0 or said:
        raise Failed(f"promtool check metrics, of {program.name}: {said}")
    print(f"   {program.name}: {len(page.splitlines())} lines, promtool has nothing to say")


def check_books(prometheus, program, books, further=""):
    """Checks that each comparison, with a further label matcher, has series on its left, and holds for all of them."""
    for book in books:
        book = book.replace("{I", f'{{instance="{program.instance}"{further}')
        as_bool = re.sub(r" (==|>) ", r" \1 bool ", book)
        sides = re.split(r" (?:==|>) (?:ignoring\(\w+\) )?", book)

        def holds():
            compared = [value for _, value in prometheus.query(as_bool)]
            return compared and compared == [1] * len(prometheus.query(sides[0]))

        try:
            until(book, holds)
        except Failed:
            left, right = (prometheus.query(side) for side in sides)
            raise Failed(f"{program.name}: {book}\n  left: {left}\n  right: {right}") from None
    print(f"   {program.name}: {len(books)} comparisons hold")


def numbered_lines():
    lines = (HERE / "check.py").read_text().splitlines()
    return [f"{number}: {line}" for number, line in enumerate(lines)]


# Each running follower always has a waiting fetch.
BUT_FETCHES = ',purgatory!="fetch"'


def check_broker(prometheus, broker):
    """Checks produces that are acknowledged. They need not have waited, since the followers may be faster."""
    Producer(broker, numbered_lines()).is_acknowledged()
    prometheus.await_scrape(broker)
    happened = (
        'sum(purgatory_ended_total{I,purgatory="produce",outcome="completed"})'
        ' + sum(purgatory_ended_at_once_total{I,purgatory="produce"}) > 0'
    )
    check_books(prometheus, broker, BOOKS + [happened], BUT_FETCHES)


def check_paused(prometheus, paused):
    """Checks a produce that expires, since the followers never fetch."""
    short = ["-X", "retries=0", "-X", "request.timeout.ms=1000"]
    status, said = Producer(paused, ["one"], *short).ended()
    if status == 0 or "Request timed out" not in said:
        raise Failed(f"kcat was acknowledged, or told something else: {status}, {said}")
    prometheus.await_scrape(paused)
    happened = 'purgatory_ended_total{I,purgatory="produce",outcome="expired"} > 0'
    check_books(prometheus, paused, BOOKS + [happened], BUT_FETCHES)


def check_stopped(prometheus, cluster):
    """Checks produces that wait for as long as the followers are stopped, and then complete."""
    cluster.stop_followers()
    long = ["-X", "request.timeout.ms=900000", "-X", "socket.timeout.ms=300000"]
    producer = Producer(cluster, numbered_lines(), *long)
    parked = f'purgatory_parked{{instance="{cluster.instance}",purgatory="produce"}} > 0'
    until("a produce is seen to wait", lambda: prometheus.query(parked))
    if producer.process.poll() is not None:
        raise Failed("kcat has ended while its produces wait")
    cluster.followers_do(signal.SIGCONT)
    producer.is_acknowledged()
    cluster.stop_followers()  # so that the fetches come to rest as well
    prometheus.await_scrape(cluster)
    happened = [
        'purgatory_ended_total{I,purgatory="produce",outcome="completed"} > 0',
        'purgatory_ended_total{I,purgatory="fetch",outcome="expired"} > 0',
    ]
    check_books(prometheus, cluster, BOOKS + happened)


def check_dashboard(prometheus, since):
    """Checks that every query of every panel has an answer above zero at some moment of the run."""
    board = json.loads(DASHBOARD.read_text())
    variables = {"__rate_interval": RATE_INTERVAL}
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            arguments = {"match[]": substituted(selector, variables), "start": since}
            values = prometheus.get(f"label/{label}/values", **arguments)
            if not values:
                raise Failed(f"the dashboard's variable {variable['name']} has no values")
            variables[variable["name"]] = "|".join(values)
            print(f"   ${variable['name']}: {' '.join(values)}")
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    if len({panel["id"] for panel in board["panels"]}) != len(board["panels"]):
        raise Failed("two panels have the same id")
    queries = []
    for panel in panels:
        told = panel["title"] and panel["description"]
        defaults = panel["fieldConfig"]["defaults"]
        unit = defaults.get("unit") or panel["options"].get("yAxis", {}).get("unit")
        if not (told and unit):
            raise Failed(f"the panel {panel['title']!r} lacks a title, a description or a unit")
        for target in panel["targets"]:
            queries.append((panel["title"], substituted(target["expr"], variables)))
    count = len(queries)
    for annotation in board["annotations"]["list"]:
        if "expr" in annotation:
            queries.append(("annotation", substituted(annotation["expr"], variables)))
    silent = queries

    def all_told():
        nonlocal silent
        values = lambda expression: prometheus.values(expression, since)
        above = lambda expression: any(0 < value < float("inf") for value in values(expression))
        silent = [(title, expression) for title, expression in silent if not above(expression)]
        return not silent

    try:
        until("every query", all_told)
    except Failed:
        lines = [f"{title!r}: {expression}" for title, expression in silent]
        raise Failed("no answer above zero in the whole run:\n  " + "\n  ".join(lines)) from None
    print(f"   {len(panels)} panels, {count} queries: each gave more than zero at some moment")


def substituted(expression, variables):
    """Returns an expression with the values of the dashboard's variables."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]].replace(".", r"\\."), expression)


def check_alerts(prometheus, held_up, misbehave, healthy):
    """Checks that each alert fires where it is provoked, and none fires where all is well."""
    rules = lambda: [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    shortened = {rule["name"] for rule in rules() if "shortened" in rule["labels"]}
    if shortened != WRONG:
        raise Failed(f"rules: {shortened}, provoked: {WRONG}")
    until("every rule is in good health", lambda: all(rule["health"] == "ok" for rule in rules()))
    expected = [(misbehave, WRONG), (held_up, HELD_UP)]

    def missing():
        return [
            f"{alert} of {program.name}"
            for program, alerts in expected
            for alert in sorted(alerts - prometheus.names_fired(program))
        ]

    try:
        until("every alert", lambda: not missing())
    except Failed:
        raise Failed(f"these alerts did not fire: {', '.join(missing())}") from None
    for program, alerts in expected:
        print(f"   {program.name}: {' '.join(sorted(alerts))}")
    for program in healthy:
        check_healthy(prometheus, program)


def check_healthy(prometheus, program):
    """Checks that no alert has fired, unless the machine really held the program up: then a late expiry or a
    long round is in the program's own histogram. Such an alert is right, and has to end."""
    fired = prometheus.fired(program)
    for labels in fired:
        alert = labels["alertname"]
        if alert not in MEASURED:
            raise Failed(f"{alert} of {program.name}, where all is well")
        name, bound = MEASURED[alert]
        kind = "purgatory" if "purgatory" in labels else "timer"
        which = f'instance="{program.instance}",{kind}="{labels[kind]}"'
        count = lambda le: f'last_over_time({name}{{{which},le="{le}"}}[1h])'
        beyond = prometheus.query(f"{count('+Inf')} - ignoring(le) {count(bound)}")
        if [number > 0 for _, number in beyond] != [True]:
            raise Failed(f"{alert} of {program.name}, whose {name} has nothing beyond {bound} s")
        firing = f'ALERTS{{{which},alertname="{alert}",alertstate="firing",shortened="yes"}}'
        until(f"the end of {alert} of {program.name}", lambda: not prometheus.query(firing))
        print(f"   {program.name}: {alert}, rightly: the machine held it up; it has ended")
    if not fired:
        print(f"   {program.name}: none")


def hold_up(prometheus, held_up):
    """Stops acks_all, whose produces expire all the time, every other half second, until its alerts
    have fired."""
    expired = f'purgatory_ended_total{{instance="{held_up.instance}",outcome="expired"}}'
    until("produces expire", lambda: prometheus.query(f"rate({expired}[5s]) > 0"))
    times = 0

    def stopped_once_more():
        nonlocal times
        times += 1
        for number in [signal.SIGSTOP, signal.SIGCONT]:
            held_up.process.send_signal(number)
            time.sleep(HELD_UP_S)  # for this time, whatever happens
        return HELD_UP <= prometheus.names_fired(held_up)

    until(f"the alerts of {held_up.name}, stopped again and again", stopped_once_more)
    print(f"   {held_up.name}: its alerts fired as it was stopped for {HELD_UP_S} s, {times} times")


def check(work, acks_all_path, broker_path, misbehave_path):
    print("== the programs and a Prometheus")
    since = time.time()
    misbehave = Program(work, "misbehave", misbehave_path)
    broker_args = ["--listen", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"]
    broker_args += ["--replica-lag-time-max-ms", "86400000"]  # no follower leaves the in-sync set
    broker = Program(work, "broker", broker_path, *broker_args)
    paused = Program(work, "paused broker", broker_path, *broker_args, "--pause-followers")
    cluster = Cluster(work, "broker cluster", broker_path, "cluster", *broker_args)
    stalled = "--seconds 86400 --rate 1000 --timeout 500ms --stall-from 0s --stall-for 1day"
    held_up = Program(work, "stalled acks_all", acks_all_path, *stalled.split())
    run = "--seconds 12 --rate 150000 --timeout 500ms --stall-from 2s --stall-for 8s --linger 1day"
    acks_all = Program(work, "acks_all", acks_all_path, *run.split())
    programs = [misbehave, broker, paused, cluster, held_up, acks_all]
    for program in programs:
        program.serves()
    for one in [broker, paused, cluster]:
        one.listens = one.printed(r"^broker: listening on (\S+)$", one.out)
    cluster.find_followers()
    prometheus = Prometheus(work, [program.instance for program in programs])
    for program in programs:
        prometheus.await_scrape(program)
        check_exposition(program)
    hold_up(prometheus, held_up)

    print("== the books of the brokers at rest")
    check_broker(prometheus, broker)
    check_paused(prometheus, paused)
    check_stopped(prometheus, cluster)
    print("== the books of acks_all at rest")
    acks_all.printed(r"(produced)", acks_all.out)
    prometheus.await_scrape(acks_all)
    check_books(prometheus, acks_all, BOOKS + RECORDS)
    print("== alerts, their minutes made seconds")
    check_alerts(prometheus, held_up, misbehave, [broker, paused])
    print("== the dashboard")
    check_dashboard(prometheus, since)
    print("== the end")
    for program in programs:
        program.interrupt()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        try:
            check(Path(work), *(os.path.abspath(path) for path in sys.argv[1:4]))
        except Failed as failed:
            for program in Program.running:
                said = program.err.read_text().splitlines()[-10:]
                print(f"-- {program.name}:", *said, sep="\n   ", file=sys.stderr)
            sys.exit(f"FAILED: {failed}")
        finally:
            Program.end_all()
    print(f"prometheus check: passed, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
