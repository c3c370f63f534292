#!/usr/bin/env python3
"""Clients that do everything wrong, and followers that end: attack.py target/release/examples/broker

A cluster of three processes. Connections are idle, stop inside a frame, send what is no request, leave
while their produce waits or with fetches sent ahead; a produce waits for its timeout; a follower is killed
while produces wait for it, both are stopped; the leader is asked to end, or killed. After each attack the
self-check passes: every request was answered once or its connection is gone, nothing is parked, every
record is there, and the leader's descriptors, threads and memory are back.
"""

import argparse
import contextlib
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from operator import gt
from pathlib import Path

DEADLINE_S = 60
HOUR_MS = 3_600_000
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
NOT_LEADER, TIMED_OUT, NOT_ENOUGH_REPLICAS = 6, 7, 19
OTHER_DESCRIPTORS = 200
HASTY = 50  # produces that time out
PIPELINING = 50  # clients that send fetches ahead
SENT_AHEAD = 6  # fetches of each
LONGEST_MS = 2**31 - 1  # that a request can ask for: 24 days
LAST = 100  # that wait when the leader ends: it cuts off what takes more than two seconds
TOPIC = struct.pack(">ih6s", 1, 6, b"attack")
# A batch of one record, with its checksum.
BATCH = bytes.fromhex(
    "00000000000000000000004c000000000243311eb200000000000000000000000000000000000000000000ffffffffffffff"
    "ffffffffffffff0000000161732074686520636c69656e7420636f6d70726573736564206974"
)
# How much of peaks the allocator may keep since the first attack; one buffer for each connection would be more.
MEMORY_GROWTH_KB, MEMORY_GROWTH_CLIENT_KB = 8000, 16


def fail(words):
    raise SystemExit(f"FAILED: {words}")


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            fail(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.02)


def frame(api, version, body, number=1):
    """Makes a frame; `number` is the correlation id, which the answer repeats."""
    request = struct.pack(">hhih", api, version, number, -1) + body
    return struct.pack(">i", len(request)) + request


def produce(timeout_ms=HOUR_MS):
    """Makes a produce with acks=all."""
    body = struct.pack(">hhi", -1, -1, timeout_ms) + TOPIC + struct.pack(">iii", 1, 0, len(BATCH)) + BATCH
    return frame(PRODUCE, 3, body)


def fetch(offset, max_wait_ms=HOUR_MS):
    partition = struct.pack(">iiqi", 1, 0, offset, 1 << 20)
    return frame(FETCH, 4, struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 20, 0) + TOPIC + partition)


def malformed(seed):
    """Makes a malformed frame, in one of several ways."""
    bytes_of = random.Random(seed).randbytes
    return [
        b"\x7f\xff\xff\xff",  # oversized
        b"\xff\xff\xff\xff",  # negative length
        b"\x00\x00\x00\x02\x00\x03",  # shorter than a header
        b"GET / HTTP/1.1\r\n\r\n",
        frame(METADATA, 4, b"\x7f\xff\xff\xff"),  # giant array
        frame(0x7F00, 0, bytes_of(60)),  # no such API
        frame(PRODUCE, 3, b"\x7f\xff" + bytes_of(60)),  # giant string
    ][seed % 7]


class Client:
    """A connection."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send, self.close = self.socket.sendall, self.socket.close

    def receive(self, count):
        data = b""
        while len(data) < count:
            if not (more := self.socket.recv(count - len(data))):
                fail("a connection was closed before its answer")
            data += more
        return data

    def answer(self):
        """Receives the next answer; returns its number, and the rest."""
        (length,) = struct.unpack(">i", self.receive(4))
        answer = self.receive(length)
        return struct.unpack(">i", answer[:4])[0], answer[4:]

    def answered_once(self):
        """Returns the answer to the only request, and checks that the next answer is to the next request."""
        number, answer = self.answer()
        self.send(frame(API_VERSIONS, 0, b"", number=2))
        if (number, self.answer()[0]) != (1, 2):
            fail("a request was not answered once")
        return answer

    def produced(self):
        """Returns the error of the produce that was sent."""
        return struct.unpack_from(">h", self.answered_once(), len(TOPIC) + 8)[0]

    def was_closed(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def send(clients, data):
    for client in clients:
        client.send(data)


def close(clients):
    for client in clients:
        client.close()


def has_stopped(process):
    """Returns true if all threads of a process are stopped: until then a follower may still fetch."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return all("\nState:\tT" in (task / "status").read_text() for task in tasks)


