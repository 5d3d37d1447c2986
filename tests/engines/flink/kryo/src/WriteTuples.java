import java.util.*;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

import java.io.ByteArrayOutputStream;

/**
 * Writes tuples of Flink by its KryoSerializer, one line of JSON each: the class of the serializer, its snapshot or
 * bytes, and the value. A tuple is {"tuple": [its fields]}, a Holder {"fields": [its fields]}. Kryo 2 keeps the types of
 * a field's tuple for all tuples with as many fields that it writes later, so a Holder has no others.
 */
public class WriteTuples {
    public static class Holder {
        public Object any;
        public Tuple2<String, Integer> pair;
        public Tuple3<Long, List<String>, Double> three;
    }

    private static final Random CHANCE = new Random(5);

    static String quoted(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        if (value instanceof Tuple) {
            StringJoiner joined = new StringJoiner(", ", "{\"tuple\": [", "]}");
            Tuple tuple = (Tuple) value;
            for (int i = 0; i < tuple.getArity(); i++) joined.add(quoted(tuple.getField(i)));
            return joined.toString();
        }
        if (value instanceof Collection) {
            StringJoiner joined = new StringJoiner(", ", "[", "]");
            for (Object each : (Collection<?>) value) joined.add(quoted(each));
            return joined.toString();
        }
        if (value instanceof Map) {
            StringJoiner joined = new StringJoiner(", ", "{", "}");
            ((Map<?, ?>) value).forEach((key, each) -> joined.add(quoted(key) + ": " + quoted(each)));
            return joined.toString();
        }
        if (value instanceof Holder) {
            Holder held = (Holder) value;
            return "{\"fields\": " + quoted(Arrays.asList(held.any, held.pair, held.three)) + "}";
        }
        return "\"" + value + "\"";
    }

    static String text() {
        return "text " + CHANCE.nextInt(1000);
    }

    static Object leaf() {
        switch (CHANCE.nextInt(6)) {
            case 0: return null;
            case 1: return CHANCE.nextLong();
            case 2: return CHANCE.nextInt(100);
            case 3: return CHANCE.nextInt(10) / 2.0;
            default: return text();
        }
    }

    static Tuple tuple(int depth) throws Exception {
        int[] arities = {1, 2, 2, 3, 5, 11, 25};
        Tuple made = Tuple.getTupleClass(arities[CHANCE.nextInt(arities.length)]).getDeclaredConstructor().newInstance();
        for (int i = 0; i < made.getArity(); i++) made.setField(depth > 0 && i == 1 ? tuple(depth - 1) : leaf(), i);
        return made;
    }

    static Holder holder() throws Exception {
        Holder made = new Holder();
        made.any = CHANCE.nextBoolean() ? Tuple1.of(leaf()) : leaf();
        made.pair = CHANCE.nextInt(4) == 0 ? null : Tuple2.of(text(), CHANCE.nextInt(50));
        made.three = Tuple3.of(7L, new ArrayList<>(List.of(text())), 1.5);
        return made;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void write(Class type, List<Object> values) throws Exception {
        // Values of one column are written one after another by one serializer.
        KryoSerializer<Object> serializer = new KryoSerializer<>(type, new SerializerConfigImpl());
        ByteArrayOutputStream octets = new ByteArrayOutputStream();
        TypeSerializerSnapshot.writeVersionedSnapshot(
                new DataOutputViewStreamWrapper(octets), serializer.snapshotConfiguration());
        System.out.println("{\"class\": \"" + type.getName() + "\", \"snapshot\": \"" + hex(octets) + "\"}");
        for (Object value : values) {
            octets.reset();
            serializer.serialize(value, new DataOutputViewStreamWrapper(octets));
            System.out.println("{\"class\": \"" + type.getName() + "\", \"bytes\": \"" + hex(octets) + "\", \"value\": "
                    + quoted(value) + "}");
        }
    }

    static String hex(ByteArrayOutputStream octets) {
        StringBuilder found = new StringBuilder();
        for (byte each : octets.toByteArray()) found.append(String.format("%02x", each));
        return found.toString();
    }

    public static void main(String[] arguments) throws Exception {
        List<Object> values = new ArrayList<>();
        for (int i = 0; i < 40; i++) values.add(tuple(2));
        for (int i = 0; i < 10; i++) {
            Tuple same = tuple(1);
            values.add(new ArrayList<>(Arrays.asList(same, tuple(0), null, same)));
            values.add(new TreeMap<>(Map.of("a", tuple(0), "b", tuple(1))));
        }
        write(Object.class, values);
        values.clear();
        for (int i = 0; i < 40; i++) values.add(holder());
        write(Holder.class, values);
        values.clear();
        for (int i = 0; i < 40; i++) values.add(Tuple2.of(text(), CHANCE.nextLong()));
        write(Tuple2.class, values);
    }
}
