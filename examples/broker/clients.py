"""confluent-kafka and kafka-python against the broker: clients.py IP:PORT (started by check.sh).

Each produces with acks 0, 1 and all and with every codec, and consumes by assignment what it
produced; a long poll wakes on data, and ends at its time without. Every wait has a deadline, and a
failure ends the program.
"""

import sys
import time

import confluent_kafka
import kafka
import kafka.admin

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [b"message %d of a hundred, compressible: %s" % (i, b"abc" * 20) for i in range(100)]
WAIT_S = 20
SHORT_POLL_S = 0.4
# A poll that is not woken ends long after the deadline of what waits for it.
LONG_POLL_S = 40


class Confluent:
    name = "confluent-kafka"

    def __init__(self, address):
        self.address = {"bootstrap.servers": address}

    def produce(self, topic, values, acks, codec="none"):
        delivered = []
        producer = confluent_kafka.Producer(
            {**self.address, "acks": acks, "compression.type": codec, "linger.ms": 20}
        )
        for value in values:
            on_delivery = lambda error, _: delivered.append(error)
            producer.produce(topic, value, partition=0, on_delivery=on_delivery)
        assert producer.flush(WAIT_S) == 0, "not delivered in time"
        assert delivered == [None] * len(values), delivered

    def consumer(self, topic, partition, poll_s):
        consumer = confluent_kafka.Consumer(
            {
                **self.address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": int(poll_s * 1000),
                "socket.timeout.ms": 60000,
            }
        )
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, beginning)])
        return consumer

    def poll(self, consumer, timeout_s):
        """The values, and whether the end was told: each is an answer to a fetch."""
        message = consumer.poll(timeout_s)
        if message is None:
            return [], False
        error = message.error()
        if error is None:
            return [message.value()], False
        assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
        return [], True


class KafkaPython:
    name = "kafka-python"

    def __init__(self, address):
        self.address = address

    def produce(self, topic, values, acks, codec="none"):
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.address,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=False,
            linger_ms=20,
        )
        sent = [producer.send(topic, value, partition=0) for value in values]
        for future in sent:
            future.get(timeout=WAIT_S)
        producer.close(timeout=WAIT_S)

    def consumer(self, topic, partition, poll_s):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.address,
            enable_auto_commit=False,
            fetch_max_wait_ms=int(poll_s * 1000),
            request_timeout_ms=60000,
        )
        self.partition = kafka.TopicPartition(topic, partition)
        consumer.assign([self.partition])
        consumer.seek_to_beginning(self.partition)
        return consumer

    def poll(self, consumer, timeout_s):
        records = consumer.poll(timeout_ms=int(timeout_s * 1000))
        values = [record.value for batch in records.values() for record in batch]
        return values, not values and consumer.highwater(self.partition) is not None


def consume(client, topic, count):
    consumer = client.consumer(topic, 0, SHORT_POLL_S)
    values, deadline = [], time.monotonic() + WAIT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} consumed from {topic}"
        values += client.poll(consumer, 1)[0]
    consumer.close()
    return values


def check(client):
    for acks in ["0", "1", "all"]:
        for codec in CODECS:
            topic = f"{client.name}-{acks}-{codec}"
            client.produce(topic, VALUES, acks, codec)
            assert consume(client, topic, len(VALUES)) == VALUES, topic
    print(f"{client.name}: acks 0, 1 and all with {', '.join(CODECS)}: consumed as produced")

    topic = f"{client.name}-poll"
    client.produce(topic, [b"first"], "all")
    consumer = client.consumer(topic, 1, SHORT_POLL_S)  # an empty partition
    start = time.monotonic()
    while not client.poll(consumer, 0.05)[1]:
        assert time.monotonic() - start < WAIT_S, "a long poll does not end"
    ended_s = time.monotonic() - start
    assert ended_s >= SHORT_POLL_S, f"an empty poll ended after {ended_s} s"
    consumer.close()

    consumer = client.consumer(topic, 0, LONG_POLL_S)
    values, deadline = [], time.monotonic() + WAIT_S
    while values != [b"first"]:
        assert time.monotonic() < deadline, "no first message"
        values += client.poll(consumer, 1)[0]
    client.poll(consumer, 0.2)  # asks for what comes next, and waits there
    client.produce(topic, [b"second"], "all")
    start = time.monotonic()
    values = []
    while values != [b"second"]:
        assert time.monotonic() - start < WAIT_S, "a long poll was not woken"
        values += client.poll(consumer, 1)[0]
    woken_s = time.monotonic() - start
    consumer.close()
    print(f"{client.name}: a long poll of {SHORT_POLL_S} s ended after {ended_s:.1f} s without data;"
          f" one of {LONG_POLL_S} s was woken, {woken_s * 1000:.0f} ms after the produce")


