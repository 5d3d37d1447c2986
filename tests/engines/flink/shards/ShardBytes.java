import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.flink.connector.dynamodb.source.enumerator.DynamoDBStreamsShardSplitWithAssignmentStatus;
import org.apache.flink.connector.dynamodb.source.enumerator.DynamoDbStreamsSourceEnumeratorState;
import org.apache.flink.connector.dynamodb.source.enumerator.DynamoDbStreamsSourceEnumeratorStateSerializer;
import org.apache.flink.connector.dynamodb.source.split.DynamoDbStreamsShardSplit;
import org.apache.flink.connector.dynamodb.source.split.DynamoDbStreamsShardSplitSerializer;
import org.apache.flink.connector.kinesis.source.enumerator.KinesisShardSplitWithAssignmentStatus;
import org.apache.flink.connector.kinesis.source.enumerator.KinesisStreamsSourceEnumeratorState;
import org.apache.flink.connector.kinesis.source.enumerator.KinesisStreamsSourceEnumeratorStateSerializer;
import org.apache.flink.connector.kinesis.source.enumerator.SplitAssignmentStatus;
import org.apache.flink.connector.kinesis.source.split.KinesisShardSplit;
import org.apache.flink.connector.kinesis.source.split.KinesisShardSplitSerializer;
import org.apache.flink.connector.kinesis.source.split.StartingPosition;
import org.apache.flink.connector.mongodb.source.enumerator.MongoSourceEnumState;
import org.apache.flink.connector.mongodb.source.enumerator.MongoSourceEnumStateSerializer;
import org.apache.flink.connector.mongodb.source.split.MongoScanSourceSplit;
import org.apache.flink.connector.mongodb.source.split.MongoSourceSplitSerializer;
import org.bson.BsonDocument;
import software.amazon.awssdk.services.dynamodb.model.SequenceNumberRange;
import software.amazon.awssdk.services.dynamodb.model.Shard;

/**
 * Writes values with the serializers of the sources of Kinesis, DynamoDB's streams and MongoDB.
 * {@code ShardBytes FILE NUMBER SEED}
 */
public final class ShardBytes {
    private final Random random;
    private final ElementLines lines;

    private ShardBytes(Random random, ElementLines lines) {
        this.random = random;
        this.lines = lines;
    }

