import java.io.DataInputStream;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.typeutils.CompositeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.api.common.typeutils.base.MapSerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.cep.nfa.ComputationState;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.sharedbuffer.EventId;
import org.apache.flink.cep.nfa.sharedbuffer.Lockable;
import org.apache.flink.cep.nfa.sharedbuffer.NodeId;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferEdge;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNode;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.runtime.checkpoint.Checkpoints;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.CompositeKeySerializationUtils;
import org.apache.flink.runtime.state.KeyGroupsSavepointStateHandle;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedBackendSerializationProxy;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.StateSerializerProvider;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot.BackendStateType;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot.CommonOptionsKeys;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot.CommonSerializerKeys;
import org.apache.flink.runtime.state.restore.FullSnapshotRestoreOperation;
import org.apache.flink.runtime.state.restore.KeyGroup;
import org.apache.flink.runtime.state.restore.KeyGroupEntry;
import org.apache.flink.runtime.state.restore.SavepointRestoreResult;
import org.apache.flink.runtime.state.restore.ThrowingIterator;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.apache.flink.streaming.runtime.streamrecord.StreamElement;
import org.apache.flink.table.api.dataview.ListView;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RawValueData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.RowDataSerializer;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RawType;

/**
 * Prints the keyed state and the timers of canonical savepoints, as Flink's own serializers read it, in the form of the truth of jobs.
 *
 * Usage: DumpSavepoint FOLDER. Each savepoint in the folder of a run gets a file beside it, with ".jsonl" at its end.
 * Views in accumulators are left out; states of which a part has no text here have no lines.
 */
public final class DumpSavepoint {
    private static final ClassLoader LOADER = DumpSavepoint.class.getClassLoader();
    /** What stands for a view, and for a row of views alone. */
    private static final Object ABSENT = new Object();

