"""aiokafka against the broker: with_aiokafka.py IP:PORT CODEC... (started by wide.sh).

Produces a hundred records with each codec and acks=all, and a hundred more as an idempotent producer;
two members of a group consume them all. Prints a line for each: what it is, and `ok`. Every wait has a
deadline; wide.sh bounds the whole.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

TOPIC = GROUP = "aiokafka"
PARTITIONS = 3  # as the broker was told
WAIT_S = 20


def values_of(what):
    return [f"{what} {at} {'abc' * 20}".encode() for at in range(100)]


async def produce(address, what, **options):
    producer = AIOKafkaProducer(bootstrap_servers=address, linger_ms=20, **options)
    await producer.start()
    sent = [
        await producer.send(TOPIC, value, partition=at % PARTITIONS)
        for at, value in enumerate(values_of(what))
    ]
    await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
    await producer.stop()


async def consume(consumer, into):
    async for record in consumer:
        into.append(record.value)


async def main(address, codecs):
    produced = {}
    for codec in codecs:
        await produce(address, codec, acks="all", compression_type=None if codec == "none" else codec)
        produced[codec] = values_of(codec)
    await produce(address, "idempotent", enable_idempotence=True)
    produced["idempotent"] = values_of("idempotent")

    options = {"bootstrap_servers": address, "group_id": GROUP, "auto_offset_reset": "earliest"}
    members = [AIOKafkaConsumer(TOPIC, **options) for _ in range(2)]
    await asyncio.gather(*[member.start() for member in members])
    consumed = [[], []]
    tasks = [asyncio.create_task(consume(*pair)) for pair in zip(members, consumed)]
    expected = sorted(value for values in produced.values() for value in values)
    async with asyncio.timeout(WAIT_S):
        while sum(map(len, consumed)) < len(expected):
            await asyncio.sleep(0.02)
    for task, member in zip(tasks, members):
        task.cancel()
        await member.stop()
    together = sorted(consumed[0] + consumed[1])
    for what, values in produced.items():
        # Of the group, so that a value of another is a failure of this.
        assert [v for v in together if v.startswith(what.encode())] == sorted(values), what
        print(what, "ok", flush=True)
    assert all(consumed), "one member of the group had everything"
    print("group ok", flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2:]))