    public static void main(String[] args) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ShardBytes made = new ShardBytes(
                new Random(Long.parseLong(args[2])),
                new ElementLines(new PrintStream(bytes, true, StandardCharsets.UTF_8)));
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            made.kinesis();
            made.dynamodb();
            made.mongo();
        }
        Files.write(Path.of(args[0]), bytes.toByteArray());
    }

    private void kinesis() throws Exception {
        List<KinesisShardSplitWithAssignmentStatus> known = new ArrayList<>();
        List<Map<String, Object>> all = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            String arn = "arn:aws:kinesis:eu-west-1:123456789012:stream/" + text(), shard = shard();
            Map<String, Object> row = ElementLines.row("stream_arn", arn, "shard_id", shard);
            StartingPosition position = StartingPosition.fromStart();
            long time = random.nextLong() >>> 24;
            String number = text();
            Map<String, Object> start = ElementLines.row("position_from", "trim_horizon");
            if (random.nextInt(3) == 0) {
                position = StartingPosition.fromTimestamp(Instant.ofEpochMilli(time));
                start = ElementLines.row("position_from", "at_timestamp", "start_time_ms", time);
            } else if (random.nextBoolean()) {
                position = StartingPosition.continueFromSequenceNumber(number);
                start = ElementLines.row("position_from", "after_sequence_number", "sequence_number", number);
            }
            row.putAll(start);
            Set<String> parents = new LinkedHashSet<>();
            for (int parent = random.nextInt(3); parent > 0; parent--) {
                parents.add("shardId-" + parent);
            }
            boolean finished = random.nextBoolean();
            String last = String.valueOf(random.nextLong() >>> 1);
            KinesisShardSplit split = new KinesisShardSplit(arn, shard, position, parents, "0", last, finished);
            row.putAll(ElementLines.row("parent_shards", new ArrayList<>(split.getParentShardIds()),
                    "first_hash_key", "0", "last_hash_key", last, "finished", finished));
            lines.write("kinesis_split", new KinesisShardSplitSerializer(), split, List.of(row));
            SplitAssignmentStatus status = SplitAssignmentStatus.values()[random.nextInt(2)];
            known.add(new KinesisShardSplitWithAssignmentStatus(split, status));
            Map<String, Object> whole = new LinkedHashMap<>(row);
            whole.put("assignment", status.name().toLowerCase());
            all.add(whole);
        }
        if (all.isEmpty()) {
            all.add(ElementLines.row("stream_arn", null, "assignment", null));
        }
        String seen = random.nextBoolean() ? null : shard();
        all.forEach(each -> each.put("last_seen_shard", seen));
        lines.write("kinesis_enumerator",
                new KinesisStreamsSourceEnumeratorStateSerializer(new KinesisShardSplitSerializer()),
                new KinesisStreamsSourceEnumeratorState(known, seen), all);
    }

    private void dynamodb() throws Exception {
        List<DynamoDBStreamsShardSplitWithAssignmentStatus> known = new ArrayList<>();
        List<Map<String, Object>> all = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            String arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/" + text() + "/stream/2026", shard = shard();
            String number = random.nextBoolean() ? null : text(), parent = random.nextBoolean() ? null : shard();
            var position = number == null
                    ? org.apache.flink.connector.dynamodb.source.split.StartingPosition.fromStart()
                    : org.apache.flink.connector.dynamodb.source.split.StartingPosition
                            .continueFromSequenceNumber(number);
            List<Shard> children = new ArrayList<>();
            List<Map<String, Object>> shown = new ArrayList<>();
            for (int child = random.nextInt(3); child > 0; child--) {
                String last = random.nextBoolean() ? null : text();
                children.add(Shard.builder().shardId("c" + child).parentShardId(shard).sequenceNumberRange(
                        SequenceNumberRange.builder().startingSequenceNumber("1").endingSequenceNumber(last).build())
                        .build());
                shown.add(ElementLines.row("shard_id", "c" + child, "parent_shard", shard,
                        "first_sequence_number", "1", "last_sequence_number", last));
            }
            boolean finished = random.nextBoolean();
            DynamoDbStreamsShardSplit split =
                    new DynamoDbStreamsShardSplit(arn, shard, position, parent, children, finished);
            Map<String, Object> row = ElementLines.row("stream_arn", arn, "shard_id", shard,
                    "position_from", number == null ? "trim_horizon" : "after_sequence_number",
                    "sequence_number", number, "parent_shard", parent, "finished", finished, "child_shards", shown);
            lines.write("dynamodb_split", new DynamoDbStreamsShardSplitSerializer(), split, List.of(row));
            var status = org.apache.flink.connector.dynamodb.source.enumerator.SplitAssignmentStatus.values()[
                    random.nextInt(3)];
            known.add(new DynamoDBStreamsShardSplitWithAssignmentStatus(split, status));
            Map<String, Object> whole = new LinkedHashMap<>(row);
            whole.put("assignment", status.name().toLowerCase());
            all.add(whole);
        }
        if (all.isEmpty()) {
            all.add(ElementLines.row("stream_arn", null, "assignment", null));
        }
        long start = random.nextLong() >>> 24;
        all.forEach(each -> each.put("started_ms", start));
        lines.write("dynamodb_enumerator",
                new DynamoDbStreamsSourceEnumeratorStateSerializer(new DynamoDbStreamsShardSplitSerializer()),
                new DynamoDbStreamsSourceEnumeratorState(known, Instant.ofEpochMilli(start)), all);
    }

    private void mongo() throws Exception {
        List<MongoScanSourceSplit> remaining = new ArrayList<>();
        Map<String, MongoScanSourceSplit> assigned = new LinkedHashMap<>();
        List<String> names = new ArrayList<>(), done = new ArrayList<>();
        List<Map<String, Object>> rows = new ArrayList<>();
        for (int each = random.nextInt(3); each > 0; each--) {
            names.add(text());
            rows.add(ElementLines.row("state", "remaining", "namespace", names.get(names.size() - 1)));
        }
        for (int each = random.nextInt(3); each > 0; each--) {
            done.add(text());
            rows.add(ElementLines.row("state", "processed", "namespace", done.get(done.size() - 1)));
        }
        for (int each = random.nextInt(3); each > 0; each--) {
            Map<String, Object> row = ElementLines.row("state", "pending", "namespace", null);
            remaining.add(mongoSplit(row));
            rows.add(row);
        }
        for (int each = random.nextInt(2); each > 0; each--) {
            Map<String, Object> row = ElementLines.row("state", "assigned");
            MongoScanSourceSplit split = mongoSplit(row);
            assigned.put(split.splitId(), split);
            rows.add(row);
        }
        if (rows.isEmpty()) {
            rows.add(ElementLines.row("state", null));
        }
        boolean initialized = random.nextBoolean();
        rows.forEach(each -> each.put("initialized", initialized));
        lines.write("mongo_enumerator", MongoSourceEnumStateSerializer.INSTANCE,
                new MongoSourceEnumState(names, done, remaining, assigned, initialized), rows);
    }

    private MongoScanSourceSplit mongoSplit(Map<String, Object> row) throws Exception {
        String id = text(), database = text(), collection = text();
        BsonDocument least = BsonDocument.parse("{\"_id\": {\"$minKey\": 1}}");
        BsonDocument most = BsonDocument.parse("{\"_id\": {\"$oid\": \"5f9b3b9b9d3d7d0001d3f3b" + random.nextInt(9) + "\"}}");
        BsonDocument hint = BsonDocument.parse("{\"_id\": 1}");
        int offset = random.nextInt(99);
        MongoScanSourceSplit split = new MongoScanSourceSplit(id, database, collection, least, most, hint, offset);
        Map<String, Object> cells = ElementLines.row("split_id", id, "database", database, "collection", collection,
                "least", least.toJson(), "most", most.toJson(), "hint", hint.toJson(), "offset", offset);
        lines.write("mongo_split", MongoSourceSplitSerializer.INSTANCE, split, List.of(cells));
        row.putAll(cells);
        return split;
    }

    private String shard() {
        return "shardId-00000000000" + random.nextInt(10);
    }

    private String text() {
        String[] texts = {"", "a", "orders-0", "\u65e5\u672c \ud83d\ude00", "nul\0", "x".repeat(300)};
        return texts[random.nextInt(texts.length)];
    }
}
