"""kcat as a driver, a process for each command: see protocol.py."""

import re
import subprocess
import sys

from protocol import OLD, WAIT_S, Cannot, serve, tell, values

OLD_OPTIONS = ["-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0.1"] if OLD else []


def kcat(*words, options=(), stdin=None):
    words = ["kcat", "-b", sys.argv[1], *OLD_OPTIONS, *map(str, words)]
    for option in options:
        words += ["-X", option]
    try:
        ran = subprocess.run(words, input=stdin, capture_output=True, timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no answer in {WAIT_S} s") from None
    failure = re.search(rb"% (Delivery failed|ERROR).*", ran.stderr)
    if ran.returncode or failure:
        raise RuntimeError((failure[0] if failure else ran.stderr).decode())
    return ran.stdout.decode().splitlines()


def produce(topic, count, partition=0, acks="all", codec="none", size=60, prefix="", timeout_ms=30000,
            idempotent=0):
    options = [f"acks={acks}", "linger.ms=20", "message.max.bytes=100000000", f"request.timeout.ms={timeout_ms}",
               "enable.idempotence=true" if idempotent else "retries=0"]
    lines = b"".join(value + b"\n" for value in values(prefix, count, size))
    kcat("-P", "-t", topic, "-p", partition, "-z", codec, options=options, stdin=lines)


def consume(topic, count, partition=0, wait_ms=500, min_bytes=1):
    options = [f"fetch.wait.max.ms={wait_ms}", f"fetch.min.bytes={min_bytes}", "socket.timeout.ms=60000"]
    return kcat("-C", "-t", topic, "-p", partition, "-o", "beginning", "-c", count, "-q", options=options)


def member(topic, group, protocol="classic"):
    if protocol != "classic":
        raise Cannot("its librdkafka has the classic protocol only")
    options = ["-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500", "-X", "auto.offset.reset=earliest"]
    words = ["kcat", "-b", sys.argv[1], *OLD_OPTIONS, *options, "-G", group, topic]
    ran = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in ran.stderr:
        if change := re.search(r"(assigned|revoked): (.*)", line):
            mine = re.findall(r"\[(\d+)\]", change[2]) if change[1] == "assigned" else []
            tell("assigned", ",".join(sorted(mine)))
    raise RuntimeError("kcat ended")


def offset(topic, time_ms, partition=0):
    (line,) = kcat("-Q", "-t", f"{topic}:{partition}:{time_ms}")
    found = int(re.search(r"offset (-?\d+)", line)[1])
    return ["none" if found < 0 else found]


def transaction():
    kcat("-P", "-t", "transaction", options=["transactional.id=x"], stdin=b"never\n")


serve({verb.__name__: verb for verb in [produce, consume, member, offset, transaction]})
