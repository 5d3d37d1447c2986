import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.RocksDbIndexedTimeOrderedWindowBytesStoreSupplier;

/** One store as a processor of an application has it (logged, uncached), and the answers to a list of operations. */
final class StoreHistory {
    static final String NAME = "s";
    static final HexFormat HEX = HexFormat.of();

    private final JsonNode spec;
    private final Path directory;
    private StateRestoreCallback restoring;
    private StateStore store;
    private TopologyTestDriver driver;
    private TestOutputTopic<byte[], byte[]> changelog;
    private final List<KeyValue<byte[], byte[]>> logged = new ArrayList<>();
    private JsonNode operation;
    private Object answer;

    private StoreHistory(JsonNode spec, Path directory) {
        this.spec = spec;
        this.directory = directory;
    }

    static List<Object> answers(JsonNode history, Path directory) throws Exception {
        return new StoreHistory(history.get("store"), directory).run(history.get("ops"));
    }

    static Object error(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return java.util.Map.of("error", cause.getClass().getSimpleName());
    }

    private List<Object> run(JsonNode operations) throws Exception {
        List<Object> answers = new ArrayList<>();
        int life = 0;
        TestInputTopic<byte[], byte[]> input = open(life);
        try {
            for (JsonNode next : operations) {
                operation = next;
                if (next.get("op").asText().equals("wipe_and_restore")) {
                    drain();
                    driver.close();
                    input = open(++life);
                    restore();
                    answers.add(null);
                    continue;
                }
                input.pipeInput(new byte[0], new byte[0], next.path("record_time").asLong(0));
                answers.add(answer);
            }
        } finally {
            driver.close();
        }
        return answers;
    }

    private TestInputTopic<byte[], byte[]> open(int life) throws Exception {
        Topology topology = new Topology();
        topology.addSource("source", new ByteArrayDeserializer(), new ByteArrayDeserializer(), "in");
        topology.addProcessor("processor", () -> new Processor<byte[], byte[], byte[], byte[]>() {
            @Override
            public void init(ProcessorContext<byte[], byte[]> context) {
                store = context.getStateStore(NAME);
            }

            @Override
            public void process(Record<byte[], byte[]> record) {
                try {
                    answer = answer();
                } catch (Exception error) {
                    answer = error(error);
                }
            }
        }, "source");
        topology.addStateStore(builder(), "processor");
        driver = Oracle.driver(topology, directory.resolve("life" + life));
        String topic = Oracle.APPLICATION + "-" + NAME + "-changelog";
        changelog = driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        return driver.createInputTopic("in", new ByteArraySerializer(), new ByteArraySerializer());
    }

    private StoreBuilder<?> builder() {
        Serde<byte[]> bytes = Serdes.ByteArray();
        Duration retention = Duration.ofMillis(spec.path("retention").asLong());
        switch (spec.get("kind").asText()) {
            case "key_value":
                KeyValueBytesStoreSupplier plain = Stores.persistentKeyValueStore(NAME);
                return Stores.keyValueStoreBuilder(watched(KeyValueBytesStoreSupplier.class, plain), bytes, bytes);
            case "versioned":
                return Stores.versionedKeyValueStoreBuilder(
                        Stores.persistentVersionedKeyValueStore(NAME, retention), bytes, bytes);
            case "session":
                SessionBytesStoreSupplier sessions = Stores.persistentSessionStore(NAME, retention);
                return Stores.sessionStoreBuilder(watched(SessionBytesStoreSupplier.class, sessions), bytes, bytes);
            default:
                Duration size = Duration.ofMillis(spec.get("window_size").asLong());
                boolean duplicates = spec.path("duplicates").asBoolean();
                WindowBytesStoreSupplier windows = spec.path("time_ordered").asBoolean()
                        ? RocksDbIndexedTimeOrderedWindowBytesStoreSupplier.create(
                                NAME, retention, size, duplicates, spec.path("indexed").asBoolean())
                        : Stores.persistentWindowStore(NAME, retention, size, duplicates);
                return Stores.windowStoreBuilder(watched(WindowBytesStoreSupplier.class, windows), bytes, bytes);
        }
    }