    private final Map<String, List<Object[]>> entries = new TreeMap<>();
    private final List<String> lines = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        for (java.io.File each : new java.io.File(arguments[0]).listFiles())
            if (each.getName().startsWith("savepoint-") && each.isDirectory()) new DumpSavepoint().dump(each.toPath());
    }

    private void dump(Path folder) throws Exception {
        CheckpointMetadata metadata;
        try (DataInputStream in = new DataInputStream(Files.newInputStream(folder.resolve("_metadata")))) {
            metadata = Checkpoints.loadCheckpointMetadata(in, LOADER, folder.toUri().toString());
        }
        for (OperatorState operator : metadata.getOperatorStates())
            for (OperatorSubtaskState subtask : operator.getStates())
                for (KeyedStateHandle handle : subtask.getManagedKeyedState())
                    if (handle instanceof KeyGroupsSavepointStateHandle) states(operator, (KeyGroupsStateHandle) handle);
                    else return;
        entries.forEach((place, found) -> {
            String[] parts = place.split("\\|", 4);
            List<Object> pairs = new ArrayList<>();
            found.forEach(each -> pairs.add(Arrays.asList(each)));
            line(parts[0], parts[1], "map", parts[2], parts[3], text(pairs));
        });
        Collections.sort(lines);
        Files.write(Paths.get(folder + ".jsonl"), lines);
    }

    private void line(String operator, String state, String kind, String key, String namespace, String value) {
        lines.add("{\"operator\":\"" + operator + "\",\"state\":" + JsonText.quoted(state) + ",\"kind\":\"" + kind + "\",\"key\":"
            + key + ",\"namespace\":" + namespace + ",\"value\":" + value + "}");
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void states(OperatorState operator, KeyGroupsStateHandle handle) throws Exception {
        KeyedBackendSerializationProxy<?> head = new KeyedBackendSerializationProxy<>(LOADER);
        try (org.apache.flink.core.fs.FSDataInputStream in = handle.openInputStream()) {
            head.read(new DataInputViewStreamWrapper(in));
        }
        TypeSerializer keys = head.getKeySerializerSnapshot().restoreSerializer();
        FullSnapshotRestoreOperation<?> restore = new FullSnapshotRestoreOperation(handle.getKeyGroupRange(), LOADER,
            Collections.singletonList(handle), StateSerializerProvider.fromNewRegisteredSerializer(keys));
        int prefix = CompositeKeySerializationUtils.computeRequiredBytesInKeyGroupPrefix(operator.getMaxParallelism());
        try (ThrowingIterator<SavepointRestoreResult> results = restore.restore()) {
            while (results.hasNext()) {
                SavepointRestoreResult result = results.next();
                ThrowingIterator<KeyGroup> groups = result.getRestoredKeyGroups();
                while (groups.hasNext()) {
                    ThrowingIterator<KeyGroupEntry> found = groups.next().getKeyGroupEntries();
                    while (found.hasNext()) {
                        KeyGroupEntry entry = found.next();
                        StateMetaInfoSnapshot state = result.getStateMetaInfoSnapshots().get(entry.getKvStateId());
                        String id = operator.getOperatorID().toHexString();
                        if (state.getBackendStateType() == BackendStateType.KEY_VALUE) entry(id, state, entry, keys, prefix);
                        else timer(id, state, entry, prefix);
                    }
                }
            }
        }
    }

    private void timer(String operator, StateMetaInfoSnapshot state, KeyGroupEntry entry, int prefix) throws Exception {
        TimerSerializer<?, ?> timers = (TimerSerializer<?, ?>) state.getTypeSerializerSnapshot(CommonSerializerKeys.VALUE_SERIALIZER).restoreSerializer();
        DataInputDeserializer in = new DataInputDeserializer(entry.getKey());
        CompositeKeySerializationUtils.readKeyGroup(prefix, in);
        TimerHeapInternalTimer<?, ?> timer = timers.deserialize(in);
        String key = text(shown((TypeSerializer<?>) field(timers, "keySerializer"), timer.getKey()));
        line(operator, state.getName(), "timer", key, namespace((TypeSerializer<?>) field(timers, "namespaceSerializer"), timer.getNamespace()), Long.toString(timer.getTimestamp()));
    }

    private static String namespace(TypeSerializer<?> serializer, Object space) throws Exception {
        return space.getClass().getSimpleName().equals("VoidNamespace") ? "null" : text(shown(serializer, space));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private void entry(String operator, StateMetaInfoSnapshot state, KeyGroupEntry entry, TypeSerializer keys, int prefix) throws Exception {
        TypeSerializer spaces = state.getTypeSerializerSnapshot(CommonSerializerKeys.NAMESPACE_SERIALIZER).restoreSerializer();
        TypeSerializer values = state.getTypeSerializerSnapshot(CommonSerializerKeys.VALUE_SERIALIZER).restoreSerializer();
        boolean ambiguous = CompositeKeySerializationUtils.isAmbiguousKeyPossible(keys, spaces);
        DataInputDeserializer in = new DataInputDeserializer(entry.getKey());
        CompositeKeySerializationUtils.readKeyGroup(prefix, in);
        String key = text(shown(keys, CompositeKeySerializationUtils.readKey(keys, in, ambiguous)));
        String namespace = namespace(spaces, CompositeKeySerializationUtils.readNamespace(spaces, in, ambiguous));
        DataInputDeserializer value = new DataInputDeserializer(entry.getValue());
        String kind = state.getOption(CommonOptionsKeys.KEYED_STATE_TYPE).toLowerCase();
        if (kind.equals("map")) {
            MapSerializer map = (MapSerializer) values;
            Object mapKey = shown(map.getKeySerializer(), map.getKeySerializer().deserialize(in));
            Object item = value.readBoolean() ? null : shown(map.getValueSerializer(), map.getValueSerializer().deserialize(value));
            String place = String.join("|", operator, state.getName(), key, namespace);
            entries.computeIfAbsent(place, each -> new ArrayList<>()).add(new Object[] {mapKey, item});
            return;
        }
        Object found;
        if (kind.equals("list")) {
            TypeSerializer element = ((ListSerializer) values).getElementSerializer();
            List<Object> elements = new ArrayList<>();
            while (value.available() > 0) {
                elements.add(shown(element, element.deserialize(value)));
                if (value.available() > 0) value.readByte();
            }
            found = elements;
        } else found = shown(values, values.deserialize(value));
        line(operator, state.getName(), kind, key, namespace, text(found));
    }

    /** Text of a value that {@link #shown} made, where views at its top are null. */
    private static String text(Object value) {
        return JsonText.of(value == ABSENT ? null : value);
    }

    /** A value without SQL's own classes. */
    private static Object shown(TypeSerializer<?> serializer, Object value) throws Exception {
        if (value == null) return null;
        if (serializer instanceof RowDataSerializer) return row((RowData) value, (LogicalType[]) field(serializer, "types"));
        if (serializer instanceof ListSerializer) {
            List<Object> found = new ArrayList<>();
            for (Object each : (List<?>) value) found.add(shown(((ListSerializer<?>) serializer).getElementSerializer(), each));
            return found;
        }
        if (serializer instanceof TupleSerializer) {
            List<Object> found = new ArrayList<>();
            TypeSerializer<?>[] fields = ((TupleSerializer<?>) serializer).getFieldSerializers();
            for (int i = 0; i < fields.length; i++) found.add(shown(fields[i], ((Tuple) value).getField(i)));
            return found;
        }
        if (value instanceof StreamElement) return element((StreamElement) value, (TypeSerializer<?>) field(serializer, "typeSerializer"));
        if (value instanceof NFAState) return Arrays.asList(matches(((NFAState) value).getPartialMatches()), matches(((NFAState) value).getCompletedMatches()));
        if (value instanceof Lockable) return Arrays.asList(field(value, "refCounter"), shown((TypeSerializer<?>) field(serializer, "elementSerializer"), ((Lockable<?>) value).getElement()));
        if (value instanceof EventId || value instanceof NodeId) return pattern(value);
        if (value instanceof SharedBufferNode) {
            List<Object> edges = new ArrayList<>();
            for (Lockable<SharedBufferEdge> each : ((SharedBufferNode) value).getEdges())
                edges.add(Arrays.asList(field(each, "refCounter"), Arrays.asList(pattern(field(each.getElement(), "target")), pattern(field(each.getElement(), "deweyNumber")))));
            return edges;
        }
        if (value instanceof TtlValue) return shown(((TypeSerializer<?>[]) field(serializer, "fieldSerializers"))[1], ((TtlValue<?>) value).getUserValue());
        String name = serializer.getClass().getSimpleName();
        if (serializer instanceof CompositeSerializer) { // parts of a list of changes
            List<Object> found = new ArrayList<>();
            TypeSerializer<?>[] fields = (TypeSerializer<?>[]) field(serializer, "fieldSerializers");
            java.lang.reflect.Method get = CompositeSerializer.class.getDeclaredMethod("getField", Object.class, int.class);
            get.setAccessible(true);
            for (int i = 0; i < fields.length; i++) found.add(shown(fields[i], get.invoke(serializer, value, i)));
            return found;
        }
        if (name.equals("NullableSerializer")) return shown((TypeSerializer<?>) field(serializer, "originalSerializer"), value);
        if (name.equals("RowDataKeySerializer")) return shown((TypeSerializer<?>) field(serializer, "serializer"), field(value, "rowData"));
        if (name.equals("ListViewSerializer")) return shown((TypeSerializer<?>) field(serializer, "listSerializer"), ((ListView<?>) value).getList());
        if (name.equals("RawValueDataSerializer")) return shown((TypeSerializer<?>) field(serializer, "serializer"), object(value, field(serializer, "serializer")));
        if (name.equals("LinkedListSerializer")) {
            List<Object> found = new ArrayList<>();
            for (Object each : (Iterable<?>) value) found.add(shown((TypeSerializer<?>) field(serializer, "elementSerializer"), each));
            return found;
        }
        if (value instanceof Map && (serializer instanceof MapSerializer || name.equals("SortedMapSerializer"))) {
            List<Object[]> pairs = new ArrayList<>();
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet())
                pairs.add(new Object[] {shown((TypeSerializer<?>) field(serializer, "keySerializer"), each.getKey()), shown((TypeSerializer<?>) field(serializer, "valueSerializer"), each.getValue())});
            return new Pairs(pairs);
        }
        if (name.equals("ExternalSerializer")) {
            TypeSerializer<?> inner = (TypeSerializer<?>) field(serializer, "internalSerializer");
            Object converter = field(serializer, "converter");
            java.lang.reflect.Method convert = converter.getClass().getMethod("toInternalOrNull", Object.class);
            convert.setAccessible(true);
            return shown(inner, (boolean) field(serializer, "isInternalInput") ? value : convert.invoke(converter, value));
        }
        if (name.equals("ArrayDataSerializer")) return array((ArrayData) value, (LogicalType) field(serializer, "eleType"));
        if (name.equals("MapDataSerializer")) return map((MapData) value, (LogicalType) field(serializer, "keyType"), (LogicalType) field(serializer, "valueType"));
        if (value.getClass().getSimpleName().equals("TimeWindow")) {
            return new Window((long) value.getClass().getMethod("getStart").invoke(value), (long) value.getClass().getMethod("getEnd").invoke(value));
        }
        if (name.equals("TimestampDataSerializer")) return ((TimestampData) value).toLocalDateTime();
        return leaf(value);
    }

    @SuppressWarnings("unchecked")
    private static Object object(Object raw, Object serializer) {
        return ((RawValueData<Object>) raw).toObject((TypeSerializer<Object>) serializer);
    }

    /** Entries of a map whose keys may not have equals; {@link JsonText} writes its fields. */
    public static final class Pairs {
        public final List<Object> $map = new ArrayList<>();

        Pairs(List<Object[]> pairs) {
            for (Object[] each : pairs) $map.add(Arrays.asList(each));
        }
    }

    /** A record of a stream with its time, where it has one; the time of a watermark. */
    private static Object element(StreamElement element, TypeSerializer<?> serializer) throws Exception {
        if (!element.isRecord()) return element.asWatermark().getTimestamp();
        Object record = shown(serializer, element.asRecord().getValue());
        return element.asRecord().hasTimestamp() ? Arrays.asList(element.asRecord().getTimestamp(), record) : record;
    }

    /** Matches of a pattern, in the order of their texts. */
    private static Object matches(Iterable<ComputationState> states) throws Exception {
        TreeMap<String, Object> found = new TreeMap<>();
        int count = 0;
        for (ComputationState each : states) {
            Object shown = Arrays.asList(each.getCurrentStateName(), pattern(each.getPreviousBufferEntry()), pattern(each.getVersion()),
                each.getStartTimestamp(), each.getPreviousTimestamp(), pattern(each.getStartEventID()));
            found.put(text(shown) + "|" + count++, shown);
        }
        return new ArrayList<>(found.values());
    }

    private static Object pattern(Object part) throws Exception {
        if (part == null) return null;
        if (part instanceof EventId) return Arrays.asList(((EventId) part).getId(), ((EventId) part).getTimestamp());
        if (part instanceof NodeId) return Arrays.asList(pattern(((NodeId) part).getEventId()), ((NodeId) part).getPageName());
        return field(part, "deweyNumber");
    }

    /** The bounds of a window. */
    public static final class Window {
        public final long start;
        public final long end;

        Window(long start, long end) {
            this.start = start;
            this.end = end;
        }
    }

    private static Object leaf(Object value) {
        if (value instanceof StringData) return value.toString();
        if (value instanceof DecimalData) return ((DecimalData) value).toBigDecimal().toPlainString();
        return value;
    }

    private static Object row(RowData row, LogicalType[] types) throws Exception {
        List<Object> found = new ArrayList<>();
        boolean absent = types.length > 0;
        for (int i = 0; i < types.length; i++) {
            Object value = row.isNullAt(i) ? null : RowData.createFieldGetter(types[i], i).getFieldOrNull(row); // a PROCTIME that may not be null is
            Object each = isView(types[i]) ? ABSENT : internal(value, types[i]);
            absent &= each == ABSENT;
            if (each != ABSENT) found.add(each);
        }
        return absent ? ABSENT : found;
    }

    private static boolean isView(LogicalType type) {
        switch (type.getTypeRoot()) {
            case RAW: return type instanceof RawType && ((RawType<?>) type).getTypeSerializer().getClass().getSimpleName().equals("NullSerializer");
            case ROW:
            case STRUCTURED_TYPE: return !type.getChildren().isEmpty() && type.getChildren().stream().allMatch(DumpSavepoint::isView);
            default: return false;
        }
    }

    private static Object internal(Object value, LogicalType type) throws Exception {
        if (value == null) return null;
        switch (type.getTypeRoot()) {
            case ROW:
            case STRUCTURED_TYPE: return row((RowData) value, type.getChildren().toArray(new LogicalType[0]));
            case ARRAY: return array((ArrayData) value, type.getChildren().get(0));
            case MAP: return map((MapData) value, type.getChildren().get(0), type.getChildren().get(1));
            case MULTISET: return map((MapData) value, type.getChildren().get(0), new IntType());
            case DATE: return LocalDate.ofEpochDay((int) value);
            case TIME_WITHOUT_TIME_ZONE: return LocalTime.ofNanoOfDay((int) value * 1_000_000L);
            case TIMESTAMP_WITHOUT_TIME_ZONE: return ((TimestampData) value).toLocalDateTime();
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE: return ((TimestampData) value).toInstant();
            case RAW: return raw((RawValueData<?>) value, ((RawType<?>) type).getTypeSerializer());
            default: return value.getClass().getSimpleName().equals("BinaryVariant") ? value.toString() : leaf(value);
        }
    }

    private static Object raw(RawValueData<?> value, TypeSerializer<?> serializer) throws Exception {
        return shown(serializer, object(value, serializer));
    }

    private static Object array(ArrayData array, LogicalType type) throws Exception {
        List<Object> found = new ArrayList<>();
        ArrayData.ElementGetter getter = ArrayData.createElementGetter(type);
        for (int i = 0; i < array.size(); i++) found.add(internal(getter.getElementOrNull(array, i), type));
        return found;
    }

    private static Object map(MapData map, LogicalType key, LogicalType value) throws Exception {
        List<?> keys = (List<?>) array(map.keyArray(), key), values = (List<?>) array(map.valueArray(), value);
        List<Object[]> pairs = new ArrayList<>();
        for (int i = 0; i < keys.size(); i++) pairs.add(new Object[] {keys.get(i), values.get(i)});
        return new Pairs(pairs);
    }

    private static Object field(Object owner, String name) throws Exception {
        for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass())
            for (Field each : type.getDeclaredFields())
                if (each.getName().equals(name)) {
                    each.setAccessible(true);
                    return each.get(owner);
                }
        throw new IllegalStateException(owner.getClass() + " has no " + name);
    }
}
