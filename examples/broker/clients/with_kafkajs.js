// kafkajs as a driver: see protocol.py. It has gzip of its own and snappy from kafkajs-snappy; for lz4 and
// zstd it needs native code.

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const { setTimeout: sleep } = require("timers/promises");

const { WAIT_MS, serve, tell, valuesOf } = require("./protocol");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const address = process.argv[2];
const types = { none: "None", gzip: "GZIP", snappy: "Snappy" };
const client = (retries) => new Kafka({ brokers: [address], logLevel: logLevel.NOTHING, retry: { retries } });
const kafka = client(5);

async function produce({ topic, count, partition = "0", acks = "all", codec = "none", size = "60", prefix = "",
                         timeout_ms = "30000", idempotent }) {
  if (!types[codec]) return undefined;
  const options = idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {};
  const producer = client(idempotent ? 5 : 0).producer({ allowAutoTopicCreation: true, ...options });
  await producer.connect();
  await producer.send({
    topic,
    messages: valuesOf(prefix, +count, +size).map((value) => ({ value, partition: +partition })),
    acks: acks === "all" ? -1 : +acks,
    timeout: +timeout_ms,
    compression: CompressionTypes[types[codec]],
  });
  await producer.disconnect();
  return [];
}

// Its consumers always use a group, and subscribe to all partitions. It is left open: to close it would
// wait for the next fetch.
let readers = 0;
async function consume({ topic, count, partition = "0", wait_ms = "500", min_bytes = "1" }) {
  const reader = kafka.consumer({
    groupId: `${topic}-reader-${readers++}`, minBytes: +min_bytes, maxWaitTimeInMs: +wait_ms,
  });
  await reader.connect();
  await reader.subscribe({ topics: [topic], fromBeginning: true });
  const found = [];
  const eachMessage = async (at) => at.partition === +partition && found.push(at.message.value.toString());
  await reader.run({ autoCommit: false, eachMessage });
  for (const end = Date.now() + WAIT_MS; found.length < +count; await sleep(20)) {
    if (Date.now() > end) throw new Error(`${found.length} of ${count} consumed`);
  }
  return found;
}

async function member({ topic, group, protocol = "classic" }) {
  if (protocol !== "classic") return undefined;
  // It sends heartbeats between fetches.
  const times = { sessionTimeout: 6000, heartbeatInterval: 500, maxWaitTimeInMs: 500 };
  const reader = kafka.consumer({ groupId: group, ...times });
  reader.on(reader.events.GROUP_JOIN, ({ payload }) => {
    tell("assigned", (payload.memberAssignment[topic] ?? []).sort().join(","));
  });
  await reader.connect();
  await reader.subscribe({ topics: [topic] });
  await reader.run({ eachMessage: async () => {} });
  return new Promise(() => {});
}

async function withAdmin(ask) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await ask(admin);
  } finally {
    await admin.disconnect();
  }
}

// It tells the end of the partition where there is no such record.
async function offset({ topic, time_ms, partition = "0" }) {
  const all = await withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp(topic, +time_ms));
  return [all.find((at) => at.partition === +partition).offset];
}

async function create({ topic, config }) {
  const [name, value] = config.split(":");
  const made = { topic, numPartitions: 1, replicationFactor: 1, configEntries: [{ name, value }] };
  await withAdmin((admin) => admin.createTopics({ topics: [made] }));
  return [];
}

async function deleteRecords({ topic, before, partition = "0" }) {
  const partitions = [{ partition: +partition, offset: before }];
  await withAdmin(async (admin) => {
    await admin.fetchTopicOffsets(topic); // or it says that it does not know the topic
    await admin.deleteTopicRecords({ topic, partitions });
  });
  return [];
}

async function transaction() {
  const producer = kafka.producer({ transactionalId: "x", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await producer.transaction();
  return [];
}

serve({ produce, consume, member, offset, create, delete: deleteRecords, transaction });
