import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.flink.connector.kafka.dynamic.source.split.DynamicKafkaSourceSplit;
import org.apache.flink.connector.kafka.dynamic.source.split.DynamicKafkaSourceSplitSerializer;
import org.apache.flink.connector.kafka.source.enumerator.AssignmentStatus;
import org.apache.flink.connector.kafka.source.enumerator.KafkaSourceEnumState;
import org.apache.flink.connector.kafka.source.enumerator.KafkaSourceEnumStateSerializer;
import org.apache.flink.connector.kafka.source.enumerator.SplitAndAssignmentStatus;
import org.apache.flink.connector.kafka.source.split.KafkaPartitionSplit;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes enumerators with the connector of Kafka from 5.0 on, which keeps splits in them, and splits of its dynamic
 * source. {@code KafkaFiveBytes FILE NUMBER SEED}
 */
public final class KafkaFiveBytes {
    private static final String[] TOPICS = {"orders", "a", "payments.eu_2-x"};
    private static final long[] STARTS = {0, 33, Long.MAX_VALUE, -1, -2, -3};
    private static final long[] STOPS = {Long.MIN_VALUE, -1, -3, 0, 500};

    private KafkaFiveBytes() {}

    public static void main(String[] args) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ElementLines lines = new ElementLines(new PrintStream(bytes, true, StandardCharsets.UTF_8));
        Random random = new Random(Long.parseLong(args[2]));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            Set<SplitAndAssignmentStatus> splits = new HashSet<>();
            List<Map<String, Object>> rows = new ArrayList<>();
            boolean discovered = random.nextBoolean();
            for (int partition = random.nextInt(4); partition >= 0; partition--) {
                String topic = TOPICS[random.nextInt(TOPICS.length)];
                long start = STARTS[random.nextInt(STARTS.length)], stop = STOPS[random.nextInt(STOPS.length)];
                KafkaPartitionSplit split = new KafkaPartitionSplit(new TopicPartition(topic, partition), start, stop);
                AssignmentStatus status = AssignmentStatus.values()[random.nextInt(2)];
                splits.add(new SplitAndAssignmentStatus(split, status));
                Map<String, Object> row = ElementLines.row(
                        "topic", topic, "partition", partition, "starting", start, "stopping", stop);
                String cluster = "cluster-" + partition;
                Map<String, Object> dynamic = ElementLines.row("cluster", cluster, "retained_until", null);
                dynamic.putAll(row);
                lines.write("dynamic_kafka_split", new DynamicKafkaSourceSplitSerializer(),
                        new DynamicKafkaSourceSplit(cluster, split), List.of(dynamic));
                row.putAll(ElementLines.row("assignment", status.name().toLowerCase(),
                        "initial_discovery_finished", discovered));
                rows.add(row);
            }
            lines.write("kafka_enumerator", new KafkaSourceEnumStateSerializer(),
                    new KafkaSourceEnumState(splits, discovered), rows);
        }
        Files.write(Path.of(args[0]), bytes.toByteArray());
    }
}
