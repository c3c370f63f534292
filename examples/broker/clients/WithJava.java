// Java's kafka-clients as a driver: see protocol.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class WithJava {
    static final int WAIT_S = 20; // a driver waits this long for its client; run.py waits longer
    static String address;

    /** A line of input. */
    record Command(Map<String, String> arguments) {
        String text(String name, String otherwise) { return arguments.getOrDefault(name, otherwise); }
        int number(String name, int otherwise) { return Integer.parseInt(text(name, "" + otherwise)); }
        String topic() { return text("topic", ""); }
        TopicPartition at() { return new TopicPartition(topic(), number("partition", 0)); }

        /** What is produced: each driver makes the same. */
        List<String> values() {
            List<String> values = new ArrayList<>();
            for (int at = 0; at < number("count", 1); at++) {
                String value = text("prefix", "") + "-" + at + "-";
                values.add(value + "x".repeat(Math.max(0, number("size", 60) - value.length())));
            }
            return values;
        }
    }

    static Map<String, Object> config(Object... pairs) {
        Map<String, Object> config = new TreeMap<>(Map.of("bootstrap.servers", address));
        for (int at = 0; at < pairs.length; at += 2) config.put((String) pairs[at], pairs[at + 1]);
        return config;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> config) {
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Map<String, Object> config) {
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static List<String> produce(Command command) throws Exception {
        int timeout = command.number("timeout_ms", 30000);
        Map<String, Object> config = config(
            "acks", command.text("acks", "all"), "compression.type", command.text("codec", "none"),
            "request.timeout.ms", timeout, "linger.ms", 20, "delivery.timeout.ms", timeout + 5000,
            "max.request.size", 100_000_000, "buffer.memory", 200_000_000L);
        boolean idempotent = command.number("idempotent", 0) == 1;
        config.put("enable.idempotence", idempotent);
        if (!idempotent) config.put("retries", 0);
        try (var producer = producer(config)) {
            List<Future<?>> sent = new ArrayList<>();
            for (String value : command.values()) {
                var at = command.at();
                sent.add(producer.send(new ProducerRecord<>(at.topic(), at.partition(), null, value)));
            }
            for (var future : sent) future.get(WAIT_S, TimeUnit.SECONDS);
        }
        return List.of();
    }

    /** Left open: to close it would wait for the next fetch. */
    static List<String> consume(Command command) {
        Map<String, Object> config = config(
            "enable.auto.commit", false, "fetch.max.wait.ms", command.number("wait_ms", 500),
            "fetch.min.bytes", command.number("min_bytes", 1), "request.timeout.ms", 60000);
        List<String> found = new ArrayList<>();
        var reader = consumer(config);
        reader.assign(List.of(command.at()));
        reader.seekToBeginning(List.of(command.at()));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (found.size() < command.number("count", 1)) {
            for (var record : reader.poll(Duration.ofMillis(100))) found.add(record.value());
            if (System.nanoTime() > end) throw new AssertionError(found.size() + " consumed");
        }
        return found;
    }

    static List<String> create(Command command) throws Exception {
        String[] pair = command.text("config", "").split(":");
        var made = new NewTopic(command.topic(), command.number("partitions", 1), (short) 3);
        if (pair.length == 2) made.configs(Map.of(pair[0], pair[1]));
        try (var admin = Admin.create(config())) {
            admin.createTopics(List.of(made)).all().get(WAIT_S, TimeUnit.SECONDS);
        }
        return List.of();
    }

    static List<String> delete(Command command) throws Exception {
        var before = RecordsToDelete.beforeOffset(command.number("before", 0));
        try (var admin = Admin.create(config())) {
            admin.deleteRecords(Map.of(command.at(), before)).all().get(WAIT_S, TimeUnit.SECONDS);
        }
        return List.of();
    }

    static List<String> answer(String verb, Command command) throws Exception {
        return switch (verb) {
            case "produce" -> produce(command);
            case "consume" -> consume(command);
            case "create" -> create(command);
            default -> delete(command);
        };
    }

    public static void main(String[] args) {
        address = args[0];
        var input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            Map<String, String> arguments = Arrays.stream(words).skip(1).map(word -> word.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
            try {
                System.out.println(("ok " + String.join(" ", answer(words[0], new Command(arguments)))).trim());
            } catch (Exception | AssertionError error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                System.out.println(("error " + cause.getClass().getSimpleName() + ": " + cause.getMessage())
                    .replaceAll("\\s+", " "));
            }
        }
        System.exit(0);
    }
}
