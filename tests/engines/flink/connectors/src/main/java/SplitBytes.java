import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.connector.base.source.hybrid.HybridSourceSplit;
import org.apache.flink.connector.base.source.hybrid.HybridSourceSplitSerializer;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.FileSourceSplitSerializer;
import org.apache.flink.connector.file.src.PendingSplitsCheckpoint;
import org.apache.flink.connector.file.src.PendingSplitsCheckpointSerializer;
import org.apache.flink.connector.file.src.util.CheckpointedPosition;
import org.apache.flink.connector.jdbc.core.datastream.source.split.CheckpointedOffset;
import org.apache.flink.connector.jdbc.core.datastream.source.split.JdbcSourceSplit;
import org.apache.flink.connector.jdbc.core.datastream.source.split.JdbcSourceSplitSerializer;
import org.apache.flink.connector.kafka.sink.KafkaSinkValues;
import org.apache.flink.connector.kafka.source.enumerator.AssignmentStatus;
import org.apache.flink.connector.kafka.source.enumerator.KafkaSourceEnumState;
import org.apache.flink.connector.kafka.source.enumerator.KafkaSourceEnumStateSerializer;
import org.apache.flink.connector.kafka.source.enumerator.TopicPartitionAndAssignmentStatus;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplit;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplitSerializer;
import org.apache.flink.connector.pulsar.source.enumerator.cursor.StopCursor;
import org.apache.flink.connector.pulsar.source.enumerator.topic.TopicPartition;
import org.apache.flink.connector.pulsar.source.enumerator.topic.TopicRange;
import org.apache.flink.connector.pulsar.source.split.PulsarPartitionSplit;
import org.apache.flink.connector.pulsar.source.split.PulsarPartitionSplitSerializer;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.metrics.groups.InternalSinkCommitterMetricGroup;
import org.apache.flink.runtime.metrics.groups.UnregisteredMetricGroups;
import org.apache.flink.streaming.api.connector.sink2.CommittableSummary;
import org.apache.flink.streaming.api.connector.sink2.CommittableWithLineage;
import org.apache.flink.streaming.connectors.kafka.internals.KafkaTopicPartition;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollector;
import org.apache.flink.streaming.runtime.operators.sink.committables.CommittableCollectorSerializer;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.api.transaction.TxnID;

/**
 * Writes values with the serializers of connectors: a line for each with the form, the bytes as an element of a state
 * has them, and the rows that they stand for. {@code SplitBytes FILE NUMBER SEED}
 */
public final class SplitBytes {
    private static final String[] TOPICS = {"orders", "a", "ab", "payments.eu_2-x", "T".repeat(249)};
    private static final long[] STARTS = {0, 1, 33, 167, Long.MAX_VALUE, -1, -2, -3};
    private static final long[] STOPS = {Long.MIN_VALUE, -1, -3, 0, 500, Long.MAX_VALUE};
    private final Random random;
    private final ElementLines lines;

    private SplitBytes(Random random, ElementLines lines) {
        this.random = random;
        this.lines = lines;
    }

