import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateStore;

/**
 * An application of Kafka Streams with the stores that a file describes. It starts at once and is ready when all its
 * tasks run. Commands wait until the input is processed and committed, ask the stores, flush them, and close the application.
 *
 * <p>Application DESCRIPTION.json ADDRESS STATE-DIRECTORY
 */
public final class Application {
    private static final long PATIENCE_MS = 60_000;

    private final JsonNode description;
    private final String id;
    private final Admin admin;
    private final KafkaStreams streams;
    private final Map<TopicPartition, Long> restored = new HashMap<>(); // ends of global topics before the start

    private Application(JsonNode description, Topology topology, String address, String directory) throws Exception {
        this.description = description;
        id = description.get("application_id").textValue();
        admin = Admin.create(Map.of("bootstrap.servers", address));
        streams = new KafkaStreams(topology, settings(address, directory));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        restored.putAll(ends(true));
        streams.start();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (streams.state() != KafkaStreams.State.RUNNING) {
            pause(deadline);
        }
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode description = JsonLines.JSON.readTree(Files.readString(Path.of(arguments[0])));
        Topology topology = Topologies.build(description);
        Application running = new Application(description, topology, arguments[1], arguments[2]);
        ObjectNode ready = JsonNodeFactory.instance.objectNode();
        ready.put("state_directory", Path.of(arguments[2], running.id).toString());
        ready.put("kafka_version", AppInfoParser.getVersion());
        ready.put("topology", topology.describe().toString());
        JsonLines.serve(
                ready,
                Map.of(
                        "wait", asked -> running.await(),
                        "answers", asked -> new Answers(running.streams, running.description).of(asked),
                        "flush", asked -> running.flush(),
                        "close", asked -> running.close()));
    }

    private Properties settings(String address, String directory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, id);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, address);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, SmallTables.class);
        settings.put("auto.offset.reset", "earliest");
        description.get("config").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        if (!isStreamsGroup()) {
            // A member that was killed is replaced at once by its successor of the same name.
            settings.put("group.instance.id", "only");
        }
        return settings;
    }

    /** Wait until every record of the input topics is processed and committed, and RocksDB is idle. */
    private JsonNode await() throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        Map<TopicPartition, Long> asked = ends(false);
        Map<TopicPartition, Long> global = ends(true);
        while (!committed(asked) || !applied(global)) {
            pause(deadline);
        }
        for (StateStore store : stores()) {
            while (Inside.busy(store)) {
                pause(deadline);
            }
        }
        return JsonNodeFactory.instance.nullNode();
    }

    /** Whether its group has the rebalance protocol of KIP-1071, whose members have no names of their own. */
    private boolean isStreamsGroup() {
        return description.get("config").path("group.protocol").asText().equals("streams");
    }

    private boolean committed(Map<TopicPartition, Long> ends) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> done =
                admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get();
        return ends.entrySet().stream().allMatch(end -> {
            OffsetAndMetadata at = done.get(end.getKey());
            return end.getValue() == 0 || at != null && at.offset() >= end.getValue();
        });
    }

    private boolean applied(Map<TopicPartition, Long> ends) {
        for (JsonNode input : description.get("inputs")) {
            if (!input.get("global").booleanValue()) {
                continue;
            }
            String topic = input.get("topic").textValue();
            StateStore store = Inside.globalStore(streams, input.get("store").textValue());
            Map<Integer, Long> seen = store.getPosition().getPartitionPositions(topic);
            for (Map.Entry<TopicPartition, Long> end : ends.entrySet()) {
                TopicPartition partition = end.getKey();
                if (partition.topic().equals(topic)
                        && end.getValue() > restored.get(partition)
                        && seen.getOrDefault(partition.partition(), -1L) < end.getValue() - 1) {
                    return false;
                }
            }
        }
        return true;
    }

    /** Ends of the partitions of input topics, of those of global stores or of the others. */
    private Map<TopicPartition, Long> ends(boolean global) throws Exception {
        List<String> topics = description.get("inputs").valueStream()
                .filter(input -> input.get("global").booleanValue() == global)
                .map(input -> input.get("topic").textValue())
                .toList();
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (TopicDescription topic : admin.describeTopics(topics).allTopicNames().get().values()) {
            topic.partitions().forEach(
                    each -> asked.put(new TopicPartition(topic.name(), each.partition()), OffsetSpec.latest()));
        }
        Map<TopicPartition, Long> ends = new HashMap<>();
        for (Map.Entry<TopicPartition, ListOffsetsResultInfo> end : admin.listOffsets(asked).all().get().entrySet()) {
            ends.put(end.getKey(), end.getValue().offset());
        }
        return ends;
    }

    private void pause(long deadline) throws InterruptedException {
        if (streams.state() == KafkaStreams.State.ERROR || System.currentTimeMillis() > deadline) {
            throw new IllegalStateException("the application is " + streams.state() + " and does not get on");
        }
        Thread.sleep(20);
    }

    private JsonNode flush() throws Exception {
        for (StateStore store : stores()) {
            Inside.flush(store);
        }
        return await();
    }

    private List<StateStore> stores() throws ReflectiveOperationException {
        List<StateStore> stores = new ArrayList<>();
        Inside.stores(streams).values().forEach(each -> stores.addAll(each.values()));
        for (JsonNode input : description.get("inputs")) {
            if (input.get("global").booleanValue()) {
                stores.add(Inside.globalStore(streams, input.get("store").textValue()));
            }
        }
        return stores;
    }

    /** Closes the application, and ends its membership in its group, which would last for the session timeout. */
    private JsonNode close() throws Exception {
        if (!streams.close(Duration.ofMillis(PATIENCE_MS))) {
            throw new IllegalStateException("the application does not close: " + streams.state());
        }
        if (!isStreamsGroup()) {
            admin.removeMembersFromConsumerGroup(id, new RemoveMembersFromConsumerGroupOptions()).all().get();
        }
        return JsonNodeFactory.instance.nullNode();
    }
}
