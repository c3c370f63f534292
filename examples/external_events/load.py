"""Makes the load of check.sh, and judges the answers: load.py path/to/external_events

Starts a NATS server and three gateways, and records every POST and every GET. Times are this process's monotonic
clock: a request begins before the gateway parks it and ends after it was answered, so a request that seems early
is early.
"""

import asyncio
import collections
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

GATEWAYS, ORDERS, WAITERS = 3, 300, 3000
# How late an event may be, from its acknowledgement to the client: while everything runs, and after
# a restart of a gateway or the NATS server (when the gateways try to connect every 500 ms).
LATE_S, LATE_AFTER_RESTART_S = 1.5, 4.0
STEP_S = 120.0  # within which anything that is waited for must happen, however busy the machine is

now = time.monotonic
Answer = collections.namedtuple("Answer", "status headers body")
Asked = collections.namedtuple("Asked", "gateway order seen wait begun ended answer")


class Failed(Exception):
    pass


def check(right, what):
    if not right:
        raise Failed(what)


async def until(what, ready, within=STEP_S):
    """Calls `ready` until it returns a true value; returns that value."""
    deadline = now() + within
    while not (found := await ready()):
        check(now() < deadline, f"no {what} within {within:.0f} s")
        await asyncio.sleep(0.05)
    return found


