import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.SessionStoreWithHeaders;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStoreWithHeaders;
import org.apache.kafka.streams.state.TimestampedWindowStoreWithHeaders;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.WindowStore;

/** Builds a topology in which each described part has a topic and a store of its own, filled as its role says. */
@SuppressWarnings("unchecked")
final class Topologies {
    private interface Put<S> {
        void put(S store, Record<Object, Object> record);
    }

    private final StreamsBuilder builder = new StreamsBuilder();
    private final String id;

    private Topologies(String id) {
        this.id = id;
    }

    static Topology build(JsonNode description) {
        Topologies topologies = new Topologies(description.get("application_id").textValue());
        description.get("parts").forEach(topologies::add);
        Properties settings = new Properties();
        description.get("config").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return topologies.builder.build(settings);
    }

    private void add(JsonNode part) {
        String name = part.get("name").textValue();
        Serde<Object> keys = Cells.serde(part.get("key_serde").textValue());
        Serde<Object> values = Cells.serde(part.get("input_serde").textValue());
        String topic = id + "." + name + "-in";
        Consumed<Object, Object> with = Consumed.with(keys, values);
        switch (part.get("role").textValue()) {
            case "table" -> builder.table(topic, with, this.<KeyValueStore<Bytes, byte[]>>stored(name, keys, values));
            case "global" ->
                builder.globalTable(topic, with, this.<KeyValueStore<Bytes, byte[]>>stored(name, keys, values));
            case "versioned" -> {
                Duration history = duration(part, "history_retention_ms");
                Duration interval = duration(part, "segment_interval_ms");
                var store = Stores.persistentVersionedKeyValueStore(name, history, interval);
                builder.table(
                        topic, with, Materialized.<Object, Object>as(store).withKeySerde(keys).withValueSerde(values));
            }
            case "windowed-count" -> {
                TimeWindows windows =
                        TimeWindows.ofSizeAndGrace(duration(part, "window_size_ms"), duration(part, "grace_ms"));
                grouped(topic, keys, values).windowedBy(windows).count(Materialized.as(name));
            }
            case "sliding-count" -> {
                SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(
                        duration(part, "window_size_ms"), duration(part, "grace_ms"));
                grouped(topic, keys, values).windowedBy(windows).count(Materialized.as(name));
            }
            case "closing-count" -> {
                TimeWindows windows =
                        TimeWindows.ofSizeAndGrace(duration(part, "window_size_ms"), duration(part, "grace_ms"));
                grouped(topic, keys, values)
                        .windowedBy(windows)
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .count(Materialized.as(name));
            }
            case "session-count" -> {
                SessionWindows windows =
                        SessionWindows.ofInactivityGapAndGrace(duration(part, "gap_ms"), duration(part, "grace_ms"));
                grouped(topic, keys, values).windowedBy(windows).count(Materialized.as(name));
            }
            case "closing-session-count" -> {
                SessionWindows windows =
                        SessionWindows.ofInactivityGapAndGrace(duration(part, "gap_ms"), duration(part, "grace_ms"));
                grouped(topic, keys, values)
                        .windowedBy(windows)
                        .emitStrategy(EmitStrategy.onWindowClose())
                        .count(Materialized.as(name));
            }
            case "join" -> {
                Serde<Object> others = Cells.serde(part.get("other_serde").textValue());
                KStream<Object, Object> other =
                        builder.stream(id + "." + name + "-other-in", Consumed.with(keys, others));
                JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(
                        duration(part, "difference_ms"), duration(part, "grace_ms"));
                var joined = StreamJoined.with(keys, values, others).withStoreName(name).withName(name);
                builder.stream(topic, with).join(other, (l, r) -> l + "+" + r, windows, joined).foreach((k, v) -> {});
            }
            default -> processor(part, name, topic, keys, values);
        }
    }

