"""The scenarios that every client is put through. A scenario gives commands to drivers (protocol.py) and judges
their answers. If all is as promised it returns (an error of the client in the client's words); otherwise it fails
with the words for the table.
"""

import re
import time
from functools import partial

RECORDS = 100
TIMEOUT_MS = 1000
LONG_MS = 12_000  # of a fetch; a driver waits longer

# The words of clients for the protocol's errors, besides the protocol's names in any spelling.
ALSO = {
    # The last two are of a client that has the same limit and did not wait for the broker's answer.
    "REQUEST_TIMED_OUT": ["exceeded the user-specified time limit", "disconnected from node", "expiring 1 record"],
    "NOT_ENOUGH_REPLICAS": ["Not enough in-sync replicas", "fewer in-sync replicas than required"],
    "MESSAGE_TOO_LARGE": ["Message size too large", "RecordTooLarge", "MSG_SIZE_TOO_LARGE", "too large, server"],
    "INVALID_CONFIG": ["InvalidConfiguration", "Configuration is invalid", "code 40"],
}


class Failed(Exception):
    """The client did not do as promised; the words say what came instead."""


class CannotDo(Exception):
    """The client cannot do what the scenario asks."""


def letters(text):
    return re.sub("[^a-z0-9]", "", text.lower())


def refused(driver, error, verb, **arguments):
    """Checks that the client reports this error of the protocol; returns its words."""
    try:
        driver.ask(verb, **arguments)
    except Failed as failed:
        if any(letters(known) in letters(str(failed)) for known in [error, *ALSO[error]]):
            return str(failed)
        raise
    raise Failed("no error")


def compare(found, produced):
    if [value.rstrip("x") for value in found] != produced:
        raise Failed(f"{len(found)} read, and not what was produced")


def read_back(driver, topic, prefix, count, times=1, **arguments):
    found = driver.ask("consume", topic=topic, count=count * times, **arguments)
    compare(found, [f"{prefix}-{at}-" for at in range(count)] * times)


def produced_and_read(cell, **arguments):
    driver = cell.driver()
    driver.ask("produce", topic=cell.topic, count=RECORDS, prefix="it", **arguments)
    read_back(driver, cell.topic, "it", RECORDS)


def few_acks(cell):
    driver = cell.driver()
    for acks in [1, 0]:  # in this order: what has no leader yet is lost with acks=0
        driver.ask("produce", topic=cell.topic, count=RECORDS, prefix="it", acks=acks)
    read_back(driver, cell.topic, "it", RECORDS, times=2)


def large(cell):
    driver = cell.driver()
    driver.ask("produce", topic=cell.topic, count=1, prefix="before")
    error = refused(driver, "MESSAGE_TOO_LARGE", "produce", topic=cell.topic, count=1, size=2_000_000)
    driver.ask("produce", topic=cell.topic, count=1, partition=1, prefix="after")
    read_back(driver, cell.topic, "before", 1)
    return error


def stalled(cell):
    driver = cell.driver()
    driver.ask("produce", topic=cell.topic, count=1, acks=1)
    start = time.monotonic()
    error = refused(driver, "REQUEST_TIMED_OUT", "produce", topic=cell.topic, count=1, timeout_ms=TIMEOUT_MS)
    if time.monotonic() - start < TIMEOUT_MS / 1000:
        raise Failed("too early")
    return error


def short(cell):
    driver = cell.driver()
    driver.ask("produce", topic=cell.topic, count=1, acks=1)
    time.sleep(2)  # the followers leave 10 ms after the first record; later where the machine is busy
    return refused(driver, "NOT_ENOUGH_REPLICAS", "produce", topic=cell.topic, count=1)


def woken(cell):
    """Too few bytes do not wake a fetch that waits; enough bytes do."""
    reader, writer = cell.driver(), cell.driver()
    writer.ask("produce", topic=cell.topic, count=1, prefix="few")
    reader.send("consume", topic=cell.topic, count=2, wait_ms=LONG_MS, min_bytes=10_000)
    start = time.monotonic()
    if not reader.silent(2):
        raise Failed("woken by too few bytes")
    writer.ask("produce", topic=cell.topic, count=1, prefix="many", size=20_000)
    found = reader.receive()
    if time.monotonic() - start > LONG_MS / 1000:
        raise Failed("not woken")
    compare(found, ["few-0-", "many-0-"])


def expired(cell):
    """Enough bytes never come: the fetch gets the bytes that are there at its timeout, and not before."""
    driver = cell.driver()
    driver.ask("produce", topic=cell.topic, count=1, prefix="few")
    start = time.monotonic()
    read_back(driver, cell.topic, "few", 1, wait_ms=2000, min_bytes=10_000)
    if time.monotonic() - start < 2:
        raise Failed("too early")


def delete(cell):
    driver = cell.driver()
    driver.ask("produce", topic=cell.topic, count=3, prefix="it")
    driver.ask("delete", topic=cell.topic, before=2)
    compare(driver.ask("consume", topic=cell.topic, count=1), ["it-2-"])


def create(cell):
    """A topic is made as asked; a topic with a configuration is not made."""
    driver = cell.driver()
    driver.ask("create", topic=cell.topic, partitions=2)
    driver.ask("produce", topic=cell.topic, count=1, partition=1)
    arguments = {"topic": f"{cell.topic}-not", "partitions": 1, "config": "retention.ms:1000"}
    return refused(driver, "INVALID_CONFIG", "create", **arguments)


# The broker's options for each state of its followers.
OPTIONS = {
    "up": [],
    "stalled": ["--pause-followers", "--replica-lag-time-max-ms", "86400000"],
    "short": ["--pause-followers", "--replica-lag-time-max-ms", "10"],
}
# name: (state of the followers, promise, scenario); in the order of the table's rows.
SCENARIOS = {
    "acks 0, 1": ("up", "all is read back", few_acks),
    **{
        name: ("up", f"acks=all, codec {name}: all is read back", partial(produced_and_read, codec=name))
        for name in ["none", "gzip", "snappy", "lz4", "zstd"]
    },
    "idempotent": ("up", "an idempotent producer", partial(produced_and_read, idempotent=1)),
    "large": ("up", "a record of 2 MB: MESSAGE_TOO_LARGE", large),
    "stalled": ("stalled", "acks=all for a second, both followers stopped: REQUEST_TIMED_OUT", stalled),
    "short": ("short", "acks=all, both followers out of the in-sync set: NOT_ENOUGH_REPLICAS", short),
    "woken": ("up", "a fetch waits for bytes, and gets them when they come", woken),
    "expired": ("up", "a fetch waits for bytes, and gets what is there at its time", expired),
    "delete": ("up", "records are deleted", delete),
    "create": ("up", "a topic made with two partitions; one with a configuration: INVALID_CONFIG", create),
}