async def http(port, request, body=""):
    """Sends a request on a connection of its own; raises OSError if the connection breaks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        data = await reader.read(-1)
    finally:
        writer.close()
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        raise ConnectionResetError("no whole answer")
    check(b"HTTP/1.1 " not in body, "two answers to one request")
    status, *headers = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in headers)
    if len(body) != int(headers.get("content-length", 0)):
        raise ConnectionResetError("no whole answer")
    return Answer(int(status.split()[1]), headers, body.decode())


class Process:
    """A program whose output goes to a file."""

    def __init__(self, name, command, folder):
        self.name, self.command, self.log = name, command, os.path.join(folder, name + ".log")
        self.process, self.restarted = None, []

    def start(self):
        if self.process:
            self.restarted.append(now())
        with open(self.log, "ab") as log:
            self.from_byte = log.tell()
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def said(self, pattern):
        with open(self.log, "rb") as log:
            log.seek(self.from_byte)
            return re.search(pattern, log.read().decode())

    def signal(self, number):
        self.process.send_signal(number)

    async def end(self, number, within=STEP_S):
        """Signals the process; returns its exit status."""
        self.signal(number)

        async def ended():
            return self.process.poll() is not None

        await until(f"end of {self.name}", ended, within)
        return self.process.returncode


class Stage:
    def __init__(self, gateway, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        nats = shutil.which("nats-server") or "/usr/sbin/nats-server"
        self.nats_port, self.store = int(port), os.path.join(folder, "store")
        self.nats = Process("nats", [nats, "-a", "127.0.0.1", "-p", port, "-js", "-sd", self.store], folder)
        listen = [gateway, "--nats", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0"]
        self.gateways = [Process(f"gateway-{at}", listen, folder) for at in range(GATEWAYS)]
        self.ports, self.metrics_ports = [0] * GATEWAYS, [0] * GATEWAYS
        self.asked, self.broken, self.refused, self.disturbed = [], [], 0, []
        self.posted = [dict() for _ in range(ORDERS)]  # version -> (state, when acknowledged)
        self.sent = [set() for _ in range(ORDERS)]  # states, acknowledged or not
        self.unsure = 0
        self.down = {}  # gateway -> since when

    async def start_nats(self):
        self.nats.start()

        async def ready():
            return self.nats.said("Server is ready")

        await until("NATS server", ready)

    async def start_gateway(self, at):
        self.gateways[at].start()

        async def ready():
            check(self.gateways[at].process.poll() is None, f"gateway {at} has ended")
            return self.gateways[at].said(r"listening on http://[\d.]+:(\d+)")

        self.ports[at] = int((await until(f"gateway {at}", ready)).group(1))
        self.metrics_ports[at] = int(self.gateways[at].said(r"metrics: http://[\d.]+:(\d+)").group(1))

    async def metric(self, at, name):
        page = (await http(self.metrics_ports[at], "GET /metrics")).body
        return int(float(re.search(rf"^{name}(?:{{.*}})? (\S+)$", page, re.M).group(1)))

    async def until_parked(self, counts):
        async def parked():
            return [await self.metric(at, "purgatory_parked") for at in range(GATEWAYS)] == counts

        await until(f"{counts} parked", parked)

    async def ask(self, at, order, seen, wait):
        begun = now()
        try:
            of = f"&epoch={self.epoch}" if seen else ""
            answer = await http(self.ports[at], f"GET /orders/{order}?seen={seen}{of}&wait={wait}ms")
        except OSError as error:
            self.broken.append((at, begun, now(), error))
            return None
        self.asked.append(Asked(at, order, seen, wait / 1000, begun, now(), answer))
        return answer

    async def post(self, at, order):
        state = f"{order}-{len(self.sent[order])}"
        self.sent[order].add(state)
        try:
            answer = await http(self.ports[at], f"POST /orders/{order}", state)
        except OSError as error:
            self.broken.append((at, now(), now(), error))
            self.unsure += 1
            return None
        if answer.status == 503:
            self.unsure += 1
            return None
        check(answer.status == 200, f"a POST was answered with {answer}")
        order_now = json.loads(answer.body)
        version, self.epoch = order_now["version"], order_now["epoch"]
        check(version not in self.posted[order], f"version {version} twice")
        self.posted[order][version] = (state, now())
        return version

    def last(self, order):
        return max(self.posted[order], default=0)

    def disturb(self, begun):
        """Notes that something was down from `begun` until now."""
        self.disturbed.append((begun, now() + LATE_AFTER_RESTART_S))

    def late_s(self, begun, ended):
        disturbed = any(begun < until_ and since < ended for since, until_ in self.disturbed)
        return LATE_AFTER_RESTART_S if disturbed else LATE_S

    def judge(self, one):
        """Checks that an answer is right for the published events, and came at the right time."""
        order, status = one.order, one.answer.status
        if status == 200:
            answered = json.loads(one.answer.body)
            version, state = answered["version"], answered["state"]
            check(answered["id"] == str(order) and version > one.seen, f"wrong answer: {one}")
            known = self.posted[order].get(version)
            check(known[0] == state if known else state in self.sent[order], f"never posted: {one}")
            return
        check(status == 204, f"unexpected: {one}")
        check(one.ended - one.begun >= one.wait, f"early by {one.wait - one.ended + one.begun:.6f} s: {one}")
        up = one.begun + one.wait
        margin = self.late_s(one.begun, up)
        for version, (_, at) in self.posted[order].items():
            missed = version > one.seen and at < up - margin
            check(not missed, f"missed version {version}, published {up - at:.1f} s before its time was up: {one}")

    def verdict(self):
        for one in self.asked:
            self.judge(one)
        counts = collections.Counter(one.answer.status for one in self.asked)
        late = sorted(one.ended - one.begun - one.wait for one in self.asked if one.answer.status == 204)
        print(f"  {counts[200]} answered 200, {counts[204]} answered 204: {spread(late)} late, none early; no event missed")


def spread(seconds):
    if not seconds:
        return "-"
    at = lambda part: f"{1000 * seconds[min(len(seconds) - 1, int(part * len(seconds)))]:.1f}"
    return f"p50 {at(0.5)} p99 {at(0.99)} max {at(1)} ms"


async def everyone_waits(stage):
    print(f"== {WAITERS} requests wait on {GATEWAYS} gateways; each order is changed once, on any of them")
    waits = [
        asyncio.create_task(stage.ask(at % GATEWAYS, at % ORDERS, stage.last(at % ORDERS), 30_000))
        for at in range(WAITERS)
    ]
    await stage.until_parked([WAITERS // GATEWAYS] * GATEWAYS)
    for order in range(ORDERS):
        check(await stage.post(random.randrange(GATEWAYS), order), "a POST failed while everything ran")
    answers = await asyncio.wait_for(asyncio.gather(*waits), STEP_S)
    check(all(answer and answer.status == 200 for answer in answers), "someone was not answered with 200")
    delays = sorted(one.ended - stage.posted[one.order][stage.last(one.order)][1] for one in stage.asked[-WAITERS:])
    print(f"  all answered, after the POST was: {spread(delays)}")


async def mixed_load(stage):
    print("== 3000 clients ask again and again, 60 events/s; gateway 1 and then the NATS server is killed and restarted")
    stop = asyncio.Event()

    async def client(number):
        chance = random.Random(number)
        while not stop.is_set():
            at, order = chance.randrange(GATEWAYS), chance.randrange(ORDERS)
            if at in stage.down:
                at = 0
            await stage.ask(at, order, stage.last(order), chance.randrange(500, 8000))

    async def poster():
        posts, begun = [], now()
        while not stop.is_set():
            while len(posts) < 60 * (now() - begun):  # several, when this was woken late
                at = random.randrange(GATEWAYS)
                post = stage.post(0 if at in stage.down else at, random.randrange(ORDERS))
                posts.append(asyncio.create_task(post))
            await asyncio.sleep(1 / 60)
        await asyncio.gather(*posts)

    async def posted_more(count):
        start = sum(map(len, stage.posted))

        async def enough():
            return sum(map(len, stage.posted)) >= start + count

        await until(f"{count} more events", enough)

    clients = [asyncio.create_task(client(number)) for number in range(WAITERS)]
    posting = asyncio.create_task(poster())
    await posted_more(240)
    begun = stage.down[1] = now()
    await stage.gateways[1].end(signal.SIGKILL)
    await posted_more(60)
    await stage.start_gateway(1)
    del stage.down[1]
    stage.disturb(begun)
    killed = (begun, now())
    await posted_more(240)
    begun = now()
    await stage.nats.end(signal.SIGKILL)
    await asyncio.sleep(1)  # down for a while
    await stage.start_nats()
    await posted_more(240)
    stage.disturb(begun)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*clients, posting), STEP_S)
    for at, begun, ended, error in stage.broken:
        check(at == 1 and begun <= killed[1] and ended >= killed[0], f"gateway {at} broke a connection: {error!r}")
    print(f"  {sum(map(len, stage.posted))} events, {stage.unsure} unacknowledged; {len(stage.broken)} connections broke with their gateway")


async def asleep(stage):
    print("== gateway 2 sleeps while the NATS server is restarted and the events are published")
    orders, seen = range(ORDERS), {order: stage.last(order) for order in range(ORDERS)}
    begun = now()
    waits = [asyncio.create_task(stage.ask(2, order, seen[order], 25_000)) for order in orders]

    async def parked():
        return await stage.metric(2, "purgatory_parked") + sum(task.done() for task in waits) == ORDERS

    await until(f"{ORDERS} parked or answered", parked)
    ended_before = {order for order in orders if waits[order].done()}  # an unacknowledged event
    check(len(ended_before) < ORDERS / 10, f"{len(ended_before)} were answered at once")
    stage.gateways[2].signal(signal.SIGSTOP)
    await stage.nats.end(signal.SIGTERM)
    await stage.start_nats()
    for order in orders:

        async def published():
            return await stage.post(0, order)

        await until("POST acknowledged", published)
    check(sum(task.done() for task in waits) == len(ended_before), "a gateway that sleeps has answered")
    stage.gateways[2].signal(signal.SIGCONT)
    woken = now()
    answers = await asyncio.wait_for(asyncio.gather(*waits), STEP_S)
    missed = sum(not answer or answer.status != 200 for answer in answers)
    check(missed == 0, f"{missed} of {ORDERS} requests missed their event")
    print(f"  all {ORDERS} were answered with 200, {now() - woken:.1f} s after it woke")
    stage.disturb(begun)


async def lose_store(stage):
    await stage.nats.end(signal.SIGTERM)
    shutil.rmtree(stage.store)
    await stage.start_nats()


async def delete_stream(stage):
    """Deletes the stream; the gateways keep their connections."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.nats_port)
    writer.write(b"CONNECT {}\r\nSUB answer 1\r\nPUB $JS.API.STREAM.DELETE.ORDERS answer 0\r\n\r\n")
    answer = await asyncio.wait_for(reader.readuntil(b'"success":true'), STEP_S)
    check(b"stream_delete_response" in answer, f"not deleted: {answer}")
    writer.close()


