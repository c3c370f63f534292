"""confluent-kafka as a driver: see protocol.py."""

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol import OLD, WAIT_S, serve, tell, values

CONFIG = {"bootstrap.servers": sys.argv[1], "log_level": 0}
if OLD:
    CONFIG |= {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}


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


def consumer(**config):
    return Consumer(CONFIG | {"group.id": "unused", "enable.auto.commit": False} | config)


def consume(topic, count, partition=0, wait_ms=500, min_bytes=1):
    reader = consumer(**{"fetch.wait.max.ms": wait_ms, "fetch.min.bytes": min_bytes, "socket.timeout.ms": 60000})
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


def member(topic, group, protocol="classic"):
    config = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    if protocol == "classic":
        config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    reader = consumer(**config)
    told = lambda _, partitions: tell("assigned", ",".join(sorted(str(at.partition) for at in partitions)))
    reader.subscribe([topic], on_assign=told, on_revoke=lambda *_: tell("assigned"))
    while True:
        message = reader.poll(0.1)
        raise_if(message and message.error())


def offset(topic, time_ms, partition=0):
    (found,) = consumer().offsets_for_times([TopicPartition(topic, partition, time_ms)], timeout=WAIT_S)
    raise_if(found.error)
    return ["none" if found.offset == OFFSET_END else found.offset]


def create(topic, config):
    new = NewTopic(topic, 1, 1, config=dict([config.split(":")]))
    admin = AdminClient(CONFIG)
    admin.create_topics([new], request_timeout=WAIT_S)[topic].result(WAIT_S)


def delete(topic, before, partition=0):
    at = TopicPartition(topic, partition, before)
    admin = AdminClient(CONFIG)
    admin.delete_records([at], request_timeout=WAIT_S)[at].result(WAIT_S)


def transaction():
    try:
        Producer(CONFIG | {"transactional.id": "x"}).init_transactions(WAIT_S)
    except KafkaException as error:
        raise_if(error.args[0])


serve({verb.__name__: verb for verb in [produce, consume, member, offset, create, delete, transaction]})
