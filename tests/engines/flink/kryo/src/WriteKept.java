import java.io.ByteArrayOutputStream;
import java.util.*;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/**
 * Writes objects of generic classes, and of classes with fields of them, by one serializer after another, in the form of
 * WriteClasses. Kryo 2 keeps the types that a field gave to a generic class, also between values. What it cannot write
 * then is left out. Arguments: how many values.
 */
public class WriteKept {
    static class Box<T> {
        T value;
        int n;
        T other;
    }

    static class Pair<A, B> {
        A a;
        B b;
    }

    static class Item {
        List<Integer> xs;
        Map<String, Integer> m;
        Object any;
        List<Integer> same;
    }

    static class Holder {
        Box<Integer> box;
        String name;
        Object any;
        Object last;
    }

    static class Texts {
        String name;
        Box<String> box;
        List<Box<String>> boxes;
        Object any;
    }

    static class Pairs {
        Pair<Long, String> one;
        Pair<String, Object> two;
        Object any;
        Optional<String> maybe;
    }

    static final Random random = new Random(77);
    static final String[] TEXTS = {"", "a", "\u0001\u0003", "\u0002\u0002\u0003", "caf\u00e9", "kept", "\u0000", new String("a")};

    static boolean none() {
        return random.nextInt(5) == 0;
    }

    static String text() {
        return none() ? null : TEXTS[random.nextInt(TEXTS.length)];
    }

    static Integer number() {
        return none() ? null : random.nextInt(5) - 1;
    }

    static <T> Box<T> box(T value, T other) {
        Box<T> found = new Box<>();
        found.value = value;
        found.n = random.nextInt(4);
        found.other = other;
        return found;
    }

    static <A, B> Pair<A, B> pair(A a, B b) {
        Pair<A, B> found = new Pair<>();
        found.a = a;
        found.b = b;
        return found;
    }

    static Object any(int depth) {
        switch (random.nextInt(depth == 0 ? 6 : 9)) {
            case 0: return box(number(), number());
            case 1: { String shared = text(); return box(shared, shared); }
            case 2: return pair((long) random.nextInt(4), text());
            case 3: return new ArrayList<>(Arrays.asList(number(), number()));
            case 4: return new HashMap<>(Map.of(random.nextInt(3), random.nextInt(3)));
            case 5: return Optional.ofNullable(text());
            case 6: return new ArrayList<>(Arrays.asList(any(0), any(0)));
            case 7: return box(any(0), any(0));
            default: return value();
        }
    }

    static Object value() {
        switch (random.nextInt(4)) {
            case 0: {
                Item found = new Item();
                found.xs = none() ? null : new ArrayList<>(Arrays.asList(number(), number()));
                found.m = none() ? null : new HashMap<>(Map.of("a", random.nextInt(5)));
                found.any = any(0);
                found.same = none() ? found.xs : new ArrayList<>(Arrays.asList(number()));
                return found;
            }
            case 1: {
                Holder found = new Holder();
                found.box = none() ? null : box(number(), number());
                found.name = text();
                found.any = none() ? found.box : any(0);
                found.last = any(0);
                return found;
            }
            case 2: {
                Texts found = new Texts();
                found.name = text();
                found.box = none() ? null : box(found.name, text());
                found.boxes = none() ? null : new ArrayList<>(Arrays.asList(box(found.name, found.name), box(text(), text())));
                found.any = any(0);
                return found;
            }
            default: {
                Pairs found = new Pairs();
                found.one = none() ? null : pair(3L, text());
                found.two = none() ? null : pair(text(), number());
                found.any = any(0);
                found.maybe = none() ? null : Optional.ofNullable(text());
                return found;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]), since = 0;
        KryoSerializer<Object> serializer = null;
        boolean mayHold = false;
        for (int written = 0, tried = 0; written < count && tried < 9 * count; tried++) {
            if (serializer == null || since++ > 12) {
                serializer = new KryoSerializer<>(Object.class, new SerializerConfigImpl());
                since = 0;
                mayHold = random.nextInt(4) > 0;
                if (written == 0) {
                    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
                    TypeSerializerSnapshot.writeVersionedSnapshot(new DataOutputViewStreamWrapper(bytes), serializer.snapshotConfiguration());
                    System.out.println("{\"class\": \"Kept\", \"snapshot\": \"" + WriteKryo.hex(bytes.toByteArray()) + "\"}");
                }
            }
            Object value = mayHold && random.nextInt(3) > 0 ? value() : any(1);
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            try {
                serializer.serialize(value, new DataOutputViewStreamWrapper(bytes));
            } catch (RuntimeException cannot) {
                serializer = null; // a job fails then
                continue;
            }
            written++;
            System.out.println("{\"class\": \"Kept\", \"bytes\": \"" + WriteKryo.hex(bytes.toByteArray()) + "\", \"value\": " + WriteClasses.truth(value) + "}");
        }
    }
}
