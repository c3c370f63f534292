"""kcat as a driver, a process for each command: see protocol.py."""

import re
import subprocess
import sys

from protocol import WAIT_S, serve, values


def kcat(*words, options=(), stdin=None):
    words = ["kcat", "-b", sys.argv[1], *map(str, words), *(f"-X{option}" for option in options)]
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


serve({verb.__name__: verb for verb in [produce, consume]})
