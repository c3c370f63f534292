"""aiokafka as a driver: see protocol.py. The client tries again until its timeout, whatever the error."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from protocol import WAIT_S, serve, values

CONFIG = {"bootstrap_servers": sys.argv[1]}


async def produce(topic, count, partition=0, acks="all", codec="none", size=60, prefix="", timeout_ms=5000,
                  idempotent=0):
    producer = AIOKafkaProducer(
        **CONFIG, acks=acks, compression_type=None if codec == "none" else codec, linger_ms=20,
        enable_idempotence=bool(idempotent), request_timeout_ms=timeout_ms, max_request_size=100_000_000,
    )
    await producer.start()
    try:
        sent = [await producer.send(topic, v, partition=partition) for v in values(prefix, count, size)]
        await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
    finally:
        await asyncio.wait_for(producer.stop(), WAIT_S)


async def consume(topic, count, partition=0, wait_ms=500, min_bytes=1):
    reader = AIOKafkaConsumer(
        **CONFIG, fetch_max_wait_ms=wait_ms, fetch_min_bytes=min_bytes, request_timeout_ms=60000,
    )
    await reader.start()
    at = TopicPartition(topic, partition)
    reader.assign([at])
    await reader.seek_to_beginning(at)
    found = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found.append((await reader.getone()).value.decode())
    await reader.stop()
    return found


async def with_admin(ask):
    admin = AIOKafkaAdminClient(**CONFIG)
    await admin.start()
    try:
        return await ask(admin)
    finally:
        await admin.close()


async def create(topic, partitions, config=None):
    new = NewTopic(topic, partitions, 3, topic_configs=dict([config.split(":")]) if config else {})
    created = await with_admin(lambda admin: admin.create_topics([new]))
    for _, code, *message in created.topic_errors:  # in the answer, not raised
        if code:
            raise RuntimeError(f"code {code}: {message}")


async def delete(topic, before, partition=0):
    at = {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
    await with_admin(lambda admin: admin.delete_records(at))


def here(verb):
    return lambda **arguments: asyncio.run(verb(**arguments))


serve({verb.__name__: here(verb) for verb in [produce, consume, create, delete]})
