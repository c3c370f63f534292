"""kafka-python as a driver: see protocol.py."""

import sys
import time

import kafka
from kafka.admin import KafkaAdminClient, NewTopic

from protocol import WAIT_S, serve, values

CONFIG = {"bootstrap_servers": sys.argv[1]}


def produce(topic, count, partition=0, acks="all", codec="none", size=60, prefix="", timeout_ms=30000,
            idempotent=0):
    config = {"enable_idempotence": True} if idempotent else {"enable_idempotence": False, "retries": 0}
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


def create(topic, partitions, config=None):
    new = NewTopic(topic, partitions, 3, topic_configs=dict([config.split(":")]) if config else {})
    KafkaAdminClient(**CONFIG).create_topics([new])


def delete(topic, before, partition=0):
    KafkaAdminClient(**CONFIG).delete_records({kafka.TopicPartition(topic, partition): before})


serve({verb.__name__: verb for verb in [produce, consume, create, delete]})