    private void processor(JsonNode part, String name, String topic, Serde<Object> keys, Serde<Object> values) {
        switch (part.get("role").textValue()) {
            case "key-value" -> {
                var store = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(name), keys, values);
                this.<KeyValueStore<Object, Object>>process(
                        topic, keys, values, store, (to, record) -> to.put(record.key(), record.value()));
            }
            case "in-memory" -> {
                var store = Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), keys, values);
                this.<KeyValueStore<Object, Object>>process(
                        topic, keys, values, store, (to, record) -> to.put(record.key(), record.value()));
            }
            case "headers-key-value" -> {
                var supplier = Stores.persistentTimestampedKeyValueStoreWithHeaders(name);
                var store = Stores.timestampedKeyValueStoreWithHeadersBuilder(supplier, keys, values);
                this.<TimestampedKeyValueStoreWithHeaders<Object, Object>>process(
                        topic, keys, values, store, (to, record) -> to.put(record.key(), stamped(record)));
            }
            case "window" -> {
                Duration size = duration(part, "window_size_ms");
                var supplier =
                        Stores.persistentWindowStore(name, duration(part, "retention_ms"), size, false);
                var store = Stores.windowStoreBuilder(supplier, keys, values);
                this.<WindowStore<Object, Object>>process(topic, keys, values, store, (to, record) ->
                        to.put(record.key(), record.value(), start(record, size)));
            }
            case "headers-window" -> {
                Duration size = duration(part, "window_size_ms");
                var supplier = Stores.persistentTimestampedWindowStoreWithHeaders(
                        name, duration(part, "retention_ms"), size, false);
                var store = Stores.timestampedWindowStoreWithHeadersBuilder(supplier, keys, values);
                this.<TimestampedWindowStoreWithHeaders<Object, Object>>process(topic, keys, values, store, (to, record) ->
                        to.put(record.key(), stamped(record), start(record, size)));
            }
            case "headers-session" -> {
                Duration size = duration(part, "session_size_ms");
                var supplier = Stores.persistentSessionStoreWithHeaders(name, duration(part, "retention_ms"));
                var store = Stores.sessionStoreWithHeadersBuilder(supplier, keys, values);
                this.<SessionStoreWithHeaders<Object, Object>>process(topic, keys, values, store, (to, record) ->
                        to.put(
                                new Windowed<>(record.key(), new SessionWindow(start(record, size), record.timestamp())),
                                record.value() == null
                                        ? null
                                        : AggregationWithHeaders.make(record.value(), record.headers())));
            }
            default -> throw new IllegalArgumentException(part.toString());
        }
    }

    private <S extends StateStore> void process(
            String topic, Serde<Object> keys, Serde<Object> values, StoreBuilder<?> store, Put<S> put) {
        builder.addStateStore(store);
        ProcessorSupplier<Object, Object, Void, Void> supplier = () -> new Processor<>() {
            private S into;

            @Override
            public void init(ProcessorContext<Void, Void> context) {
                into = context.getStateStore(store.name());
            }

            @Override
            public void process(Record<Object, Object> record) {
                put.put(into, record);
            }
        };
        builder.stream(topic, Consumed.with(keys, values)).process(supplier, store.name());
    }

    private static ValueTimestampHeaders<Object> stamped(Record<Object, Object> record) {
        return record.value() == null
                ? null
                : ValueTimestampHeaders.make(record.value(), record.timestamp(), record.headers());
    }

    private static long start(Record<Object, Object> record, Duration size) {
        return record.timestamp() / size.toMillis() * size.toMillis();
    }

    private <S extends StateStore> Materialized<Object, Object, S> stored(
            String name, Serde<Object> keys, Serde<Object> values) {
        return Materialized.<Object, Object, S>as(name).withKeySerde(keys).withValueSerde(values);
    }

    private KGroupedStream<Object, Object> grouped(String topic, Serde<Object> keys, Serde<Object> values) {
        return builder.stream(topic, Consumed.with(keys, values)).groupByKey(Grouped.with(keys, values));
    }

    private static Duration duration(JsonNode part, String field) {
        return Duration.ofMillis(part.get(field).longValue());
    }
}
