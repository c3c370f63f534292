"""kafka-python and kafka-python-ng as drivers: see protocol.py."""

import sys
import time

import kafka
from kafka.admin import KafkaAdminClient, NewTopic

from protocol import OLD, WAIT_S, Cannot, serve, tell, values

NG = kafka.__version__.startswith("2.")
CONFIG = {"bootstrap_servers": sys.argv[1]}
if OLD:
    CONFIG["api_version"] = (0, 9)


def produce(topic, count, partition=0, acks="all", codec="none", size=60, prefix="", timeout_ms=30000,
            idempotent=0):
    if NG and idempotent:
        raise Cannot("no idempotent producer")
    config = {} if NG else {"enable_idempotence": bool(idempotent)}
    if not idempotent:
        config["retries"] = 0
    producer = kafka.KafkaProducer(
        **CONFIG, **config, acks=acks, compression_type=None if codec == "none" else codec, linger_ms=20,
        request_timeout_ms=timeout_ms, max_request_size=100_000_000,
    )
    sent = [producer.send(topic, value, partition=partition) for value in values(prefix, count, size)]
    for future in sent:
        future.get(timeout=WAIT_S)
    producer.close(timeout=WAIT_S)


def consume(topic, count, partition=0, wait_ms=500, min_bytes=1):
    reader = kafka.KafkaConsumer(
        **CONFIG, enable_auto_commit=False, fetch_max_wait_ms=wait_ms, fetch_min_bytes=min_bytes,
        request_timeout_ms=60000,
    )
    at = kafka.TopicPartition(topic, partition)
    reader.assign([at])
    reader.seek_to_beginning(at)
    found, end = [], time.monotonic() + WAIT_S
    while len(found) < count:
        found += [record.value.decode() for record in reader.poll(timeout_ms=100).get(at, [])]
        assert time.monotonic() < end, f"{len(found)} of {count} consumed"
    reader.close()
    return found


def member(topic, group, protocol="classic"):
    if protocol != "classic":
        raise Cannot("the classic protocol only")
    reader = kafka.KafkaConsumer(
        topic, **CONFIG, group_id=group, session_timeout_ms=6000, heartbeat_interval_ms=500,
        auto_offset_reset="earliest", enable_auto_commit=False,
    )
    told = None
    while True:
        reader.poll(timeout_ms=100)
        assigned = ",".join(sorted(str(at.partition) for at in reader.assignment()))
        if assigned != told:
            told = assigned
            tell("assigned", assigned)


def offset(topic, time_ms, partition=0):
    at = kafka.TopicPartition(topic, partition)
    found = kafka.KafkaConsumer(**CONFIG).offsets_for_times({at: time_ms})[at]
    return [found.offset if found else "none"]


def create(topic, config):
    new = NewTopic(topic, 1, 1, topic_configs=dict([config.split(":")]))
    KafkaAdminClient(**CONFIG).create_topics([new])


def delete(topic, before, partition=0):
    admin = KafkaAdminClient(**CONFIG)
    if not hasattr(admin, "delete_records"):
        raise Cannot("no delete_records")
    admin.delete_records({kafka.TopicPartition(topic, partition): before})


def transaction():
    if NG:
        raise Cannot("no transactions")
    kafka.KafkaProducer(**CONFIG, transactional_id="x").init_transactions()


serve({verb.__name__: verb for verb in [produce, consume, member, offset, create, delete, transaction]})
