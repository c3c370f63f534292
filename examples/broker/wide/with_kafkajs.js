// kafkajs against the broker: with_kafkajs.js IP:PORT CODEC... (started by wide.sh).
//
// As with_aiokafka.py: every codec with acks=all, an idempotent producer, a group of two. kafkajs has
// gzip of its own and snappy from kafkajs-snappy; for lz4 and zstd it needs native code.

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const { setTimeout: sleep } = require("timers/promises");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const topic = "kafkajs";
const partitions = 3; // as the broker was told
const waitMs = 20_000;
const types = { none: "None", gzip: "GZIP", snappy: "Snappy" };

const valuesOf = (what) => [...Array(100).keys()].map((at) => `${what} ${at} ${"abc".repeat(20)}`);

async function produce(kafka, what, compression, options) {
  const producer = kafka.producer({ allowAutoTopicCreation: true, ...options });
  await producer.connect();
  const messages = valuesOf(what).map((value, at) => ({ value, partition: at % partitions }));
  await producer.send({ topic, messages, acks: -1, compression });
  await producer.disconnect();
}

async function main(address, codecs) {
  const kafka = new Kafka({ brokers: [address], logLevel: logLevel.ERROR });
  for (const codec of codecs) await produce(kafka, codec, CompressionTypes[types[codec]], {});
  const idempotent = { idempotent: true, maxInFlightRequests: 1 };
  await produce(kafka, "idempotent", CompressionTypes.None, idempotent);

  const consumed = [[], []];
  const members = await Promise.all(
    consumed.map(async (into) => {
      const member = kafka.consumer({ groupId: topic });
      await member.connect();
      await member.subscribe({ topics: [topic], fromBeginning: true });
      await member.run({ eachMessage: async ({ message }) => into.push(message.value.toString()) });
      return member;
    }),
  );
  const expected = 100 * (codecs.length + 1);
  for (const end = Date.now() + waitMs; consumed.flat().length < expected; ) {
    if (Date.now() > end) throw new Error(`${consumed.flat().length} of ${expected} consumed`);
    await sleep(20);
  }
  for (const member of members) await member.disconnect();
  for (const what of [...codecs, "idempotent"]) {
    const values = consumed.flat().filter((value) => value.startsWith(what));
    if (values.sort().join() !== valuesOf(what).sort().join()) throw new Error(what);
    console.log(what, "ok");
  }
  if (consumed.some((values) => values.length === 0)) throw new Error("one member had everything");
  console.log("group ok");
}

main(process.argv[2], process.argv.slice(3)).catch((error) => {
  console.error(error);
  process.exit(1);
});