class Cluster:
    """Three processes, and counts of what the clients have seen of them."""

    def __init__(self, program, folder, connections):
        self.out, self.err = folder / "out", folder / "err"
        self.lag_ms = 10_000 + 2 * connections  # then a follower that is silent leaves the in-sync set
        self.words = [program, "--max-connections", str(connections + LAST),
                      "--replica-lag-time-max-ms", str(self.lag_ms)]
        self.process = self.start("cluster", "--listen", "127.0.0.1:0")
        wait_for("address", lambda: self.printed("listening on (.*):(.*)"))
        host, port = self.printed("listening on (.*):(.*)")
        self.address = (host, int(port))
        self.nodes = [int(self.printed(f"node {node} is process (.*)")[0]) for node in (1, 2, 3)]
        wait_for("followers", lambda: self.err.read_text().count("follows") == 2)
        self.metrics_at = re.search("metrics: (.*)", self.err.read_text())[1]
        self.seen = Counter()  # of records, produces and connections
        self.metrics()
        self.at_first, self.memory_kb_max = self.held(), None
        self.growth_kb = MEMORY_GROWTH_KB + MEMORY_GROWTH_CLIENT_KB * connections

    def start(self, *words):
        with open(self.out, "a") as out, open(self.err, "a") as err:
            return subprocess.Popen([*self.words, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def start_again(self, node):
        """Starts a node again, not as a child of the cluster's process."""
        (nodes,) = self.printed("a node is run by: --node N --cluster (.*)")
        self.nodes[node - 1] = self.start("--node", str(node), "--cluster", nodes).pid

    def kill(self):
        """Kills the cluster and its followers: the leader ends with the cluster, a stopped follower would not."""
        self.process.kill()
        self.process.wait()
        for node in (2, 3):
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL, node)

    def printed(self, pattern):
        found = re.search(f"^broker: {pattern}$", self.out.read_text(), re.MULTILINE)
        return found and found.groups()

    def clients(self, count):
        return [Client(self.address) for _ in range(count)]

    def signal(self, sign, *nodes):
        for node in nodes:
            os.kill(self.nodes[node - 1], sign)
        if sign == signal.SIGSTOP:
            for node in nodes:
                wait_for(f"stop of node {node}", lambda: has_stopped(self.nodes[node - 1]))

    def metrics(self):
        lines = urllib.request.urlopen(self.metrics_at, timeout=DEADLINE_S).read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line[:1] not in ("", "#")]
        return {name: float(value) for name, value in pairs}

    def sum(self, name):
        return sum(value for key, value in self.metrics().items() if key.startswith(f'{name}{{purgatory="produce"'))

    def parked(self, purgatory):
        return self.metrics()[f'purgatory_parked{{purgatory="{purgatory}"}}']

    def wait_until_parked(self, purgatory, count):
        wait_for(f"{count} of {purgatory} parked", lambda: count <= self.parked(purgatory) <= count + 2)

    def produced(self, clients, error=0):
        for client in clients:
            if (answered := client.produced()) != error:
                fail(f"a produce was answered with error {answered}, not {error}")

    def bystander(self, timeout_ms=HOUR_MS):
        """Sends one more produce; returns its error."""
        client = Client(self.address)
        client.send(produce(timeout_ms))
        error = client.produced()
        client.close()
        self.seen.update(appended=error != NOT_ENOUGH_REPLICAS, completed=error == 0, expired=error == TIMED_OUT)
        return error

    def others_are_served(self):
        if error := self.bystander():
            fail(f"a bystander's produce was answered with error {error}")

    def held(self):
        """Counts the descriptors and threads of the leader."""
        return [len(os.listdir(f"/proc/{self.nodes[0]}/{what}")) for what in ("fd", "task")]

    def self_check(self, attack):
        """Checks that only the followers' fetches are parked, and that the leader holds no more than before."""
        wait_for("nothing parked", lambda: self.parked("produce") == 0 and self.parked("fetch") <= 2)
        wait_for(f"only {self.at_first} descriptors, threads", lambda: not any(map(gt, self.held(), self.at_first)))
        memory_kb = int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self.nodes[0]}/status").read_text())[1])
        self.memory_kb_max = self.memory_kb_max or memory_kb + self.growth_kb
        print(f"{attack}: self-check passed, memory {memory_kb / 1000:.1f} MB")
        if memory_kb > self.memory_kb_max:
            fail(f"memory GREW beyond {self.memory_kb_max / 1000:.1f} MB")
        if self.sum("purgatory_parked_total") != self.sum("purgatory_ended_total"):
            fail("what was parked has not ended")


