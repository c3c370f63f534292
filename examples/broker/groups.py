"""Consumer groups and idempotent producers of real clients: groups.py IP:PORT (see groups.sh).

For each pair of clients: two members of a group share the partitions of a topic; one is killed, and
when its session is over the other has all of them; it goes on where the group has committed, and so
does a member that comes after it has left. For each producer: connections are cut inside requests and
before their answers, and yet every record is there once. Every wait has a deadline, and a failure ends
the program.
"""

import itertools
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import kafka

PARTITIONS = 4  # as the broker was told
RECORDS = 40
WAIT_S = 30
SESSION_S = 6
HEARTBEAT_S = 0.5
CUTS = 10


# What a member runs, in a process of its own: it tells its partitions, and each record once the
# offset after it is committed.

def tell(**what):
    print(json.dumps(what), flush=True)


def run_confluent(address, group, topic, ended):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "session.timeout.ms": SESSION_S * 1000,
            "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    on_change = lambda _, partitions: tell(partitions=sorted(part.partition for part in partitions))
    on_loss = lambda *_: tell(partitions=[])
    consumer.subscribe([topic], on_assign=on_change, on_revoke=on_loss, on_lost=on_loss)
    while not ended.is_set():
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            consumer.commit(message, asynchronous=False)
            tell(value=message.value().decode())
    consumer.close()


def run_kafka_python(address, group, topic, ended):
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=group,
        session_timeout_ms=SESSION_S * 1000,
        heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    told = None
    while not ended.is_set():
        records = consumer.poll(timeout_ms=100, max_records=10)
        partitions = sorted(part.partition for part in consumer.assignment())
        if partitions != told:
            told = partitions
            tell(partitions=partitions)
        if records:
            consumer.commit()
        for record in itertools.chain.from_iterable(records.values()):
            tell(value=record.value.decode())
    consumer.close()


RUN = {"confluent-kafka": run_confluent, "kafka-python": run_kafka_python}


class Member:
    """A process with a member."""

    def __init__(self, client, address, group, topic):
        arguments = [sys.executable, __file__, client, address, group, topic]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.partitions, self.values = [], []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            told = json.loads(line)
            self.partitions = told.get("partitions", self.partitions)
            if "value" in told:
                self.values.append(told["value"])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.terminate()
        assert self.process.wait(WAIT_S) == 0, "a member ended badly"