    /** A supplier of stores whose restore callback is kept here. */
    private <S> S watched(Class<S> type, S supplier) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> {
            Object result = call(supplier, method, arguments);
            return method.getName().equals("get") ? watchedStore(result) : result;
        }));
    }

    private Object watchedStore(Object inner) {
        List<Class<?>> interfaces = new ArrayList<>();
        for (Class<?> type = inner.getClass(); type != null; type = type.getSuperclass()) {
            for (Class<?> one : type.getInterfaces()) {
                if (java.lang.reflect.Modifier.isPublic(one.getModifiers()) && !interfaces.contains(one)) {
                    interfaces.add(one);
                }
            }
        }
        return Proxy.newProxyInstance(getClass().getClassLoader(), interfaces.toArray(new Class<?>[0]), (self, method, given) -> {
            if (method.getName().equals("init")) {
                given[0] = watchedContext(given[0]);
            }
            return call(inner, method, given);
        });
    }

    private Object watchedContext(Object context) {
        Class<?>[] type = {InternalProcessorContext.class};
        return Proxy.newProxyInstance(getClass().getClassLoader(), type, (self, method, given) -> {
            if (method.getName().equals("register")) {
                restoring = (StateRestoreCallback) given[1];
            }
            return call(context, method, given);
        });
    }

    private static Object call(Object target, Method method, Object[] arguments) throws Throwable {
        try {
            method.setAccessible(true);
            return method.invoke(target, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private void drain() {
        changelog.readRecordsToList().forEach(record -> logged.add(KeyValue.pair(record.key(), record.value())));
    }

    private void restore() {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (KeyValue<byte[], byte[]> record : logged) {
            records.add(new ConsumerRecord<>("changelog", 0, records.size(), record.key, record.value));
        }
        if (restoring instanceof RecordBatchingStateRestoreCallback batching) {
            batching.restoreBatch(records);
        } else {
            records.forEach(record -> restoring.restore(record.key(), record.value()));
        }
    }

    private Object answer() throws Exception {
        switch (operation.get("op").asText()) {
            case "changelog":
                drain();
                List<Object> rows = new ArrayList<>();
                logged.forEach(row -> rows.add(Arrays.asList(hex(row.key), hex(row.value))));
                return rows;
            case "dropped":
                for (Metric metric : driver.metrics().values()) {
                    if (metric.metricName().name().equals("dropped-records-total")) {
                        return Math.round((double) metric.metricValue());
                    }
                }
                return 0;
            case "segments":
                try (Stream<Path> paths = Files.walk(directory)) {
                    return paths.filter(path -> path.getFileName().toString().startsWith(NAME + "."))
                            .filter(Files::isDirectory).map(path -> path.getFileName().toString()).sorted().toList();
                }
            default:
                if (store instanceof KeyValueStore<?, ?>) {
                    return keyValue();
                }
                return store instanceof VersionedKeyValueStore<?, ?> ? versioned()
                        : store instanceof SessionStore<?, ?> ? session() : window();
        }
    }

    @SuppressWarnings("unchecked")
    private Object keyValue() {
        KeyValueStore<byte[], byte[]> pairs = (KeyValueStore<byte[], byte[]>) store;
        switch (operation.get("op").asText()) {
            case "put":
                pairs.put(bytes("key"), bytes("value"));
                return null;
            case "put_if_absent":
                return hex(pairs.putIfAbsent(bytes("key"), bytes("value")));
            case "delete":
                return hex(pairs.delete(bytes("key")));
            case "get":
                return hex(pairs.get(bytes("key")));
            case "range":
                return pairs(pairs.range(bytes("low"), bytes("high")));
            case "reverse_range":
                return pairs(pairs.reverseRange(bytes("low"), bytes("high")));
            case "all":
                return pairs(pairs.all());
            case "reverse_all":
                return pairs(pairs.reverseAll());
            default:
                return pairs(pairs.prefixScan(bytes("prefix"), new ByteArraySerializer()));
        }
    }

    @SuppressWarnings("unchecked")
    private Object window() {
        WindowStore<byte[], byte[]> windows = (WindowStore<byte[], byte[]>) store;
        switch (operation.get("op").asText()) {
            case "put":
                windows.put(bytes("key"), bytes("value"), number("time"));
                return null;
            case "fetch_one":
                return hex(windows.fetch(bytes("key"), number("time")));
            case "fetch":
                return times(windows.fetch(bytes("key"), time("from"), time("to")));
            case "backward_fetch":
                return times(windows.backwardFetch(bytes("key"), time("from"), time("to")));
            case "fetch_range":
                return windowed(windows.fetch(bytes("low"), bytes("high"), time("from"), time("to")), false);
            case "backward_fetch_range":
                return windowed(windows.backwardFetch(bytes("low"), bytes("high"), time("from"), time("to")), false);
            case "fetch_all":
                return windowed(windows.fetchAll(time("from"), time("to")), false);
            case "backward_fetch_all":
                return windowed(windows.backwardFetchAll(time("from"), time("to")), false);
            case "all":
                return windowed(windows.all(), false);
            default:
                return windowed(windows.backwardAll(), false);
        }
    }

    @SuppressWarnings("unchecked")
    private Object session() {
        SessionStore<byte[], byte[]> sessions = (SessionStore<byte[], byte[]>) store;
        switch (operation.get("op").asText()) {
            case "put":
                sessions.put(session(bytes("key")), bytes("value"));
                return null;
            case "remove":
                sessions.remove(session(bytes("key")));
                return null;
            case "fetch_session":
                return hex(sessions.fetchSession(bytes("key"), time("start"), time("end")));
            case "find_sessions":
                return windowed(sessions.findSessions(bytes("key"), time("from"), time("to")), true);
            case "backward_find_sessions":
                return windowed(sessions.backwardFindSessions(bytes("key"), time("from"), time("to")), true);
            case "find_sessions_range":
                return windowed(sessions.findSessions(bytes("low"), bytes("high"), time("from"), time("to")), true);
            case "backward_find_sessions_range":
                return windowed(
                        sessions.backwardFindSessions(bytes("low"), bytes("high"), time("from"), time("to")), true);
            case "fetch":
                return windowed(sessions.fetch(bytes("key")), true);
            case "backward_fetch":
                return windowed(sessions.backwardFetch(bytes("key")), true);
            case "fetch_range":
                return windowed(sessions.fetch(bytes("low"), bytes("high")), true);
            default:
                return windowed(sessions.backwardFetch(bytes("low"), bytes("high")), true);
        }
    }

    @SuppressWarnings("unchecked")
    private Object versioned() {
        VersionedKeyValueStore<byte[], byte[]> versions = (VersionedKeyValueStore<byte[], byte[]>) store;
        switch (operation.get("op").asText()) {
            case "put":
                return versions.put(bytes("key"), bytes("value"), number("time"));
            case "delete":
                return version(versions.delete(bytes("key"), number("time")));
            case "get":
                return version(versions.get(bytes("key")));
            case "get_as_of":
                return version(versions.get(bytes("key"), number("time")));
            default:
                MultiVersionedKeyQuery<byte[], byte[]> query =
                        MultiVersionedKeyQuery.<byte[], byte[]>withKey(bytes("key")).withAscendingTimestamps();
                query = query.fromTime(time("from")).toTime(time("to"));
                QueryResult<VersionedRecordIterator<byte[]>> result =
                        versions.query(query, PositionBound.unbounded(), new QueryConfig(false));
                List<Object> found = new ArrayList<>();
                try (VersionedRecordIterator<byte[]> iterator = result.getResult()) {
                    while (iterator.hasNext()) {
                        VersionedRecord<byte[]> record = iterator.next();
                        found.add(Arrays.asList(hex(record.value()), record.timestamp(), record.validTo().orElse(null)));
                    }
                }
                return found;
        }
    }

    private Windowed<byte[]> session(byte[] key) {
        return new Windowed<>(key, new SessionWindow(number("start"), number("end")));
    }

    private long number(String name) {
        return operation.get(name).asLong();
    }

    private Instant time(String name) {
        return Instant.ofEpochMilli(number(name));
    }

    private byte[] bytes(String name) {
        JsonNode text = operation.get(name);
        return text == null || text.isNull() ? null : HEX.parseHex(text.asText());
    }

    private static String hex(byte[] data) {
        return data == null ? null : HEX.formatHex(data);
    }

    private static Object version(VersionedRecord<byte[]> record) {
        return record == null ? null : Arrays.asList(hex(record.value()), record.timestamp());
    }

    private static List<Object> pairs(KeyValueIterator<byte[], byte[]> iterator) {
        List<Object> rows = new ArrayList<>();
        try (iterator) {
            iterator.forEachRemaining(row -> rows.add(Arrays.asList(hex(row.key), hex(row.value))));
        }
        return rows;
    }

    private static List<Object> times(KeyValueIterator<Long, byte[]> iterator) {
        List<Object> rows = new ArrayList<>();
        try (iterator) {
            iterator.forEachRemaining(row -> rows.add(Arrays.asList(row.key, hex(row.value))));
        }
        return rows;
    }

    private static List<Object> windowed(KeyValueIterator<Windowed<byte[]>, byte[]> iterator, boolean withEnd) {
        List<Object> rows = new ArrayList<>();
        try (iterator) {
            iterator.forEachRemaining(row -> {
                List<Object> cells = new ArrayList<>(List.of(hex(row.key.key()), row.key.window().start()));
                if (withEnd) {
                    cells.add(row.key.window().end());
                }
                cells.add(hex(row.value));
                rows.add(cells);
            });
        }
        return rows;
    }
}