def idle(cluster, count):
    """Half of the clients park a fetch, half send nothing. One produce wakes the fetches; while the next ones wait,
    their clients leave."""
    clients = cluster.clients(count)
    waiting = clients[::2]
    send(waiting, fetch(cluster.seen["appended"]))
    cluster.wait_until_parked("fetch", len(waiting))
    cluster.others_are_served()
    if not all(BATCH[12:] in client.answered_once() for client in waiting):
        fail("a fetch was answered without the record")
    send(waiting, fetch(cluster.seen["appended"]))
    cluster.wait_until_parked("fetch", len(waiting))
    close(clients)


def pipelined_fetches(cluster, count):
    """Each client sends fetches ahead that would wait for 24 days, and leaves. The first fetch waits; the others lie
    before the client's end, which the broker sees all the same."""
    clients = cluster.clients(count)
    send(clients, SENT_AHEAD * fetch(cluster.seen["appended"], LONGEST_MS))
    cluster.wait_until_parked("fetch", count)
    close(clients)
    wait_for("end of fetches whose clients have left", lambda: cluster.parked("fetch") <= 2)
    cluster.others_are_served()


def half_frames(cluster, count):
    """Sends the first bytes of a produce, then nothing; then the rest, or the end of the connection."""
    clients, request = cluster.clients(count), produce()
    cut = [1 + at % (len(request) - 1) for at in range(count)]
    for client, at in zip(clients, cut):
        client.send(request[:at])
    cluster.others_are_served()
    late, gone = clients[::2], clients[1::2]
    close(gone)
    for client, at in zip(late, cut[::2]):
        client.send(request[at:])
    cluster.produced(late)
    close(late)
    cluster.seen.update(appended=len(late), completed=len(late), rejected=len(gone))


def malformed_frames(cluster, count):
    """Sends malformed frames, each of which closes only its own connection."""
    for seed in range(count):
        client = Client(cluster.address)
        client.send(malformed(seed))
        if not client.was_closed():
            fail(f"an answer to malformed frame {seed}")
        client.close()
        if seed % 1000 == 0:
            cluster.others_are_served()
    cluster.seen.update(rejected=count)


def killed_follower(cluster, count):
    """Produces wait for a stopped follower. Some time out, some lose their clients. The follower is killed; the rest
    are acknowledged once it has left the in-sync set. It is started again, and every record is there."""
    clients = cluster.clients(count)
    hasty, leaving, staying = clients[:HASTY], clients[HASTY::2], clients[HASTY + 1::2]
    cluster.signal(signal.SIGSTOP, 2)
    send(leaving + staying, produce())
    cluster.wait_until_parked("produce", len(leaving + staying))
    began = time.monotonic()
    send(hasty, produce(timeout_ms=1000))
    close(leaving)
    cluster.produced(hasty, TIMED_OUT)
    if time.monotonic() - began < 1:
        fail("a produce timed out too early")
    cluster.wait_until_parked("produce", len(staying))
    cluster.signal(signal.SIGKILL, 2)
    cluster.start_again(2)
    cluster.produced(staying)
    close(hasty + staying)
    cluster.seen.update(appended=count, expired=len(hasty), cancelled=len(leaving), completed=len(staying))
    reader, found = Client(cluster.address), 0
    while found < cluster.seen["appended"]:
        reader.send(fetch(found))
        found += reader.answer()[1].count(BATCH[12:])
    reader.close()


def stopped_followers(cluster, count):
    """Both followers leave the in-sync set while produces wait: these expire, the next is refused. Then both go on."""
    clients = cluster.clients(count)
    cluster.signal(signal.SIGSTOP, 2, 3)
    send(clients, produce(2 * cluster.lag_ms))
    cluster.produced(clients, TIMED_OUT)
    close(clients)
    cluster.seen.update(appended=count, expired=count)
    if (error := cluster.bystander()) != NOT_ENOUGH_REPLICAS:
        fail(f"with no follower in sync a produce was answered with error {error}")
    cluster.signal(signal.SIGCONT, 2, 3)
    wait_for("recovery", lambda: cluster.bystander(1000) == 0)