async def made_anew(stage, how, lose):
    print(f"== {how}; clients of the old one are answered")
    orders, epoch = range(20), stage.epoch
    ask = lambda at, order, of: http(
        stage.ports[at % GATEWAYS], f"GET /orders/{order}?seen={stage.last(order)}&epoch={of}&wait=60s"
    )
    waits = [asyncio.create_task(ask(order, order, epoch)) for order in orders]
    await stage.until_parked([7, 7, 6])
    await lose(stage)
    answers = await asyncio.wait_for(asyncio.gather(*waits), STEP_S)
    check(all(answer.status == 410 for answer in answers), f"not all 410: {answers}")
    stage.posted = [dict() for _ in range(ORDERS)]

    async def published():
        return await stage.post(0, 0)

    version = await until("POST acknowledged", published)
    check(stage.epoch != epoch, "the same epoch")
    for at in range(GATEWAYS):
        late = await asyncio.wait_for(ask(at, 0, epoch), STEP_S)
        check(late.status in (200, 410), f"an old client: {late}")

        async def new():
            answer = await http(stage.ports[at], f"GET /orders/0?seen=0&epoch={stage.epoch}&wait=1s")
            return answer.status == 200 and json.loads(answer.body)["version"] == version

        await until(f"gateway {at} in the new epoch", new)
    print(f"  {len(answers)} that waited were answered with 410; versions begin at {version}")