    public static void main(String[] args) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        SplitBytes made = new SplitBytes(
                new Random(Long.parseLong(args[2])),
                new ElementLines(new PrintStream(bytes, true, StandardCharsets.UTF_8)));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            made.kafka();
            if (args.length == 3) { // with another argument only what the connector of Kafka has
                made.others();
            }
        }
        Files.write(Path.of(args[0]), bytes.toByteArray());
    }

    private void kafka() throws Exception {
        String topic = topic();
        int partition = whole();
        long start = one(STARTS), stop = one(STOPS);
        org.apache.kafka.common.TopicPartition place = new org.apache.kafka.common.TopicPartition(topic, partition);
        KafkaPartitionSplit split = new KafkaPartitionSplit(place, start, stop);
        Map<String, Object> row = row("topic", topic, "partition", partition, "starting", start, "stopping", stop);
        byte[] bytes = write("kafka_split", new KafkaPartitionSplitSerializer(), split, List.of(row));
        int index = random.nextInt(4);
        HybridSourceSplit hybrid = new HybridSourceSplit(
                index, Arrays.copyOfRange(bytes, 8, bytes.length), 0, split.splitId());
        Map<String, Object> wrapped = row("source_index", index, "hybrid_split_id", split.splitId());
        wrapped.putAll(row);
        write("hybrid_kafka_split", new HybridSourceSplitSerializer(), hybrid, List.of(wrapped));

        List<Map<String, Object>> rows = new ArrayList<>();
        Set<TopicPartitionAndAssignmentStatus> partitions = new HashSet<>();
        boolean discovered = random.nextBoolean();
        for (int each = random.nextInt(5); each >= 0; each--) {
            AssignmentStatus status = AssignmentStatus.values()[random.nextInt(2)];
            String of = topic();
            partitions.add(new TopicPartitionAndAssignmentStatus(
                    new org.apache.kafka.common.TopicPartition(of, each), status));
            rows.add(row("topic", of, "partition", each, "assignment", status.name().toLowerCase(),
                    "initial_discovery_finished", discovered));
        }
        write("kafka_enumerator", new KafkaSourceEnumStateSerializer(),
                new KafkaSourceEnumState(partitions, discovered), rows);

        List<Object[]> used = new ArrayList<>();
        List<Map<String, Object>> shown = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            Object[] transaction = {text(), random.nextLong()};
            used.add(transaction);
            shown.add(row("transactional_id", transaction[0], "checkpoint_id", transaction[1]));
        }
        String prefix = text();
        int subtask = whole(), subtasks = whole(), ownership = random.nextInt(2);
        Object writer = KafkaSinkValues.writer(prefix, subtask, subtasks, ownership, used);
        write("kafka_writer", KafkaSinkValues.writers(), writer, List.of(row(
                "transactional_id_prefix", prefix, "owned_subtask", subtask, "owned_subtasks", subtasks,
                "ownership", ownership, "precommitted", shown)));
        committables();
    }

    private void others() throws Exception {
        legacy();
        files();
        String id = text();
        long first = random.nextLong() >> 1;
        long last = first + random.nextInt(1000);
        write("sequence_split", new NumberSequenceSource(0, 1).getSplitSerializer(),
                new NumberSequenceSource.NumberSequenceSplit(id, first, last),
                List.of(row("split_id", id, "next_number", first, "last_number", last)));
        jdbc();
        pulsar();
    }

    private void committables() throws Exception {
        CommittableCollector<Object> collector = CommittableCollector.of(InternalSinkCommitterMetricGroup.wrap(
                UnregisteredMetricGroups.createUnregisteredOperatorMetricGroup()));
        List<Map<String, Object>> rows = new ArrayList<>();
        for (int checkpoint = 1; checkpoint <= random.nextInt(3); checkpoint++) {
            int subtasks = 1 + random.nextInt(3);
            for (int subtask = 0; subtask < subtasks; subtask++) {
                int number = random.nextInt(3);
                collector.addMessage(new CommittableSummary<>(subtask, subtasks, checkpoint, number, 0, 0));
                for (int each = 0; each < Math.max(number, 1); each++) {
                    Map<String, Object> row = row("checkpoint_id", checkpoint, "subtasks", subtasks,
                            "from_subtask", subtask, "expected", number);
                    if (number > 0) {
                        String id = text();
                        long producer = random.nextLong();
                        short epoch = (short) random.nextInt();
                        collector.addMessage(new CommittableWithLineage<>(
                                KafkaSinkValues.committable(producer, epoch, id), (long) checkpoint, subtask));
                        row.putAll(row("transactional_id", id, "producer_id", producer, "epoch", (int) epoch));
                    }
                    rows.add(row);
                }
            }
        }
        @SuppressWarnings("unchecked")
        SimpleVersionedSerializer<Object> inner = (SimpleVersionedSerializer<Object>) KafkaSinkValues.committables();
        write("kafka_committables", new CommittableCollectorSerializer<>(inner, 0, 1,
                InternalSinkCommitterMetricGroup.wrap(
                        UnregisteredMetricGroups.createUnregisteredOperatorMetricGroup())), collector, rows);
    }

    /** The serializer of the state of {@code FlinkKafkaConsumerBase}. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private void legacy() throws Exception {
        var made = Class.forName("org.apache.flink.streaming.connectors.kafka.FlinkKafkaConsumerBase")
                .getDeclaredMethod("createStateSerializer", ExecutionConfig.class);
        made.setAccessible(true);
        TupleSerializer serializer = (TupleSerializer) made.invoke(null, new ExecutionConfig());
        String topic = topic();
        int partition = whole();
        long offset = one(new long[] {-1, 0, 41, Long.MAX_VALUE,
            -915623761776L, -915623761775L, -915623761774L, -915623761773L});
        DataOutputSerializer bytes = new DataOutputSerializer(64);
        serializer.serialize(Tuple2.of(new KafkaTopicPartition(topic, partition), offset), bytes);
        lines.line("kafka_consumer", bytes.getCopyOfBuffer(),
                List.of(row("topic", topic, "partition", partition, "offset", offset)));
    }

    private void files() throws Exception {
        List<FileSourceSplit> splits = new ArrayList<>();
        List<Map<String, Object>> rows = new ArrayList<>();
        for (int each = random.nextInt(3); each >= 0; each--) {
            Map<String, Object> row = new LinkedHashMap<>();
            FileSourceSplit split = file(row);
            byte[] bytes = write("file_split", FileSourceSplitSerializer.INSTANCE, split, List.of(row));
            Map<String, Object> wrapped = row("source_index", each, "hybrid_split_id", "0");
            wrapped.putAll(row);
            write("hybrid_file_split", new HybridSourceSplitSerializer(),
                    new HybridSourceSplit(each, Arrays.copyOfRange(bytes, 8, bytes.length), 1, "0"), List.of(wrapped));
            splits.add(split);
            row.put("state", "pending");
            rows.add(row);
        }
        List<org.apache.flink.core.fs.Path> done = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            String path = path();
            done.add(new org.apache.flink.core.fs.Path(path));
            rows.add(row("state", "processed", "path", path));
        }
        write("file_enumerator", new PendingSplitsCheckpointSerializer<>(FileSourceSplitSerializer.INSTANCE),
                PendingSplitsCheckpoint.fromCollectionSnapshot(splits, done), rows);
    }

    private FileSourceSplit file(Map<String, Object> row) {
        String id = text(), path = path();
        long offset = random.nextInt(99), length = random.nextLong() >>> 1, size = random.nextLong() >>> 1;
        long time = random.nextLong() >>> 24;
        String[] hosts = new String[random.nextInt(3)];
        Arrays.setAll(hosts, each -> text());
        CheckpointedPosition position = null;
        row.putAll(row("split_id", id, "path", path, "offset", offset, "length", length, "modified", time,
                "file_bytes", size, "hosts", Arrays.asList(hosts)));
        if (random.nextBoolean()) {
            long at = random.nextBoolean() ? CheckpointedPosition.NO_OFFSET : random.nextInt(1000);
            long records = random.nextInt(1000);
            position = new CheckpointedPosition(at, records);
            row.putAll(row("reader_offset", at < 0 ? null : at, "records_after_offset", records));
        }
        return new FileSourceSplit(id, new org.apache.flink.core.fs.Path(path), offset, length, time, size, hosts,
                position);
    }

    private void jdbc() throws Exception {
        String id = text(), statement = "SELECT " + text();
        CheckpointedOffset at = random.nextBoolean() ? null : new CheckpointedOffset(random.nextInt(99), 0);
        write("jdbc_split", new JdbcSourceSplitSerializer(),
                new JdbcSourceSplit(id, statement, new java.io.Serializable[] {1L, "x"}, at),
                List.of(row("split_id", id, "statement", statement)));
    }

    private void pulsar() throws Exception {
        String topic = "persistent://public/default/" + topic();
        int partition = random.nextInt(5) - 1;
        List<TopicRange> ranges = new ArrayList<>();
        List<Map<String, Object>> shown = new ArrayList<>();
        for (int each = random.nextInt(3); each >= 0; each--) {
            int start = random.nextInt(60000);
            ranges.add(new TopicRange(start, start + each));
            shown.add(row("start", start, "end", start + each));
        }
        Map<String, Object> row = row("topic", topic, "partition", partition < 0 ? null : partition, "ranges", shown);
        MessageId message = null;
        if (random.nextInt(4) > 0) {
            long ledger = random.nextInt(1 << 30), entry = random.nextInt(1 << 20);
            int batch = random.nextInt(10);
            boolean batched = random.nextBoolean();
            message = batched
                    ? new BatchMessageIdImpl(ledger, entry, partition, batch)
                    : new MessageIdImpl(ledger, entry, partition);
            row.putAll(row("ledger_id", ledger, "entry_id", entry, "batch_index", batched ? batch : null));
        }
        TxnID transaction = random.nextBoolean() ? null : new TxnID(random.nextInt(9), random.nextLong());
        row.put("transaction", transaction == null ? null : transaction.toString());
        TopicPartition place = new TopicPartition("t", partition, ranges);
        var field = TopicPartition.class.getDeclaredField("topic");
        field.setAccessible(true);
        field.set(place, topic);
        write("pulsar_split", PulsarPartitionSplitSerializer.INSTANCE,
                new PulsarPartitionSplit(place, StopCursor.never(), message, transaction), List.of(row));
    }

    private String topic() {
        return TOPICS[random.nextInt(TOPICS.length)];
    }

    private String path() {
        String[] paths = {"file:/tmp/in/part-1.txt", "s3://bucket/a/b.csv", "hdfs://name:8020/x/\u65e5\u672c/y", "/plain",
            "s3://user@host:9000/k"};
        return paths[random.nextInt(paths.length)];
    }

    private String text() {
        String[] texts = {"", "a", "orders-0", "\u65e5\u672c \ud83d\ude00", "nul\0", "x".repeat(300)};
        return texts[random.nextInt(texts.length)];
    }

    private int whole() {
        return random.nextInt() >>> (1 + random.nextInt(31));
    }

    private long one(long[] numbers) {
        return random.nextInt(4) == 0 ? random.nextLong() >>> 1 : numbers[random.nextInt(numbers.length)];
    }

    private <T> byte[] write(String form, SimpleVersionedSerializer<?> by, T value, List<Map<String, Object>> rows)
            throws Exception {
        return lines.write(form, by, value, rows);
    }

    private static Map<String, Object> row(Object... cells) {
        return ElementLines.row(cells);
    }
}
