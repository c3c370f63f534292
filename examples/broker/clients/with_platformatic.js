// @platformatic/kafka as a driver: see protocol.py.

const zlib = require("zlib");

const { WAIT_MS, serve, tell, valuesOf } = require("./protocol");

// Which it takes from a later Node.
Promise.withResolvers ??= () => {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};

const base = { clientId: "driver", bootstrapBrokers: [process.argv[2]], retries: 3 };
const library = import(require.resolve("@platformatic/kafka"));

async function produce({ topic, count, partition = "0", acks = "all", codec = "none", size = "60", prefix = "",
                         timeout_ms = "30000", idempotent }) {
  if (codec === "zstd" && !zlib.zstdCompress) return undefined; // of a later Node, too
  const { Producer, stringSerializers } = await library;
  const retries = idempotent ? 5 : 0;
  const options = { ...base, retries, timeout: +timeout_ms, serializers: stringSerializers };
  const producer = new Producer({ ...options, idempotent: idempotent === "1" });
  await producer.send({
    messages: valuesOf(prefix, +count, +size).map((value) => ({ topic, value, partition: +partition })),
    acks: acks === "all" ? -1 : +acks,
    compression: codec,
    autocreateTopics: true,
  });
  await producer.close();
  return [];
}

// Its consumers always use a group. It is left open: to close it would wait for the next fetch.
let readers = 0;
async function consume({ topic, count, partition = "0", wait_ms = "500", min_bytes = "1" }) {
  const { Consumer, stringDeserializers } = await library;
  const groupId = `${topic}-reader-${readers++}`;
  const reader = new Consumer({ ...base, groupId, deserializers: stringDeserializers, timeout: 60_000 });
  const found = [];
  const stream = await reader.consume({
    topics: [topic], mode: "earliest", autocommit: false, maxWaitTime: +wait_ms, minBytes: +min_bytes,
  });
  const late = setTimeout(() => stream.destroy(new Error(`${found.length} of ${count} consumed`)), WAIT_MS);
  for await (const message of stream) {
    if (message.partition === +partition) found.push(message.value);
    if (found.length >= +count) break;
  }
  clearTimeout(late);
  return found;
}

async function member({ topic, group, protocol = "classic" }) {
  const { Consumer } = await library;
  const times = protocol === "classic" ? { sessionTimeout: 6000, heartbeatInterval: 500 } : {};
  const reader = new Consumer({ ...base, groupId: group, groupProtocol: protocol, ...times });
  reader.on("consumer:group:join", ({ assignments }) => {
    tell("assigned", (assignments ?? []).flatMap((at) => at.partitions).sort().join(","));
  });
  const stream = await reader.consume({ topics: [topic], mode: "earliest" });
  for await (const _ of stream);
}

async function offset({ topic, time_ms, partition = "0" }) {
  const { Consumer } = await library;
  const reader = new Consumer({ ...base, groupId: "unused" });
  const found = (await reader.listOffsets({ topics: [topic], timestamp: BigInt(time_ms) })).get(topic)[+partition];
  return [found < 0 ? "none" : found];
}

async function create({ topic, config }) {
  const { Admin } = await library;
  const [name, value] = config.split(":");
  await new Admin(base).createTopics({ topics: [topic], partitions: 1, replicas: 1, configs: [{ name, value }] });
  return [];
}

async function deleteRecords({ topic, before, partition = "0" }) {
  const { Admin } = await library;
  const partitions = [{ partition: +partition, offset: BigInt(before) }];
  await new Admin(base).deleteRecords({ topics: [{ name: topic, partitions }] });
  return [];
}

async function transaction() {
  const { Producer } = await library;
  await new Producer({ ...base, transactionalId: "x", idempotent: true }).beginTransaction();
  return [];
}

serve({ produce, consume, member, offset, create, delete: deleteRecords, transaction });
