// Java's kafka-clients against the broker: java WithJava.java IP:PORT CODEC... (started by wide.sh).
//
// As with_aiokafka.py: every codec with acks=all, a group of two. The producer is idempotent by default:
// so it is with every codec, and `idempotent` asks for it by name.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class WithJava {
    static final String TOPIC = "java";
    static final int PARTITIONS = 3; // as the broker was told
    static final int WAIT_S = 20;

    static List<String> valuesOf(String what) {
        List<String> values = new ArrayList<>();
        for (int at = 0; at < 100; at++) values.add(what + " " + at + " " + "abc".repeat(20));
        return values;
    }

    static void produce(String address, String what, Map<String, Object> options) throws Exception {
        Map<String, Object> config = new TreeMap<>(options);
        config.put("bootstrap.servers", address);
        config.put("linger.ms", 20);
        var serializer = new StringSerializer();
        try (var producer = new KafkaProducer<>(config, serializer, serializer)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : valuesOf(what)) {
                int partition = sent.size() % PARTITIONS;
                sent.add(producer.send(new ProducerRecord<>(TOPIC, partition, null, value)));
            }
            for (var future : sent) future.get(WAIT_S, TimeUnit.SECONDS);
        }
    }

    /** A member of the group, on a thread of its own until it is interrupted. */
    static Thread member(String address, List<String> into) {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", address, "group.id", TOPIC, "auto.offset.reset", "earliest");
        return new Thread(() -> {
            var deserializer = new StringDeserializer();
            try (var consumer = new KafkaConsumer<>(config, deserializer, deserializer)) {
                consumer.subscribe(List.of(TOPIC));
                while (!Thread.currentThread().isInterrupted()) {
                    for (var record : consumer.poll(Duration.ofMillis(100))) into.add(record.value());
                }
            } catch (org.apache.kafka.common.errors.InterruptException interrupted) {
                // While it polled.
            }
        });
    }

    public static void main(String[] args) throws Exception {
        List<String> whats = new ArrayList<>(Arrays.asList(args).subList(1, args.length));
        for (String codec : whats) {
            produce(args[0], codec, Map.of("acks", "all", "compression.type", codec));
        }
        produce(args[0], "idempotent", Map.of("enable.idempotence", true));
        whats.add("idempotent");

        List<List<String>> consumed = new ArrayList<>();
        List<Thread> members = new ArrayList<>();
        for (int at = 0; at < 2; at++) {
            consumed.add(Collections.synchronizedList(new ArrayList<>()));
            members.add(member(args[0], consumed.get(at)));
            members.get(at).start();
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (consumed.get(0).size() + consumed.get(1).size() < 100 * whats.size()) {
            if (System.nanoTime() > end) throw new AssertionError("not consumed in time");
            Thread.sleep(20);
        }
        for (Thread member : members) member.interrupt();
        for (Thread member : members) member.join();
        List<String> all = new ArrayList<>(consumed.get(0));
        all.addAll(consumed.get(1));
        Collections.sort(all);
        for (String what : whats) {
            List<String> expected = valuesOf(what);
            Collections.sort(expected);
            if (!all.stream().filter(value -> value.startsWith(what + " ")).toList().equals(expected)) {
                throw new AssertionError(what);
            }
            System.out.println(what + " ok");
        }
        for (List<String> values : consumed) {
            if (values.isEmpty()) throw new AssertionError("one member of the group had everything");
        }
        System.out.println("group ok");
        System.exit(0);
    }
}
