// What the drivers in JavaScript share: the commands of protocol.py, read and answered.

const readline = require("readline");

const WAIT_MS = 20_000; // of a driver for its client; who runs it waits longer

// What is produced: each driver makes the same.
const valuesOf = (prefix, count, size) =>
  [...Array(count).keys()].map((at) => `${prefix}-${at}-`.padEnd(size, "x"));

const tell = (...words) => console.log(words.join(" "));

// With the errors that it is made of.
function wordsOf(error) {
  const below = (one) => [one, ...[one.cause, ...(one.errors ?? [])].filter(Boolean).flatMap(below)];
  const words = (one) => `${one.type ?? one.apiId ?? one.name}: ${one.message}`;
  return below(error).map(words).join("; ").replace(/\s+/g, " ");
}

// A verb answers with words, or with nothing where the client has no such thing.
async function serve(verbs) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [verb, ...words] = line.split(" ");
    try {
      const pairs = words.map((word) => word.split(/=(.*)/s).slice(0, 2));
      const answer = await verbs[verb](Object.fromEntries(pairs));
      tell(...(answer ? ["ok", ...answer] : ["cannot"]));
    } catch (error) {
      tell("error", wordsOf(error));
    }
  }
  process.exit(0);
}

module.exports = { WAIT_MS, serve, tell, valuesOf };
