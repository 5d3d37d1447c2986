import java.io.ByteArrayInputStream;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.avro.generic.IndexedRecord;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshotSerializationUtil;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.cep.nfa.ComputationState;
import org.apache.flink.cep.nfa.DeweyNumber;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.sharedbuffer.EventId;
import org.apache.flink.cep.nfa.sharedbuffer.Lockable;
import org.apache.flink.cep.nfa.sharedbuffer.NodeId;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferEdge;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNode;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;

/**
 * Prints what Flink's own serializers make of bytes.
 *
 * <p>In the folder NAME of each argument's folder, `serializer-snapshot` has a snapshot and `test-data` values, one after the other.
 * A line is {"name", "values"}, or {"name", "error"} where Flink itself does not restore the serializer. Values have the shape of the
 * columns: an object for what has fields, a list for collections and arrays, a list of pairs for maps, epoch milliseconds for times.
 */
public final class ReadSerialized {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        List<Path> folders;
        try (Stream<Path> found = Files.list(Path.of(arguments[0]))) {
            folders = found.sorted().collect(Collectors.toList());
        }
        for (Path folder : folders) {
            String name = quoted(folder.getFileName().toString());
            try {
                out.println("{\"name\": " + name + ", \"values\": " + values(folder) + "}");
            } catch (Throwable error) {
                out.println("{\"name\": " + name + ", \"error\": " + quoted(String.valueOf(error)) + "}");
            }
        }
    }

    private static String values(Path folder) throws Exception {
        ClassLoader loader = ReadSerialized.class.getClassLoader();
        byte[] data = Files.readAllBytes(folder.resolve("test-data"));
        byte[] written = Files.readAllBytes(folder.resolve("serializer-snapshot"));
        TypeSerializerSnapshot<?> snapshot = TypeSerializerSnapshotSerializationUtil.readSerializerSnapshot(
                new DataInputViewStreamWrapper(new ByteArrayInputStream(written)), loader);
        TypeSerializer<?> serializer = snapshot.restoreSerializer();
        ByteArrayInputStream input = new ByteArrayInputStream(data);
        DataInputViewStreamWrapper source = new DataInputViewStreamWrapper(input);
        List<String> found = new ArrayList<>();
        do {
            found.add(shown(serializer.deserialize(source)));
        } while (input.available() > 0);
        return found.toString();
    }

    private static String shown(Object value) throws Exception {
        if (value == null) {
            return "null";
        }
        if (value instanceof Boolean || value instanceof Byte || value instanceof Short || value instanceof Integer || value instanceof Long) {
            return value.toString();
        }
        if (value instanceof Double || value instanceof Float) {
            return value.toString();
        }
        if (value instanceof BigDecimal) {
            return quoted(((BigDecimal) value).toPlainString());
        }
        if (value instanceof CharSequence || value instanceof Character || value instanceof BigInteger) {
            return quoted(value.toString());
        }
        if (value instanceof Enum) {
            return quoted(((Enum<?>) value).name());
        }
        if (value instanceof Date) {
            return Long.toString(((Date) value).getTime());
        }
        if (value instanceof char[]) {
            return quoted(new String((char[]) value));
        }
        if (value.getClass().isArray()) {
            List<String> parts = new ArrayList<>();
            for (int at = 0; at < Array.getLength(value); at++) {
                parts.add(shown(Array.get(value, at)));
            }
            return parts.toString();
        }
        if (value instanceof Collection) {
            return list((Collection<?>) value);
        }
        if (value instanceof Map) {
            List<String> pairs = new ArrayList<>();
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                pairs.add("[" + shown(each.getKey()) + ", " + shown(each.getValue()) + "]");
            }
            return pairs.toString();
        }
        return withParts(value);
    }

    private static String withParts(Object value) throws Exception {
        if (value instanceof Optional) {
            return shown(((Optional<?>) value).orElse(null));
        }
        if (value instanceof Tuple) {
            Tuple tuple = (Tuple) value;
            Object[] parts = new Object[2 * tuple.getArity()];
            for (int at = 0; at < tuple.getArity(); at++) {
                parts[2 * at] = "f" + at;
                parts[2 * at + 1] = tuple.getField(at);
            }
            return object(parts);
        }
        if (value instanceof Row) {
            Row row = (Row) value;
            Object[] parts = new Object[2 * row.getArity()];
            for (int at = 0; at < row.getArity(); at++) {
                parts[2 * at] = "f" + at;
                parts[2 * at + 1] = row.getField(at);
            }
            return object(parts);
        }
        if (value instanceof Either) {
            Either<?, ?> either = (Either<?, ?>) value;
            return object("left", either.isLeft() ? either.left() : null, "right", either.isRight() ? either.right() : null);
        }
        if (value instanceof IndexedRecord) {
            IndexedRecord record = (IndexedRecord) value;
            Object[] parts = new Object[2 * record.getSchema().getFields().size()];
            for (int at = 0; at < parts.length / 2; at++) {
                parts[2 * at] = record.getSchema().getFields().get(at).name();
                parts[2 * at + 1] = record.get(at);
            }
            return object(parts);
        }
        if (value instanceof TimeWindow) {
            return object("start", ((TimeWindow) value).getStart(), "end", ((TimeWindow) value).getEnd());
        }
        return value.getClass().getName().startsWith("org.apache.flink.cep") ? ofPatterns(value) : byName(value);
    }

    private static String ofPatterns(Object value) throws Exception {
        if (value instanceof NFAState) {
            NFAState state = (NFAState) value;
            return object("partial_matches", state.getPartialMatches(), "completed_matches", state.getCompletedMatches());
        }
        if (value instanceof ComputationState) {
            ComputationState state = (ComputationState) value;
            return object(
                    "state", state.getCurrentStateName(), "previous_node", state.getPreviousBufferEntry(),
                    "version", state.getVersion(), "start_timestamp", state.getStartTimestamp(),
                    "previous_timestamp", state.getPreviousTimestamp(), "start_event", state.getStartEventID());
        }
        if (value instanceof DeweyNumber) {
            String text = value.toString();
            return Arrays.stream(text.split("\\.")).collect(Collectors.toList()).toString();
        }
        if (value instanceof EventId) {
            return object("id", ((EventId) value).getId(), "timestamp", ((EventId) value).getTimestamp());
        }
        if (value instanceof NodeId) {
            return object("event_id", ((NodeId) value).getEventId(), "page", ((NodeId) value).getPageName());
        }
        if (value instanceof SharedBufferEdge) {
            return object("target", call(value, "getTarget"), "version", call(value, "getDeweyNumber"));
        }
        if (value instanceof SharedBufferNode) {
            List<String> edges = new ArrayList<>();
            for (Lockable<SharedBufferEdge> each : ((SharedBufferNode) value).getEdges()) {
                edges.add(object("references", call(each, "getRefCounter"), "edge", each.getElement()));
            }
            return edges.toString();
        }
        if (value instanceof Lockable) {
            return object("references", call(value, "getRefCounter"), "element", ((Lockable<?>) value).getElement());
        }
        return object();
    }

    /** Classes that are private, of one release only, or of Scala: by their names and what they answer. */
    private static String byName(Object value) throws Exception {
        String name = value.getClass().getName();
        String simple = name.substring(Math.max(name.lastIndexOf('.'), name.lastIndexOf('$')) + 1);
        if (name.equals("scala.None$")) {
            return "null";
        }
        if (name.startsWith("org.apache.flink.types.") && simple.endsWith("Value")) {
            return simple.equals("NullValue") ? "null" : shown(call(value, "getValue"));
        }
        switch (simple) {
            case "StreamRecord":
                return "{\"with_timestamp\": " + object("timestamp", call(value, "getTimestamp"), "value", call(value, "getValue"))
                        + ", \"without_timestamp\": null}";
            case "TimerHeapInternalTimer":
                return object("timestamp", call(value, "getTimestamp"), "key", call(value, "getKey"), "namespace", call(value, "getNamespace"));
            case "TtlValue":
                return object("value", call(value, "getUserValue"), "last_access", call(value, "getLastAccessTimestamp"));
            case "TaggedUnion":
                return object("one", call(value, "getOne"), "two", call(value, "getTwo"));
            case "BufferEntry":
                return object("has_been_joined", field(value, "hasBeenJoined"), "element", field(value, "element"));
            case "State":
                return object("pending", call(value, "getPendingTransaction"), "to_commit", call(value, "getPendingCommitTransactions"),
                        "context", call(value, "getContext"));
            case "TransactionHolder":
                return object("transaction", field(value, "handle"), "started_ms", field(value, "transactionStartTime"));
            case "VoidNamespace":
            case "GlobalWindow":
            case "BoxedUnit":
                return "null";
            case "Some":
                return shown(call(value, "get"));
            case "Left":
                return object("left", scalaField(value, "value", "a"), "right", null);
            case "Right":
                return object("left", null, "right", scalaField(value, "value", "b"));
            case "Success":
                return object("success", call(value, "value"), "failure", null);
            case "Failure":
                return object("success", null, "failure", "thrown");
            case "Val":
                return quoted(value.toString());
            default:
                return ofScala(value, name);
        }
    }

    private static String ofScala(Object value, String name) throws Exception {
        if (isA(value, "scala.collection.Iterable")) {
            Object iterator = call(value, "iterator");
            List<String> parts = new ArrayList<>();
            boolean isMap = isA(value, "scala.collection.Map");
            while ((Boolean) call(iterator, "hasNext")) {
                Object each = call(iterator, "next");
                parts.add(isMap ? "[" + shown(call(each, "_1")) + ", " + shown(call(each, "_2")) + "]" : shown(each));
            }
            return parts.toString();
        }
        if (isA(value, "scala.Product")) {
            int arity = (Integer) call(value, "productArity");
            Object[] parts = new Object[2 * arity];
            for (int at = 0; at < arity; at++) {
                Method element = value.getClass().getMethod("productElement", int.class);
                parts[2 * at] = "f" + at;
                parts[2 * at + 1] = element.invoke(value, at);
            }
            return object(parts);
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        for (Class<?> each = value.getClass(); each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                    field.setAccessible(true);
                    fields.put(field.getName(), field.get(value));
                }
            }
        }
        if (fields.isEmpty()) {
            return "null";
        }
        List<Object> parts = new ArrayList<>();
        fields.forEach((key, part) -> parts.addAll(Arrays.asList(key, part)));
        return object(parts.toArray());
    }

    private static boolean isA(Object value, String name) {
        try {
            return Class.forName(name).isInstance(value);
        } catch (ClassNotFoundException absent) {
            return false;
        }
    }

    private static Object scalaField(Object value, String... names) throws Exception {
        for (String name : names) {
            try {
                return call(value, name);
            } catch (NoSuchMethodException next) {
                continue;
            }
        }
        throw new NoSuchMethodException(String.join(", ", names));
    }

    private static Object call(Object value, String name) throws Exception {
        for (Class<?> each = value.getClass(); each != null; each = each.getSuperclass()) {
            for (Method method : each.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return method.invoke(value);
                }
            }
        }
        Method method = value.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(value);
    }

    private static Object field(Object value, String name) throws Exception {
        Field field = value.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(value);
    }

    private static String list(Collection<?> values) throws Exception {
        List<String> parts = new ArrayList<>();
        for (Object each : values) {
            parts.add(shown(each));
        }
        return parts.toString();
    }

    private static String object(Object... parts) throws Exception {
        List<String> fields = new ArrayList<>();
        for (int at = 0; at < parts.length; at += 2) {
            fields.add(quoted((String) parts[at]) + ": " + shown(parts[at + 1]));
        }
        return fields.stream().collect(Collectors.joining(", ", "{", "}"));
    }

    private static String quoted(String text) {
        StringBuilder found = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each < ' ' || each > '~' || each == '"' || each == '\\') {
                found.append(String.format("\\u%04x", (int) each));
            } else {
                found.append(each);
            }
        }
        return found.append('"').toString();
    }
}