def check_topics(address):
    """A topic of one replica is acknowledged by the leader alone; what is not known is refused."""
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=address)
    new = lambda name, configs: kafka.admin.NewTopic(name, 1, 1, topic_configs=configs)
    admin.create_topics([new("small", {"max.message.bytes": "1000", "min.insync.replicas": "2"})])
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all"})
    errors = []
    for size in [100, 2000]:
        producer.produce("small", b"x" * size, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0, "not answered in time"
    assert errors[0] is None, errors
    assert errors[1].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE, errors
    try:
        admin.create_topics([new("refused", {"retention.ms": "1000"})])
        raise AssertionError("an unknown configuration was taken")
    except kafka.errors.InvalidConfigurationError as error:  # says what is known
        assert "min.insync.replicas" in str(error), error
    print("a topic of one replica, max.message.bytes, and a configuration that is refused: as told")
    admin.close()


def fails(what, ask, text):
    """An error that says `text`, and soon: before a time-out of the client would."""
    try:
        ask()
    except Exception as error:
        assert text in str(error), error
        print(f"{what}: {text}")
    else:
        raise AssertionError(f"{what}: no error")


def check_times(address):
    """Records are found by their time; one later than all is found nowhere."""
    producer = kafka.KafkaProducer(bootstrap_servers=address, enable_idempotence=False)
    sent = [producer.send("times", b"x", partition=0, timestamp_ms=1000 + 10 * at) for at in range(5)]
    for future in sent:
        future.get(timeout=WAIT_S)
    producer.close(timeout=WAIT_S)
    python = kafka.KafkaConsumer(bootstrap_servers=address)
    confluent = Confluent(address).consumer("times", 0, SHORT_POLL_S)
    for time_ms, offset in [(0, 0), (1015, 2), (1041, None)]:
        at = kafka.TopicPartition("times", 0)
        found = python.offsets_for_times({at: time_ms})[at]
        assert (found and found.offset) == offset, (time_ms, found)
        at = confluent_kafka.TopicPartition("times", 0, time_ms)
        (found,) = confluent.offsets_for_times([at], timeout=WAIT_S)
        assert found.error is None, found
        assert found.offset == (confluent_kafka.OFFSET_END if offset is None else offset), found
    python.close()
    confluent.close()
    print("both clients: offsets by their times: as told")


def check_unsupported(address):
    transactional = confluent_kafka.Producer(
        {"bootstrap.servers": address, "transactional.id": "x", "log_level": 0}
    )
    begin = lambda: transactional.init_transactions(WAIT_S)
    fails("confluent-kafka, a transaction", begin, "transactions are not supported")
    transactional = kafka.KafkaProducer(bootstrap_servers=address, transactional_id="x")
    begin = transactional.init_transactions
    fails("kafka-python, a transaction", begin, "TransactionalIdAuthorizationFailed")

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "new", "group.protocol": "consumer", "log_level": 0}
    )
    consumer.subscribe(["small"])
    message = consumer.poll(WAIT_S)
    assert message is not None and "API version not supported" in str(message.error()), message
    consumer.close()
    print("confluent-kafka, the new group protocol: API version not supported")


check_topics(sys.argv[1])
check_times(sys.argv[1])
check_unsupported(sys.argv[1])
for client in [Confluent(sys.argv[1]), KafkaPython(sys.argv[1])]:
    check(client)
