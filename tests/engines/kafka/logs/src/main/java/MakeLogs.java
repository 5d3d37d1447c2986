import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;

/**
 * Writes topics that differ in how a broker lays their records out, reads them back by a consumer, and copies the segment files.
 *
 * MakeLogs <bootstrap> <broker log.dirs> <out>
 */
public class MakeLogs {
    static final HexFormat HEX = HexFormat.of();
    static final long START = 1_700_000_000_000L;
    final String bootstrap; final Path broker, out; final Random random = new Random(17);
    final Admin admin;

    MakeLogs(String[] a) {
        bootstrap = a[0]; broker = Path.of(a[1]); out = Path.of(a[2]);
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] a) {
        try { new MakeLogs(a).run(); } catch (Throwable e) { e.printStackTrace(); System.exit(1); }
        System.exit(0);
    }

    void run() throws Exception {
        List<String> topics = new ArrayList<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = "codec-" + codec;
            topics.add(create(topic, 1, Map.of()));
            try (var p = producer(codec, null)) { for (int n = 0; n < 120; n++) { send(p, topic, n, 24); if (n % 50 == 49) p.flush(); } }
        }
        topics.add(create("appended", 1, Map.of("message.timestamp.type", "LogAppendTime")));
        try (var p = producer("lz4", null)) { for (int n = 0; n < 40; n++) { send(p, "appended", n, 8); if (n % 10 == 9) { p.flush(); Thread.sleep(3); } } }
        topics.add(create("large", 1, Map.of("max.message.bytes", "4000000")));
        try (var p = producer("snappy", null)) { send(p, "large", 0, 4); p.send(new ProducerRecord<>("large", 0, START, new byte[]{1}, new byte[150_000])); p.flush(); send(p, "large", 1, 4); }
        transactions(topics);
        segments(topics);
        compacted(topics);
        Files.createDirectories(out);
        for (String isolation : List.of("read_committed", "read_uncommitted"))
            try (Writer w = Files.newBufferedWriter(out.resolve(isolation + ".jsonl"))) { for (String t : topics) read(t, isolation, w); }
        for (String t : topics) copy(t);
    }

    /** Commits, aborts, two producers in turns, records outside of transactions, and a transaction that stays open. */
    void transactions(List<String> topics) throws Exception {
        topics.add(create("committed", 2, Map.of()));
        try (var a = producer("none", "a"); var b = producer("zstd", "b"); var free = producer("none", null)) {
            a.initTransactions(); b.initTransactions();
            int n = 0;
            for (int round = 0; round < 12; round++) {
                a.beginTransaction(); b.beginTransaction();
                for (int i = 0; i < 3; i++) { send(a, "committed", n++, 9); send(b, "committed", n++, 9); a.flush(); b.flush(); }
                send(free, "committed", n++, 9); free.flush();
                if (round % 3 == 1) a.abortTransaction(); else a.commitTransaction();
                send(b, "committed", n++, 9); b.flush();
                if (round % 4 == 2) b.abortTransaction(); else b.commitTransaction();
            }
        }
        topics.add(create("open", 1, Map.of()));
        var a = producer("none", "c"); var b = producer("none", "d");
        a.initTransactions(); b.initTransactions();
        a.beginTransaction(); send(a, "open", 0, 5); a.flush(); a.commitTransaction();
        b.beginTransaction(); send(b, "open", 1, 5); b.flush(); b.abortTransaction();
        a.beginTransaction(); send(a, "open", 2, 5); send(a, "open", 3, 5); a.flush();          // never ended
        b.beginTransaction(); send(b, "open", 4, 5); b.flush(); b.commitTransaction();          // behind it
    }

    /** Several segment files, a transaction across two of them. */
    void segments(List<String> topics) throws Exception {
        topics.add(create("segments", 1, Map.of("segment.bytes", "1048576", "segment.ms", "1000000000")));
        try (var a = producer("none", "e")) {
            a.initTransactions();
            a.beginTransaction();
            for (int n = 0; n < 24; n++) {
                a.send(new ProducerRecord<>("segments", 0, START + n, new byte[]{(byte) (n % 7)}, new byte[100_000])); a.flush();
                if (n == 5) { a.commitTransaction(); a.beginTransaction(); }
                if (n == 15) { a.abortTransaction(); a.beginTransaction(); }
            }
            a.commitTransaction();
        }
    }

    /** A topic that the cleaner has gone through: offsets missing, batches with fewer records than offsets, tombstones, an aborted transaction. */
    void compacted(List<String> topics) throws Exception {
        topics.add(create("compacted", 1, Map.of("cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "delete.retention.ms", "3600000")));
        try (var p = producer("lz4", null); var t = producer("none", "f")) {
            for (int n = 0; n < 80; n++) { send(p, "compacted", n, 11); if (n % 20 == 19) p.flush(); }
            t.initTransactions();
            t.beginTransaction(); for (int n = 80; n < 90; n++) send(t, "compacted", n, 11); t.flush(); t.abortTransaction();
            t.beginTransaction(); for (int n = 90; n < 100; n++) send(t, "compacted", n, 11); t.flush(); t.commitTransaction();
            Path dir = broker.resolve("compacted-0");
            for (int wait = 0; wait < 60; wait++) {
                Thread.sleep(1500);
                send(p, "compacted", 100 + wait, 11); p.flush();
                if (wait > 6 && count("compacted") < 60) break;
            }
        }
    }

    long count(String topic) throws Exception {
        StringWriter w = new StringWriter();
        read(topic, "read_uncommitted", w);
        return w.toString().lines().count();
    }

    KafkaProducer<byte[], byte[]> producer(String codec, String transactionalId) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap); p.put("compression.type", codec); p.put("linger.ms", 200); p.put("batch.size", 8192); p.put("max.request.size", 4000000);
        if (transactionalId != null) { p.put("transactional.id", transactionalId); p.put("transaction.timeout.ms", 600_000); } else p.put("enable.idempotence", false);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    void send(KafkaProducer<byte[], byte[]> p, String topic, int n, int keys) {
        RecordHeaders h = new RecordHeaders();
        for (int i = random.nextInt(4); i > 1; i--) h.add(List.of("h", "\u00e9t\u00e9", "").get(random.nextInt(3)), random.nextInt(4) == 0 ? null : ("x".repeat(random.nextInt(5))).getBytes(StandardCharsets.UTF_8));
        byte[] value = random.nextInt(6) == 0 ? null : random.nextInt(9) == 0 ? new byte[0] : ("value-" + n + "-" + "ab".repeat(random.nextInt(60))).getBytes(StandardCharsets.UTF_8);
        long time = START + n * 1000L - (random.nextInt(5) == 0 ? random.nextInt(20_000) : 0);
        p.send(new ProducerRecord<>(topic, null, time, ("key-" + random.nextInt(keys)).getBytes(StandardCharsets.UTF_8), value, h));
    }

    String create(String topic, int partitions, Map<String, String> configs) throws Exception {
        Map<String, String> all = new HashMap<>(configs); all.putIfAbsent("retention.ms", "-1"); all.putIfAbsent("message.timestamp.type", "CreateTime");
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(all))).all().get();
        return topic;
    }

    /** Each record of a topic as the consumer gives it, a line of JSON each, by partition and offset. */
    void read(String topic, String isolation, Writer w) throws Exception {
        Properties c = new Properties();
        c.put("bootstrap.servers", bootstrap); c.put("isolation.level", isolation); c.put("auto.offset.reset", "earliest");
        int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        for (int partition = 0; partition < partitions; partition++)
            try (var consumer = new KafkaConsumer<>(c, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                TopicPartition tp = new TopicPartition(topic, partition);
                consumer.assign(List.of(tp)); consumer.seekToBeginning(List.of(tp));
                long end = consumer.endOffsets(List.of(tp)).get(tp);                              // the last stable offset under read_committed
                while (consumer.position(tp) < end)
                    for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                        StringBuilder headers = new StringBuilder();
                        for (Header h : r.headers()) headers.append(headers.isEmpty() ? "" : ",").append("[\"").append(h.key()).append("\",").append(hex(h.value())).append("]");
                        byte[] v = r.value();
                        boolean zeros = v != null && v.length >= 100_000;
                        w.write("{\"topic\":\"" + topic + "\",\"partition\":" + partition + ",\"offset\":" + r.offset() + ",\"timestamp\":" + r.timestamp() + ",\"key\":" + hex(r.key())
                            + ",\"value\":" + (zeros ? "\"zeros:" + v.length + "\"" : hex(v)) + ",\"headers\":[" + headers + "]}\n");
                    }
            }
    }

    static String hex(byte[] b) { return b == null ? "null" : "\"" + HEX.formatHex(b) + "\""; }

    void copy(String topic) throws IOException {
        try (var dirs = Files.list(broker)) {
            for (Path dir : dirs.filter(d -> d.getFileName().toString().matches(topic + "-\\d+")).toList())
                try (var files = Files.list(dir)) {
                    for (Path f : files.filter(f -> f.toString().matches(".*\\.(log|txnindex)")).toList()) {
                        Path to = out.resolve("log").resolve(dir.getFileName()).resolve(f.getFileName());
                        Files.createDirectories(to.getParent()); Files.copy(f, to, StandardCopyOption.REPLACE_EXISTING);
                    }
                }
        }
    }
}