def wait_for(what, condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
        time.sleep(0.02)


def produce(address, topic, values):
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all"})
    for at, value in enumerate(values):
        producer.produce(topic, value, partition=at % PARTITIONS)
    assert producer.flush(WAIT_S) == 0, "not delivered in time"


def check_group(address, killed, survivor):
    name = f"{killed} and {survivor}"
    topic = group = f"{killed}-{survivor}"
    values = [f"{at}" for at in range(3 * RECORDS)]
    first, second, third = (values[at : at + RECORDS] for at in range(0, len(values), RECORDS))
    produce(address, topic, first)
    members = [Member(client, address, group, topic) for client in [killed, survivor]]
    try:
        one, other = members
        both = lambda: sorted(one.partitions + other.partitions) == list(range(PARTITIONS))
        wait_for(f"{name} share", lambda: one.partitions and other.partitions and both())
        shares = one.partitions, other.partitions
        wait_for(f"{name} consume", lambda: len(one.values + other.values) >= RECORDS)
        assert sorted(one.values + other.values) == sorted(first), "consumed twice, or not at all"

        start = time.monotonic()
        one.kill()
        wait_for(f"{survivor} has all", lambda: other.partitions == list(range(PARTITIONS)))
        moved_s = time.monotonic() - start
        assert moved_s > SESSION_S - 2 * HEARTBEAT_S, f"moved after {moved_s} s"
        before = len(other.values)
        produce(address, topic, second)
        wait_for(f"{survivor} goes on", lambda: len(other.values) >= before + RECORDS)
        assert sorted(other.values[before:]) == sorted(second), "not where the group was"
        other.close()

        members.append(Member(survivor, address, group, topic))
        wait_for("a later member", lambda: members[2].partitions == list(range(PARTITIONS)))
        produce(address, topic, third)
        wait_for("a later member", lambda: len(members[2].values) >= RECORDS)
        assert sorted(members[2].values) == sorted(third), "not where the group was"
        members[2].close()
    finally:
        for member in members:
            member.kill()
    print(f"{name}: shared {shares[0]} and {shares[1]}; all moved {moved_s:.1f} s after a kill"
          f" (session: {SESSION_S} s); {len(values)} records, each consumed once", flush=True)


class Proxy:
    """Between a client and the broker: it cuts connections in the middle of a produce request, or
    before its answer, by turns."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.broker = host, int(port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.produces, self.cuts = 0, 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            broker = socket.create_connection(self.broker)
            asked = queue.SimpleQueue()  # what the answers are to, in their order
            for pump in [(self.requests, client, broker), (self.responses, broker, client)]:
                threading.Thread(target=self.pump, args=(*pump, asked), daemon=True).start()

    @staticmethod
    def pump(forward, source, target, asked):
        try:
            frames = source.makefile("rb")
            while len(length := frames.read(4)) == 4:
                if not forward(target, frames.read(struct.unpack(">i", length)[0]), asked):
                    break
        except OSError:
            pass  # cut at the other end
        for end in [source, target]:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def requests(self, broker, frame, asked):
        key, cuts_answer = struct.unpack(">h", frame[:2])[0], False
        if key == 0:
            self.produces += 1
            if self.produces % 3 == 0 and self.cuts < CUTS:
                self.cuts += 1
                if self.cuts % 2 == 0:
                    broker.sendall(struct.pack(">i", len(frame)) + frame[: len(frame) // 2])
                    return False
                cuts_answer = True
        asked.put((key, cuts_answer))
        broker.sendall(struct.pack(">i", len(frame)) + frame)
        return True

    def responses(self, client, frame, asked):
        key, cut = asked.get()
        if cut:
            return False
        if key == 3:  # the metadata tell where the broker is: here
            address = self.broker[0].encode() + struct.pack(">i", self.broker[1])
            frame = frame.replace(address, self.broker[0].encode() + struct.pack(">i", self.port))
        client.sendall(struct.pack(">i", len(frame)) + frame)
        return True


def send_confluent(address, topic, values):
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "batch.num.messages": 5,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    errors = []
    for at, value in enumerate(values):
        on_delivery = lambda error, _: errors.append(error)
        producer.produce(topic, value, partition=at % PARTITIONS, on_delivery=on_delivery)
    assert producer.flush(WAIT_S) == 0, "not delivered in time"
    assert errors == [None] * len(values), errors


def send_kafka_python(address, topic, values):
    producer = kafka.KafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        batch_size=100,
        linger_ms=1,
        retry_backoff_ms=20,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=100,
    )
    sent = [
        producer.send(topic, value.encode(), partition=at % PARTITIONS)
        for at, value in enumerate(values)
    ]
    for future in sent:
        future.get(timeout=WAIT_S)
    producer.close(timeout=WAIT_S)


SEND = {"confluent-kafka": send_confluent, "kafka-python": send_kafka_python}


def check_idempotence(address, client):
    proxy, topic = Proxy(address), f"{client}-idempotent"
    values = [f"{at}" for at in range(10 * RECORDS)]
    SEND[client](f"127.0.0.1:{proxy.port}", topic, values)
    assert proxy.cuts >= 4, f"only {proxy.cuts} of {proxy.produces} produces were cut"

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": topic, "enable.partition.eof": True}
    )
    beginning = confluent_kafka.OFFSET_BEGINNING
    partition = lambda at: confluent_kafka.TopicPartition(topic, at, beginning)
    consumer.assign([partition(at) for at in range(PARTITIONS)])
    consumed, ends, deadline = [[] for _ in range(PARTITIONS)], 0, time.monotonic() + WAIT_S
    while ends < PARTITIONS:
        assert time.monotonic() < deadline, "not consumed in time"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            consumed[message.partition()].append(message.value().decode())
        else:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    assert consumed == [values[at::PARTITIONS] for at in range(PARTITIONS)], "lost, twice, or mixed"
    print(f"{client}: {len(values)} records in {proxy.produces} requests, {proxy.cuts} cut: each"
          " consumed once, in order", flush=True)


def main(address):
    confluent, python = RUN
    with ThreadPoolExecutor() as threads:
        pairs = [(confluent, confluent), (python, python), (python, confluent)]
        checks = [threads.submit(check_group, address, *pair) for pair in pairs]
        checks += [threads.submit(check_idempotence, address, client) for client in SEND]
        for check in checks:
            check.result()


if len(sys.argv) == 2:
    main(sys.argv[1])
else:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    RUN[sys.argv[1]](*sys.argv[2:], stop)
