import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/** The joins and the aggregation of tables of the DSL: the records that each input emits. */
final class Joins {
    static List<Object> answers(JsonNode history, Path directory) {
        JsonNode join = history.get("join");
        StreamsBuilder builder = new StreamsBuilder();
        String kind = join.get("kind").asText();
        boolean stream = kind.equals("stream-table");
        if (kind.equals("table-table")) {
            tables(builder, join);
        } else if (stream) {
            streamAndTable(builder, join);
        } else {
            KTable<String, String> table = table(builder, "left", join, join.get("table_versioned").asBoolean());
            Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts = Materialized
                    .<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                    .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled();
            table.groupBy((key, value) -> KeyValue.pair(value, value), Grouped.with(Serdes.String(), Serdes.String()))
                    .count(counts).toStream().mapValues(count -> count == null ? null : count.toString()).to("out");
        }
        List<Object> answers = new ArrayList<>();
        try (TopologyTestDriver driver = Oracle.driver(builder.build(), directory)) {
            Map<String, TestInputTopic<String, String>> topics = new HashMap<>();
            for (String side : List.of("left", "right")) {
                topics.put(side, driver.createInputTopic(side, new StringSerializer(), new StringSerializer()));
            }
            TestOutputTopic<String, String> out =
                    driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer());
            for (JsonNode input : history.get("inputs")) {
                try {
                    topics.get(input.path("side").asText("left"))
                            .pipeInput(text(input, "key"), text(input, "value"), input.get("ts").asLong());
                    List<Object> emitted = new ArrayList<>();
                    for (TestRecord<String, String> record : out.readRecordsToList()) {
                        emitted.add(Arrays.asList(record.key(), record.value(), record.timestamp()));
                    }
                    answers.add(emitted);
                } catch (RuntimeException error) {
                    answers.add(StoreHistory.error(error));
                    return answers;
                }
            }
        }
        return answers;
    }

    private static void tables(StreamsBuilder builder, JsonNode join) {
        KTable<String, String> left = table(builder, "left", join, join.get("left_versioned").asBoolean());
        KTable<String, String> right = table(builder, "right", join, join.get("right_versioned").asBoolean());
        ValueJoiner<String, String, String> joiner = Joins::joined;
        KTable<String, String> result;
        if (join.path("result_materialized").asBoolean(true)) {
            Materialized<String, String, KeyValueStore<Bytes, byte[]>> as = Materialized
                    .<String, String, KeyValueStore<Bytes, byte[]>>as("result").withCachingDisabled();
            result = switch (join.get("join").asText()) {
                case "inner" -> left.join(right, joiner, as);
                case "left" -> left.leftJoin(right, joiner, as);
                default -> left.outerJoin(right, joiner, as);
            };
        } else {
            result = switch (join.get("join").asText()) {
                case "inner" -> left.join(right, joiner);
                case "left" -> left.leftJoin(right, joiner);
                default -> left.outerJoin(right, joiner);
            };
        }
        result.toStream().to("out");
    }

    private static void streamAndTable(StreamsBuilder builder, JsonNode join) {
        KTable<String, String> table = table(builder, "right", join, join.get("table_versioned").asBoolean());
        KStream<String, String> stream = builder.stream("left", Consumed.with(Serdes.String(), Serdes.String()));
        Joined<String, String, String> joined = Joined.with(Serdes.String(), Serdes.String(), Serdes.String());
        if (!join.path("grace_ms").isNull() && join.has("grace_ms")) {
            joined = joined.withGracePeriod(Duration.ofMillis(join.get("grace_ms").asLong()));
        }
        boolean inner = join.get("join").asText().equals("inner");
        KStream<String, String> result =
                inner ? stream.join(table, Joins::joined, joined) : stream.leftJoin(table, Joins::joined, joined);
        result.to("out", Produced.with(Serdes.String(), Serdes.String()));
    }

    private static KTable<String, String> table(StreamsBuilder builder, String topic, JsonNode join, boolean versioned) {
        Materialized<String, String, KeyValueStore<Bytes, byte[]>> as;
        if (versioned) {
            Duration retention = Duration.ofMillis(join.get("history_retention_ms").asLong());
            as = Materialized.as(Stores.persistentVersionedKeyValueStore(topic + "-table", retention));
        } else {
            as = Materialized.as(topic + "-table");
        }
        return builder.table(topic, as.withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withCachingDisabled());
    }

    private static String joined(String left, String right) {
        return left + "-" + right;
    }

    private static String text(JsonNode node, String name) {
        return node.get(name).isNull() ? null : node.get(name).asText();
    }
}