async def shutdown(stage):
    each = 300
    print(f"== {each} wait on each gateway; SIGTERM answers them")
    wait = lambda at: http(stage.ports[at % GATEWAYS], "GET /orders/none?wait=60s")
    waits = [asyncio.create_task(wait(at)) for at in range(GATEWAYS * each)]
    await stage.until_parked([each] * GATEWAYS)
    begun = now()
    statuses = await asyncio.gather(*(gateway.end(signal.SIGTERM, 5) for gateway in stage.gateways))
    answers = await asyncio.wait_for(asyncio.gather(*waits), STEP_S)
    check(all(answer.status == 503 and "retry-after" in answer.headers for answer in answers), "not all got 503")
    check(statuses == [0] * GATEWAYS, f"exit statuses {statuses}")
    print(f"  {len(answers)} answered 503 with Retry-After, all gateways ended in {now() - begun:.1f} s")
    for gateway in stage.gateways:
        print("  " + gateway.said(r"external_events: (\d+ waited.*)").group(1))


async def run(stage):
    await stage.start_nats()
    await asyncio.gather(*(stage.start_gateway(at) for at in range(GATEWAYS)))
    await everyone_waits(stage)
    stage.verdict()
    await mixed_load(stage)
    await stage.until_parked([0] * GATEWAYS)
    await asleep(stage)
    stage.verdict()
    await stage.until_parked([0] * GATEWAYS)
    versions = [await stage.metric(at, "external_events_version_total") for at in range(GATEWAYS)]
    check(len(set(versions)) == 1, f"the gateways know different versions: {versions}")
    print(f"  at rest: 0 parked on each gateway, all at version {versions[0]}")
    await made_anew(stage, "the NATS server loses its stream", lose_store)
    await made_anew(stage, "the stream is deleted", delete_stream)
    await shutdown(stage)


def main():
    begun = now()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(sys.argv[1], folder)
        processes = [*stage.gateways, stage.nats]
        try:
            asyncio.run(run(stage))
            print(f"  {now() - begun:.0f} s")
        except (Failed, asyncio.TimeoutError) as error:
            for process in processes:
                if os.path.exists(process.log):
                    subprocess.run(["tail", "-n", "8", process.log], stdout=sys.stderr)
            sys.exit(f"FAILED: {error!r}")
        finally:
            for process in processes:
                if process.process and process.process.poll() is None:
                    process.process.kill()
                    process.process.wait()


main()
