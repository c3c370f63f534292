"""confluent-kafka as a driver: see protocol.py."""

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol import WAIT_S, serve, values

CONFIG = {"bootstrap.servers": sys.argv[1], "log_level": 0}


def raise_if(error):
    if error is not None:
        raise RuntimeError(f"{error.name()}: {error.str()}")


def produce(topic, count, partition=0, acks="all", codec="none", size=60, prefix="", timeout_ms=30000,
            idempotent=0):
    config = {"acks": acks, "compression.type": codec, "linger.ms": 20, "message.max.bytes": 100_000_000,
              "request.timeout.ms": timeout_ms}
    config |= {"enable.idempotence": True} if idempotent else {"retries": 0}
    producer, errors = Producer(CONFIG | config), []
    for value in values(prefix, count, size):
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0, "no answer in time"
    for error in errors:
        raise_if(error)


def consume(topic, count, partition=0, wait_ms=500, min_bytes=1):
    config = {"group.id": "unused", "enable.auto.commit": False, "socket.timeout.ms": 60000}
    reader = Consumer(CONFIG | config | {"fetch.wait.max.ms": wait_ms, "fetch.min.bytes": min_bytes})
    reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found, end = [], time.monotonic() + WAIT_S
    while len(found) < count:
        message = reader.poll(0.1)
        if message is not None:
            raise_if(message.error())
            found.append(message.value().decode())
        assert time.monotonic() < end, f"{len(found)} of {count} consumed"
    reader.close()
    return found


def create(topic, partitions, config=None):
    new = NewTopic(topic, partitions, 3, config=dict([config.split(":")]) if config else {})
    admin = AdminClient(CONFIG)
    admin.create_topics([new], request_timeout=WAIT_S)[topic].result(WAIT_S)


def delete(topic, before, partition=0):
    at = TopicPartition(topic, partition, before)
    admin = AdminClient(CONFIG)
    admin.delete_records([at], request_timeout=WAIT_S)[at].result(WAIT_S)


serve({verb.__name__: verb for verb in [produce, consume, create, delete]})
