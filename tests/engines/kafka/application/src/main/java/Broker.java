import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.OutputStream;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.server.BrokerServer;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.Feature;
import scala.Option;

/**
 * A broker of one node that is its own controller, on free ports of the loopback interface, with its data below a
 * given directory. Commands make topics, put records into them and read them.
 *
 * <p>Broker DIRECTORY [compacting]
 */
public final class Broker {
    private static final String HOST = "127.0.0.1";
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>(); // by compression
    private static String address;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        int controller;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getByName(HOST))) {
            controller = free.getLocalPort();
        }
        Properties settings = settings(arguments[0], controller);
        if (arguments.length > 1) {
            settings.put("log.cleaner.enable", "true");
            settings.put("log.cleaner.backoff.ms", "50");
            settings.put("log.cleaner.dedupe.buffer.size", "4194304");
        }
        format(arguments[0]);
        KafkaRaftServer server = new KafkaRaftServer(new KafkaConfig(settings, false), Time.SYSTEM);
        server.startup();
        BrokerServer broker = (BrokerServer) Inside.field(server, "broker", Option.class).get();
        address = HOST + ":" + broker.boundPort(new ListenerName("PLAINTEXT"));
        admin = Admin.create(Map.of("bootstrap.servers", address));
        ObjectNode ready = JsonNodeFactory.instance.objectNode().put("address", address);
        JsonLines.serve(
                ready, Map.of("create_topics", Broker::createTopics, "put", Broker::put, "records", Broker::records));
    }

    private static Properties settings(String directory, int controller) {
        Properties settings = new Properties();
        settings.put("process.roles", "broker,controller");
        settings.put("node.id", "1");
        settings.put("controller.quorum.voters", "1@" + HOST + ":" + controller);
        settings.put("listeners", "PLAINTEXT://" + HOST + ":0,CONTROLLER://" + HOST + ":" + controller);
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("inter.broker.listener.name", "PLAINTEXT");
        settings.put("log.dirs", directory);
        for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) {
            settings.put(topic + ".num.partitions", "1");
            settings.put(topic + ".replication.factor", "1");
        }
        settings.put("transaction.state.log.min.isr", "1");
        settings.put("share.coordinator.state.topic.min.isr", "1");
        settings.put("group.initial.rebalance.delay.ms", "0");
        settings.put("auto.create.topics.enable", "false");
        settings.put("num.network.threads", "1");
        settings.put("num.io.threads", "2");
        settings.put("log.index.size.max.bytes", "65536");
        // Records of the past stay: neither retention nor compaction runs.
        settings.put("log.retention.ms", "-1");
        settings.put("log.initial.task.delay.ms", "86400000");
        settings.put("log.cleaner.enable", "false");
        return settings;
    }

    private static void format(String directory) throws Exception {
        new Formatter()
                .setPrintStream(new PrintStream(OutputStream.nullOutputStream()))
                .setClusterId(Uuid.randomUuid().toString())
                .setNodeId(1)
                .setControllerListenerName("CONTROLLER")
                .setMetadataLogDirectory(directory)
                .addDirectory(directory)
                .setSupportedFeatures(Feature.PRODUCTION_FEATURES)
                .setIgnoreFormatted(true)
                .run();
    }

    /** Make topics that keep records for ever, with the times that their producers gave them. */
    private static JsonNode createTopics(JsonNode asked) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (JsonNode name : asked.get("topics")) {
            NewTopic topic = new NewTopic(name.textValue(), asked.get("partitions").intValue(), (short) 1);
            topics.add(topic.configs(Map.of("retention.ms", "-1", "message.timestamp.type", "CreateTime")));
        }
        admin.createTopics(topics).all().get();
        return JsonNodeFactory.instance.nullNode();
    }

    /** Write records to a topic; answer [partition, offset] of each. */
    private static JsonNode put(JsonNode asked) throws Exception {
        String topic = asked.get("topic").textValue();
        String keyName = asked.get("key_serde").textValue();
        String valueName = asked.get("value_serde").textValue();
        Serde<Object> keys = Cells.serde(keyName);
        Serde<Object> values = Cells.serde(valueName);
        KafkaProducer<byte[], byte[]> producer =
                PRODUCERS.computeIfAbsent(asked.get("compression").textValue(), Broker::producer);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : asked.get("records")) {
            byte[] key = keys.serializer().serialize(topic, Cells.read(keyName, record.get("key")));
            byte[] value = values.serializer().serialize(topic, Cells.read(valueName, record.get("value")));
            long time = record.get("timestamp").longValue();
            sent.add(producer.send(
                    new ProducerRecord<>(topic, null, time, key, value, Cells.headers(record.get("headers")))));
        }
        producer.flush();
        ArrayNode places = JsonNodeFactory.instance.arrayNode();
        for (Future<RecordMetadata> record : sent) {
            places.addArray().add(record.get().partition()).add(record.get().offset());
        }
        return places;
    }

    private static KafkaProducer<byte[], byte[]> producer(String compression) {
        ByteArraySerializer bytes = new ByteArraySerializer();
        Map<String, Object> settings =
                Map.of("bootstrap.servers", address, "compression.type", compression, "linger.ms", 5);
        return new KafkaProducer<>(settings, bytes, bytes);
    }

    /** Read the committed records of a topic, in order of partition and offset. */
    private static JsonNode records(JsonNode asked) {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "isolation.level", "read_committed");
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(asked.get("topic").textValue())
                    .forEach(each -> partitions.add(new TopicPartition(each.topic(), each.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                consumer.poll(Duration.ofMillis(100)).forEach(found::add);
            }
        }
        found.sort(Comparator.comparingInt((ConsumerRecord<byte[], byte[]> record) -> record.partition())
                .thenComparingLong(ConsumerRecord::offset));
        ArrayNode rows = JsonNodeFactory.instance.arrayNode();
        for (ConsumerRecord<byte[], byte[]> record : found) {
            ObjectNode row = rows.addObject();
            row.put("partition", record.partition()).put("offset", record.offset());
            row.put("timestamp", record.timestamp());
            row.set("key", Cells.hex(record.key()));
            row.set("value", Cells.hex(record.value()));
            row.set("headers", Cells.json(record.headers()));
        }
        return rows;
    }
}