def killed_leader(cluster, count):
    """The leader is killed: its followers end with it, even a stopped one."""
    clients = cluster.clients(count)
    cluster.signal(signal.SIGSTOP, 3)
    send(clients, produce())
    cluster.wait_until_parked("produce", count)
    cluster.signal(signal.SIGKILL, 1)
    if not cluster.process.wait(DEADLINE_S) or "the leader, ended: signal: 9" not in cluster.err.read_text():
        fail("the cluster ended well without its leader")
    if any(Path(f"/proc/{node}").exists() for node in cluster.nodes):
        fail("a node is still there, if only as a zombie")
    if not all(client.was_closed() for client in clients):
        fail("a produce was answered by a leader that is gone")


def shutdown(cluster, count):
    """Produces wait; SIGUSR1 prints them, SIGTERM answers them; the leader's counts agree with the clients'."""
    clients = cluster.clients(count)
    # The other processes have no snapshot, and go on.
    cluster.signal(signal.SIGUSR1, 2, 3)
    cluster.process.send_signal(signal.SIGUSR1)
    wait_for("three hints", lambda: cluster.err.read_text().count("send it SIGUSR1") == 3)
    cluster.signal(signal.SIGSTOP, 2, 3)
    send(clients, produce())
    cluster.wait_until_parked("produce", count)
    cluster.signal(signal.SIGUSR1, 1)
    wait_for("snapshot", lambda: f"produce: {count} parked under" in cluster.err.read_text())
    cluster.process.terminate()
    if cluster.process.wait(DEADLINE_S):
        fail(f"the cluster ended with {cluster.process.returncode}")
    for client in clients:
        number, answer = client.answer()
        if (number, struct.unpack_from(">h", answer, len(TOPIC) + 8)[0]) != (1, NOT_LEADER) or not client.was_closed():
            fail("a produce was not answered once, as the leader ended")
    cluster.seen.update(appended=count, cancelled=count)
    completed, expired, cancelled, at_once = map(int, cluster.printed(
        "parked produces: (.*) completed, (.*) expired, (.*) cancelled; (.*) ended at once"))
    (appended,), (rejected,) = cluster.printed("appended: (.*) records;.*"), cluster.printed("rejected connections: (.*)")
    counted = {"appended": int(appended), "completed": completed + at_once, "expired": expired,
               "cancelled": cancelled, "rejected": int(rejected)}
    if counted != cluster.seen or cluster.printed("acked before replicated: (.*)") != ("0",):
        fail(f"the broker counted {counted}, its clients {dict(cluster.seen)}")
    print(f"{counted}, by both")


def enough_descriptors(count):
    """Raises the limit of descriptors, which the cluster inherits: a connection takes one here, one in the leader."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + OTHER_DESCRIPTORS:
        print(f"SKIPPED: {count} CONNECTIONS: ulimit -Hn is {most}", file=sys.stderr)
        raise SystemExit(os.environ.get("CI") == "true")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + OTHER_DESCRIPTORS, most))


def put_through(args, attacks, last):
    """Runs the attacks on a new cluster; the last attack ends it."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(args.broker, Path(folder), args.connections)
        try:
            maker = Client(cluster.address)
            maker.send(frame(METADATA, 1, TOPIC))  # makes the topic
            maker.answered_once()
            maker.close()
            for attack, count in attacks:
                attack(cluster, count)
                cluster.self_check(f"{attack.__name__}, {count}")
            last(cluster, LAST)
            print(f"{last.__name__}, {LAST}: self-check passed")
        finally:
            cluster.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("broker", help="the program, target/release/examples/broker")
    parser.add_argument("--connections", type=int, default=300, help="at a time; 300")
    parser.add_argument("--frames", type=int, default=2000, help="malformed ones, a connection each; 2000")
    args = parser.parse_args()
    enough_descriptors(args.connections)
    many, few = args.connections, min(args.connections, 300)
    put_through(args, [(idle, many), (pipelined_fetches, PIPELINING), (half_frames, many), (malformed_frames, args.frames), (idle, many),
                       (killed_follower, many), (stopped_followers, few)], shutdown)
    put_through(args, [], killed_leader)
    print("broker attack: passed")


main()
