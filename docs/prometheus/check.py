"""What check.sh asserts by query: check.py PATH/acks_all PATH/broker PATH/misbehave

Starts the programs, and a Prometheus that scrapes them each second. It has the alerts of alerts.yml twice: as they are,
and with their minutes made seconds. Every wait is for something to be seen, with a deadline.
"""

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
DEADLINE_S = 30
PUBLISHED_S = 5  # what happened, and was scraped by then
RATE_INTERVAL = "5s"  # of scrapes that are a second apart

# Who is to provoke which alert.
HELD_UP = {"PurgatoryExpiresLate"}  # acks_all, which is stopped for two seconds
WRONG = HELD_UP | {  # misbehave
    "PurgatoryStuck",
    "PurgatoryCheckStuck",
    "PurgatoryRefuses",
    "PurgatoryPanics",
    "PurgatoryExecutorBacklog",
    "TimerBehind",
    "TimerPanics",
}

# At rest the purgatory's books agree with each other ...
BOOKS = [
    "sum(purgatory_parked_total{I}) == sum(purgatory_ended_total{I}) + sum(purgatory_parked{I})",
    "purgatory_parked{I} == 0",
    "purgatory_ended_total{I} == purgatory_wait_seconds_count{I}",
    'purgatory_ended_total{I} == ignoring(le) purgatory_wait_seconds_bucket{I,le="+Inf"}',
    'purgatory_ended_total{I,outcome="expired"} == ignoring(outcome) purgatory_expiry_lateness_seconds_count{I}',
    'sum(purgatory_cancelled_total{I}) == sum(purgatory_ended_total{I,outcome="cancelled"})',
    "purgatory_callbacks_waiting{I} == 0",
    "purgatory_oldest_age_seconds{I} == 0",
    "purgatory_keys{I} == 0",
    "purgatory_watched{I} == 0",
    "purgatory_panics_total{I} == 0",
]
# ... and with what acks_all counts itself; a record that is in sync at once is not parked.
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
    """Looks until there is something to see, and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen = look()
        if seen:
            return seen
        time.sleep(0.1)
    raise Failed(f"not within {seconds} s: {what}")


class Program:
    """A process, with files for what it prints. All are ended together."""

    running = []

    def __init__(self, work, name, *command):
        self.name, self.out, self.err = name, work / f"{name}.out", work / f"{name}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=os.environ | {"RUST_BACKTRACE": "0"},
            )
        Program.running.append(self)

    def printed(self, pattern, where):
        """The first group of a pattern in what it prints there."""

        def look():
            found = re.search(pattern, where.read_text(), re.MULTILINE)
            if not found and self.process.poll() is not None:
                raise Failed(f"{self.name} ended with status {self.process.returncode}")
            return found and found[1]

        return until(f"{pattern!r} from {self.name}", look)

    def serves(self):
        """Where it serves its metrics."""
        self.instance = self.printed(r"^metrics: http://([^/\s]+)/metrics", self.err)
        return self

    def interrupt(self):
        """Ctrl-C, upon which it has to end well."""
        self.process.send_signal(signal.SIGINT)
        try:
            status = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} goes on after Ctrl-C") from None
        if status != 0:
            raise Failed(f"{self.name} ended with status {status} after Ctrl-C")
        print(f"   {self.name} ended well after Ctrl-C")

    @classmethod
    def end_all(cls):
        for program in cls.running:
            if program.process.poll() is None:
                program.process.kill()  # stopped ones, too
                program.process.wait()


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
        # Minutes become seconds, in what an alert waits for, looks back on and compares with.
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
        """The series that an expression gives now, each as (labels, value)."""
        answer = self.get("query", query=expression)
        if answer["resultType"] == "scalar":
            return [({}, float(answer["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in answer["result"]]

    def values(self, expression, since):
        """Every value that an expression gave since then, of whatever series."""
        result = self.get("query_range", query=expression, start=since, end=time.time(), step="1s")
        return [float(value) for series in result["result"] for _, value in series["values"]]

    def firing(self):
        """By instance, which of the shortened alerts have been firing."""
        fired = {}
        expression = 'last_over_time(ALERTS{alertstate="firing",shortened="yes"}[10m])'
        for labels, _ in self.query(expression):
            fired.setdefault(labels["instance"], set()).add(labels["alertname"])
        return fired

    def await_scrape(self, program):
        """Until the program was scraped after now."""
        now = time.time()
        newest = f'timestamp(purgatory_parked_total{{instance="{program.instance}"}}) > {now}'
        until(f"a scrape of {program.name}", lambda: self.query(newest))


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def check_exposition(program):
    """promtool accepts what the program serves."""
    page = fetch(f"http://{program.instance}/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    said = (checked.stdout + checked.stderr).decode().strip()
    if checked.returncode != 0 or said:
        raise Failed(f"promtool check metrics, of {program.name}: {said}")
    print(f"   {program.name}: {len(page.splitlines())} lines, promtool has nothing to say")


def check_books(prometheus, program, books, further=""):
    """Each comparison holds, for every series on its left, of which there are some; with a further label matcher."""
    for book in books:
        book = book.replace("{I", f'{{instance="{program.instance}"{further}')
        as_bool = re.sub(r" (==|>) ", r" \1 bool ", book)
        sides = re.split(r" (?:==|>) (?:ignoring\(\w+\) )?", book)

        def holds():
            compared = [value for _, value in prometheus.query(as_bool)]
            return compared and compared == [1] * len(prometheus.query(sides[0]))

        try:
            until(book, holds, seconds=PUBLISHED_S)
        except Failed:
            left, right = (prometheus.query(side) for side in sides)
            raise Failed(f"{program.name}: {book}\n  left: {left}\n  right: {right}") from None
    print(f"   {program.name}: {len(books)} comparisons hold")


def produce(program, address, lines, *options):
    """What kcat said to producing these lines with acks=all, and its status."""
    command = ["kcat", "-P", "-b", address, "-t", "lines", "-X", "acks=all", *options]
    text = "\n".join(lines).encode()
    done = subprocess.run(command, input=text, capture_output=True, timeout=DEADLINE_S)
    return done.returncode, done.stderr.decode()


def check_broker(prometheus, broker, paused):
    """Produces that complete, and one that expires."""
    lines = [f"{number}: {line}" for number, line in enumerate((HERE / "check.py").read_text().splitlines())]
    status, said = produce(broker, broker.listens, lines)
    if status != 0:
        raise Failed(f"kcat was not acknowledged: {said}")
    short = ["-X", "retries=0", "-X", "request.timeout.ms=1000"]
    status, said = produce(paused, paused.listens, ["one"], *short)
    if status == 0 or "Request timed out" not in said:
        raise Failed(f"kcat was acknowledged, or told something else: {status}, {said}")
    for program, outcome in [(broker, "completed"), (paused, "expired")]:
        prometheus.await_scrape(program)
        happened = f'purgatory_ended_total{{I,purgatory="produce",outcome="{outcome}"}} > 0'
        # But for its followers' fetches, of which one each always waits.
        check_books(prometheus, program, BOOKS + [happened], ',purgatory!="fetch"')


def check_dashboard(prometheus, since):
    """Every query of every panel has an answer that is more than zero at some moment of the run."""
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
    queries, silent = 0, []
    for panel in panels:
        told = panel["title"] and panel["description"]
        defaults = panel["fieldConfig"]["defaults"]
        unit = defaults.get("unit") or panel["options"].get("yAxis", {}).get("unit")
        if not (told and unit):
            raise Failed(f"the panel {panel['title']!r} lacks a title, a description or a unit")
        for target in panel["targets"]:
            queries += 1
            values = prometheus.values(substituted(target["expr"], variables), since)
            if not any(0 < value < float("inf") for value in values):
                silent.append(f"{panel['title']!r}: {target['expr']} gave only {set(map(str, values))}")
    for annotation in board["annotations"]["list"]:
        if "expr" in annotation and not prometheus.values(substituted(annotation["expr"], variables), since):
            silent.append(f"annotation: {annotation['expr']}")
    if silent:
        raise Failed("no answer above zero in the whole run:\n  " + "\n  ".join(silent))
    print(f"   {len(panels)} panels, {queries} queries: each gave more than zero at some moment")


def substituted(expression, variables):
    """An expression with the values of the dashboard's variables."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]].replace(".", r"\\."), expression)


