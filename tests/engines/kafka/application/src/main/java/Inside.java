import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/** Looks at what Kafka keeps to itself: positions of global stores and the stream time that a store has observed. */
final class Inside {
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
}
