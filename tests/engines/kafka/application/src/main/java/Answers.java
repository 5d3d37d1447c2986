import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreType;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

/** Answers of the stores to interactive queries: all rows of each partition, in the order of the store. */
@SuppressWarnings("unchecked")
final class Answers {
    private final KafkaStreams streams;
    private final JsonNode description;
    private final Map<TaskId, Map<String, StateStore>> inside;

    Answers(KafkaStreams streams, JsonNode description) throws ReflectiveOperationException {
        this.streams = streams;
        this.description = description;
        inside = Inside.stores(streams);
    }

    /** Partitions of each store by its name. Versioned stores are asked for keys of a partition and times under their names. */
    JsonNode of(JsonNode asked) {
        ObjectNode stores = JsonNodeFactory.instance.objectNode();
        for (JsonNode store : description.get("stores")) {
            String name = store.get("name").textValue();
            String kind = store.get("kind").textValue();
            ArrayNode partitions = stores.putArray(name);
            if (kind.startsWith("global-")) {
                rows(partitions.addObject().put("directory", "global/rocksdb/" + name), name, kind, null);
                continue;
            }
            for (Map.Entry<TaskId, Map<String, StateStore>> task : inside.entrySet()) {
                StateStore opened = task.getValue().get(name);
                if (opened == null) {
                    continue;
                }
                int partition = task.getKey().partition();
                ObjectNode answer = partitions.addObject();
                answer.put("task", task.getKey().toString()).put("partition", partition);
                answer.put("observed_stream_time", Inside.observedStreamTime(opened));
                if (kind.equals("versioned")) {
                    versioned(answer, store, partition, asked.get("versioned").get(name));
                } else {
                    rows(answer, name, kind, partition);
                }
            }
        }
        return stores;
    }

    private void rows(ObjectNode answer, String name, String kind, Integer partition) {
        ArrayNode rows = answer.putArray("rows");
        boolean headers = kind.contains("headers-");
        boolean stamped = kind.contains("timestamped-");
        if (kind.endsWith("key-value")) {
            var type = headers
                    ? QueryableStoreTypes.<Object, Object>timestampedKeyValueStoreWithHeaders()
                    : stamped
                            ? QueryableStoreTypes.<Object, Object>timestampedKeyValueStore()
                            : QueryableStoreTypes.<Object, Object>keyValueStore();
            var store = (ReadOnlyKeyValueStore<Object, Object>) store(name, type, partition);
            try (KeyValueIterator<Object, Object> all = store.all()) {
                all.forEachRemaining(row -> value(rows.addObject().set("key", Cells.json(row.key)), row.value));
            }
        } else if (kind.endsWith("session")) {
            var type = headers
                    ? QueryableStoreTypes.<Object, Object>sessionStoreWithHeaders()
                    : QueryableStoreTypes.<Object, Object>sessionStore();
            windowed(rows, ((ReadOnlySessionStore<Object, Object>) store(name, type, partition)).fetch(null, null));
        } else {
            var type = headers
                    ? QueryableStoreTypes.<Object, Object>timestampedWindowStoreWithHeaders()
                    : stamped
                            ? QueryableStoreTypes.<Object, Object>timestampedWindowStore()
                            : QueryableStoreTypes.<Object, Object>windowStore();
            windowed(rows, ((ReadOnlyWindowStore<Object, Object>) store(name, type, partition)).all());
        }
    }

    private <T> T store(String name, QueryableStoreType<T> type, Integer partition) {
        StoreQueryParameters<T> parameters = StoreQueryParameters.fromNameAndType(name, type);
        return streams.store(partition == null ? parameters : parameters.withPartition(partition));
    }

    private static void windowed(ArrayNode rows, KeyValueIterator<Windowed<Object>, Object> found) {
        try (found) {
            found.forEachRemaining(row -> {
                ObjectNode answer = rows.addObject();
                answer.set("key", Cells.json(row.key.key()));
                answer.put("start", row.key.window().start()).put("end", row.key.window().end());
                value(answer, row.value);
            });
        }
    }

    private static void value(ObjectNode row, Object value) {
        if (value instanceof ValueAndTimestamp<?> stamped) {
            row.set("value", Cells.json(stamped.value()));
            row.put("timestamp", stamped.timestamp());
        } else if (value instanceof ValueTimestampHeaders<?> stamped) {
            row.set("value", Cells.json(stamped.value()));
            row.put("timestamp", stamped.timestamp());
            row.set("headers", Cells.json(stamped.headers()));
        } else if (value instanceof AggregationWithHeaders<?> aggregation) {
            row.set("value", Cells.json(aggregation.aggregation()));
            row.set("headers", Cells.json(aggregation.headers()));
        } else {
            row.set("value", Cells.json(value));
        }
    }

    /** Rows (the latest versions), as-of answers and all versions of each key of a partition. */
    private void versioned(ObjectNode answer, JsonNode store, int partition, JsonNode asked) {
        ArrayNode rows = answer.putArray("rows");
        ArrayNode history = answer.putArray("as_of");
        ArrayNode versions = answer.putArray("versions");
        String name = store.get("name").textValue();
        String serde = store.get("key_serde").textValue();
        for (JsonNode each : asked) {
            if (each.get("partition").intValue() != partition) {
                continue;
            }
            Object key = Cells.read(serde, each.get("key"));
            VersionedRecord<Object> latest = query(name, partition, VersionedKeyQuery.withKey(key));
            if (latest != null) {
                version(rows.addObject().set("key", each.get("key")), latest);
            }
            for (JsonNode time : each.get("times")) {
                Instant instant = Instant.ofEpochMilli(time.longValue());
                VersionedRecord<Object> then =
                        query(name, partition, VersionedKeyQuery.<Object, Object>withKey(key).asOf(instant));
                ObjectNode row = history.addObject().set("key", each.get("key"));
                row.put("as_of", time.longValue());
                row.set("answer", then == null ? null : version(JsonNodeFactory.instance.objectNode(), then));
            }
            var every = MultiVersionedKeyQuery.<Object, Object>withKey(key).withAscendingTimestamps();
            try (VersionedRecordIterator<Object> found = query(name, partition, every)) {
                found.forEachRemaining(record -> version(versions.addObject().set("key", each.get("key")), record)
                        .put("valid_to", record.validTo().orElse(null)));
            }
        }
    }

    private static ObjectNode version(ObjectNode row, VersionedRecord<Object> record) {
        row.set("value", Cells.json(record.value()));
        return row.put("valid_from", record.timestamp());
    }

    private <R> R query(String name, int partition, Query<R> query) {
        var request = StateQueryRequest.inStore(name).withQuery(query).withPartitions(Set.of(partition));
        QueryResult<R> result = streams.query(request).getPartitionResults().get(partition);
        if (result.isFailure()) {
            throw new IllegalStateException(name + ": " + result.getFailureMessage());
        }
        return result.getResult();
    }
}
