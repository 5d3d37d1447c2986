import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.state.internals.WrappedStateStore;
import org.rocksdb.ColumnFamilyHandle;
import org.rocksdb.FlushOptions;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;

/** Reaches what Kafka keeps to itself: global stores, the stream time that a store has observed, and its databases. */
final class Inside {
    private static final String STORES = "org.apache.kafka.streams.state.internals.";
    private static final List<String> BACKGROUND = List.of(
            "mem-table-flush-pending", "compaction-pending", "num-running-flushes", "num-running-compactions");

    static <T> T field(Object owner, String name, Class<T> type) {
        for (Class<?> of = owner.getClass(); of != null; of = of.getSuperclass()) {
            try {
                Field field = of.getDeclaredField(name);
                field.setAccessible(true);
                return type.cast(field.get(owner));
            } catch (NoSuchFieldException error) {
                continue;
            } catch (IllegalAccessException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalArgumentException("no field " + name + " in " + owner.getClass());
    }

    static Object call(Object owner, String name) throws ReflectiveOperationException {
        for (Class<?> of = owner.getClass(); of != null; of = of.getSuperclass()) {
            for (Method method : of.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return method.invoke(owner);
                }
            }
        }
        throw new IllegalArgumentException("no method " + name + " in " + owner.getClass());
    }

    static StateStore globalStore(KafkaStreams streams, String name) {
        Object provider = field(field(streams, "queryableStoreProvider", Object.class), "globalStoreProvider", Object.class);
        return (StateStore) field(provider, "globalStateStores", Map.class).get(name);
    }

    /** Stores of each task. */
    @SuppressWarnings("unchecked")
    static Map<TaskId, Map<String, StateStore>> stores(KafkaStreams streams) throws ReflectiveOperationException {
        Map<TaskId, Map<String, StateStore>> found = new TreeMap<>();
        for (Object thread : field(streams, "threads", List.class)) {
            Map<TaskId, Object> tasks = (Map<TaskId, Object>) call(field(thread, "taskManager", Object.class), "allTasks");
            for (Map.Entry<TaskId, Object> task : tasks.entrySet()) {
                Object manager = field(task.getValue(), "stateMgr", Object.class);
                Map<String, StateStore> stores = new TreeMap<>();
                for (String name : (Iterable<String>) field(manager, "stores", Map.class).keySet()) {
                    stores.put(name, field(field(manager, "stores", Map.class).get(name), "stateStore", StateStore.class));
                }
                found.put(task.getKey(), stores);
            }
        }
        return found;
    }

    /** Stream time of a store, null where its kind has none. */
    static Long observedStreamTime(StateStore store) {
        Object inner = store;
        while (inner != null) {
            try {
                return field(inner, "observedStreamTime", Long.class);
            } catch (IllegalArgumentException error) {
                inner = wrapped(inner);
            }
        }
        return null;
    }

    /** The store that another one wraps; Kafka's wrappers have it under several names. */
    private static Object wrapped(Object store) {
        for (String name : List.of("inner", "wrapped", "store")) {
            try {
                return field(store, name, Object.class);
            } catch (IllegalArgumentException error) {
                continue;
            }
        }
        return store instanceof WrappedStateStore<?, ?, ?> wrapper ? wrapper.wrapped() : null;
    }

    /** Write what the memtables of a store hold to table files; a commit does not since Kafka 4.3. */
    static void flush(Object store) throws ReflectiveOperationException, RocksDBException {
        for (RocksDB database : databases(store)) {
            try (FlushOptions options = new FlushOptions().setWaitForFlush(true)) {
                database.flush(options, families(database));
            }
        }
    }

    /** True while RocksDB flushes or compacts a store, or is about to. */
    static boolean busy(Object store) throws ReflectiveOperationException, RocksDBException {
        for (RocksDB database : databases(store)) {
            for (ColumnFamilyHandle family : families(database)) {
                for (String property : BACKGROUND) {
                    if (database.getLongProperty(family, "rocksdb." + property) != 0) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    @SuppressWarnings("unchecked")
    private static List<ColumnFamilyHandle> families(RocksDB database) {
        List<ColumnFamilyHandle> families = field(database, "ownedColumnFamilyHandles", List.class);
        // A closed family in the list would crash the process.
        return families.stream().filter(ColumnFamilyHandle::isOwningHandle).toList();
    }

    private static Set<RocksDB> databases(Object store) throws ReflectiveOperationException {
        Set<RocksDB> databases = Collections.newSetFromMap(new IdentityHashMap<>());
        collect(store, databases, Collections.newSetFromMap(new IdentityHashMap<>()));
        return databases;
    }

    private static void collect(Object from, Set<RocksDB> databases, Set<Object> seen)
            throws ReflectiveOperationException {
        if (from instanceof RocksDB database) {
            databases.add(database);
        } else if (from instanceof Map<?, ?> map) {
            for (Object value : map.values()) {
                collect(value, databases, seen);
            }
        } else if (from != null && from.getClass().getName().startsWith(STORES) && seen.add(from)) {
            for (Class<?> of = from.getClass(); of != null && of != Object.class; of = of.getSuperclass()) {
                for (Field field : of.getDeclaredFields()) {
                    field.setAccessible(true);
                    collect(field.get(from), databases, seen);
                }
            }
        }
    }
}