def check_alerts(prometheus, acks_all, misbehave, healthy):
    """Each fires where it is provoked, and nothing fires where all is well."""
    groups = prometheus.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    ill = [rule["name"] for rule in rules if rule["health"] != "ok"]
    shortened = {rule["name"] for rule in rules if "shortened" in rule["labels"]}
    if ill or shortened != WRONG:
        raise Failed(f"rules in ill health: {ill}; rules: {shortened}, provoked: {WRONG}")
    expected = [(misbehave, WRONG), (acks_all, HELD_UP)]

    def missing():
        fired = prometheus.firing()
        return [
            f"{alert} of {program.name}"
            for program, alerts in expected
            for alert in sorted(alerts - fired.get(program.instance, set()))
        ]

    try:
        until("every alert", lambda: not missing())
    except Failed:
        raise Failed(f"these alerts did not fire: {', '.join(missing())}") from None
    fired = prometheus.firing()
    for program in healthy:
        if program.instance in fired:
            raise Failed(f"alerts for {program.name}, where all is well: {fired[program.instance]}")
    for program, alerts in expected:
        print(f"   {program.name}: {' '.join(sorted(fired[program.instance]))}")
    print(f"   {' and '.join(program.name for program in healthy)}: none")


def hold_up(prometheus, acks_all):
    """Stops acks_all for two seconds while produces expire."""
    expiring = f'rate(purgatory_ended_total{{instance="{acks_all.instance}",outcome="expired"}}[5s]) > 0'
    until("produces of acks_all expire", lambda: prometheus.query(expiring))
    acks_all.process.send_signal(signal.SIGSTOP)
    time.sleep(2)  # this long, not until something
    acks_all.process.send_signal(signal.SIGCONT)
    print("   acks_all: stopped for 2 s while its produces expired")


