"""The common part of the drivers in Python, which read commands and write one answer to each.

A driver is started with the broker's address. A line of its input is a command, `VERB KEY=VALUE...`;
its answer is `ok WORD...`, `error WORDS` as the client says it, or `cannot` where the client has no such
thing. The verbs:

    produce topic count [partition acks codec size prefix timeout_ms idempotent]
    consume topic count [partition wait_ms min_bytes]     the values, from the first record on
    create topic partitions [config]       three replicas; config is NAME:VALUE
    delete topic before [partition]        the records before that offset
"""

import sys

WAIT_S = 20  # a driver waits this long for its client; `run.py` waits longer


def values(prefix, count, size):
    """Returns the values to produce, which are the same in each driver."""
    return [f"{prefix}-{at}-".ljust(size, "x").encode() for at in range(count)]


def answer(verbs, line):
    verb, *words = line.split()
    if verb not in verbs:
        return "cannot"
    arguments = dict(word.split("=", 1) for word in words)
    try:
        result = verbs[verb](**{name: int(v) if v.isdecimal() else v for name, v in arguments.items()})
        return " ".join(["ok", *map(str, result or [])])
    except Exception as error:  # of whatever kind the client has
        return " ".join(f"error {type(error).__name__}: {error}".split())


def serve(verbs):
    for line in sys.stdin:
        print(answer(verbs, line), flush=True)