def check(work, acks_all_path, broker_path, misbehave_path):
    print("== the programs and a Prometheus")
    since = time.time()
    broker_args = ["--listen", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"]
    misbehave = Program(work, "misbehave", misbehave_path)
    broker = Program(work, "broker", broker_path, *broker_args)
    paused = Program(work, "paused broker", broker_path, *broker_args, "--pause-followers")
    run = "--seconds 12 --rate 150000 --timeout 500ms --stall-from 2s --stall-for 8s --linger 10m"
    acks_all = Program(work, "acks_all", acks_all_path, *run.split())
    programs = [misbehave.serves(), broker.serves(), paused.serves(), acks_all.serves()]
    for one in [broker, paused]:
        one.listens = one.printed(r"^broker: listening on (\S+)", one.out)
    prometheus = Prometheus(work, [program.instance for program in programs])
    for program in programs:
        prometheus.await_scrape(program)
        check_exposition(program)
    hold_up(prometheus, acks_all)

    print("== the books of the broker at rest")
    check_broker(prometheus, broker, paused)
    print("== the books of acks_all at rest")
    acks_all.printed(r"(produced)", acks_all.out)
    prometheus.await_scrape(acks_all)
    check_books(prometheus, acks_all, BOOKS + RECORDS)
    print("== alerts, their minutes made seconds")
    check_alerts(prometheus, acks_all, misbehave, [broker, paused])
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
