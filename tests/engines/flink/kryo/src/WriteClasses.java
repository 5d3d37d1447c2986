import java.io.ByteArrayOutputStream;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.util.*;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/**
 * Writes objects of its own classes by Flink's KryoSerializer, one line of JSON each, as WriteKryo does. An object is
 * {"object": its class, "fields": [[name, value], ...]}, with the fields of the class first and those of its
 * superclasses behind. A line of a cycle has no value. Arguments: how many objects of each class.
 */
public class WriteClasses {
    enum Color { RED, GREEN, BLUE }

    enum Size {
        S,
        M {
            @Override
            public String toString() {
                return "not the name";
            }
        },
        L
    }

    static class Base {
        static int shared = 7;
        int id;
        String name;
        private long stamp;
    }

    static class Item extends Base {
        private String name;
        int qty;
        double price;
        Integer boxed;
        Long big;
        List<String> tags;
        Map<String, Integer> counts;
        Color color;
        Size size;
        Item parent;
        Object any;
        transient int forgotten = 5;
        int[] numbers;
        String[] texts;
        UUID uuid;
        BigDecimal amount;
        LocalDate day;
        Instant at;
        boolean flag;
        byte tiny;
        char letter;
        short small;
        float ratio;
        Set<Color> colors;
        Optional<String> maybe;
        Date date;
        Double score;
        Boolean sure;
    }

    public static class Open {
        public int n;
        public String s;
        public List<Integer> list;
        public Map<Integer, List<String>> nested;
        public Integer[] array;
        public List raw;
        public SortedMap<String, Long> sorted;
    }

    static final class Point {
        int x;
        int y;
        String label;
    }

    static class Poly {
        List<Point> points;
        Point first;
        Point[] array;
        Map<String, Point> named;
        Map<Point, String> byPoint;
        List<List<String>> lists;
        Base[] bases;
        List<Base> more;
        Map<String, List<Integer>> deep;
        List<? extends Base> wild;
        int[][] grid;
        Color[] palette;
        Collection<Long> longs;
    }

    interface Shape {}

    static class Circle implements Shape {
        double r;
        Color color;
    }

    static class Square implements Shape {
        double r;
        Color color;
    }

    static class Drawing {
        Shape main;
        List<Shape> shapes;
        Object any;
    }

    static class Box<T> {
        T value;
        int n;
    }

    static class Boxes {
        Box<Base> base;
        List<Box<Base>> list;
        Object any;
    }

    static class Empty {}

    static class Node {
        Node next;
        int v;
        List<Node> kids;
    }

    class Inner {
        int v;
        String s;
    }

    static class Tight {
        Box<String> text;
        Object any;
    }

    static Random random = new Random(42);
    static final String[] TEXTS = {"", "a", "kryo", "caf\u00e9", "\u65e5\u672c", "long text with more than thirty-two characters in it", "quote \" and \\"};

    static boolean none() {
        return random.nextInt(5) == 0;
    }

    static String text() {
        return none() ? null : random.nextBoolean() ? TEXTS[random.nextInt(TEXTS.length)] : new String("t" + random.nextInt(100));
    }

    static <T> T[] shuffledNulls(T[] values) {
        if (none()) values[random.nextInt(values.length)] = null;
        return values;
    }

    static <T> List<T> list(java.util.function.Supplier<T> each) {
        if (none()) return null;
        List<T> found = random.nextInt(4) == 0 ? new LinkedList<>() : new ArrayList<>();
        for (int i = random.nextInt(4); i > 0; i--) found.add(each.get());
        return random.nextInt(6) == 0 ? Collections.unmodifiableList(found) : found;
    }

    static <K, V> Map<K, V> map(java.util.function.Supplier<K> key, java.util.function.Supplier<V> value) {
        if (none()) return null;
        Map<K, V> found = random.nextBoolean() ? new HashMap<>() : new LinkedHashMap<>();
        for (int i = random.nextInt(4); i > 0; i--) found.put(key.get(), value.get());
        return found;
    }

    static Base base() {
        if (none()) return null;
        Base found = random.nextInt(4) == 0 ? item(0) : new Base();
        found.id = random.nextInt();
        found.name = text();
        found.stamp = random.nextLong() >> random.nextInt(64);
        return found;
    }

    static Item item(int depth) {
        Item found = new Item();
        found.id = random.nextInt(1000) - 500;
        ((Base) found).name = text();
        ((Base) found).stamp = random.nextLong();
        found.name = text();
        found.qty = random.nextInt();
        found.price = random.nextGaussian();
        found.boxed = none() ? null : random.nextInt();
        found.big = none() ? null : random.nextLong();
        found.tags = list(WriteClasses::text);
        found.counts = map(() -> "k" + random.nextInt(50), () -> none() ? null : random.nextInt());
        found.color = none() ? null : Color.values()[random.nextInt(3)];
        found.size = none() ? null : Size.values()[random.nextInt(3)];
        found.parent = depth == 0 || none() ? null : item(depth - 1);
        found.any = none() ? null : random.nextBoolean() ? (Object) random.nextInt(50) : text();
        found.numbers = none() ? null : new int[] {1, random.nextInt()};
        found.texts = none() ? null : new String[] {text(), "z"};
        found.uuid = none() ? null : new UUID(random.nextLong(), random.nextLong());
        found.amount = none() ? null : BigDecimal.valueOf(random.nextInt(), 2);
        found.day = none() ? null : LocalDate.ofEpochDay(random.nextInt(30000));
        found.at = none() ? null : Instant.ofEpochSecond(random.nextInt(), random.nextInt(1000000000));
        found.flag = random.nextBoolean();
        found.tiny = (byte) random.nextInt();
        found.letter = (char) ('A' + random.nextInt(26));
        found.small = (short) random.nextInt();
        found.ratio = random.nextFloat();
        found.colors = none() ? null : new HashSet<>(Arrays.asList(Color.RED, Color.values()[random.nextInt(3)]));
        found.maybe = none() ? null : Optional.ofNullable(text());
        found.date = none() ? null : new Date(random.nextInt());
        found.score = none() ? null : random.nextDouble();
        found.sure = none() ? null : random.nextBoolean();
        return found;
    }

    static Open open() {
        Open found = new Open();
        found.n = random.nextInt(100);
        found.s = text();
        found.list = list(() -> none() ? null : random.nextInt(1000));
        found.nested = map(() -> random.nextInt(20), () -> list(WriteClasses::text));
        found.array = none() ? null : new Integer[] {1, null, random.nextInt(300)};
        found.raw = list(WriteClasses::text);
        found.sorted = none() ? null : new TreeMap<>(Map.of("a", random.nextLong(), "b", 2L));
        return found;
    }

    static Point point() {
        if (none()) return null;
        Point found = new Point();
        found.x = random.nextInt(10);
        found.y = random.nextInt();
        found.label = text();
        return found;
    }

    static Point somePoint() {
        Point found = point();
        return found == null ? new Point() : found;
    }

    static Poly poly() {
        Poly found = new Poly();
        found.points = list(WriteClasses::point);
        found.first = found.points == null || found.points.isEmpty() ? point() : found.points.get(0);
        found.array = none() ? null : new Point[] {point(), found.first, point()};
        found.named = map(() -> "k" + random.nextInt(20), WriteClasses::point);
        found.byPoint = map(WriteClasses::somePoint, WriteClasses::text);
        found.lists = list(() -> list(WriteClasses::text));
        found.bases = none() ? null : new Base[] {base(), base()};
        found.more = list(WriteClasses::base);
        found.deep = map(() -> "k" + random.nextInt(20), () -> list(() -> random.nextInt(9)));
        found.wild = found.more;
        found.grid = none() ? null : new int[][] {{1}, {2, 3}, null};
        found.palette = none() ? null : new Color[] {Color.BLUE, null, Color.RED, Color.BLUE};
        found.longs = list(() -> none() ? null : random.nextLong());
        return found;
    }

    static Shape shape() {
        if (random.nextBoolean()) {
            Circle found = new Circle();
            found.r = random.nextInt(9);
            found.color = none() ? null : Color.GREEN;
            return found;
        }
        Square found = new Square();
        found.r = random.nextInt(9);
        found.color = Color.RED;
        return found;
    }

    static Drawing drawing() {
        Drawing found = new Drawing();
        found.main = none() ? null : shape();
        found.shapes = list(WriteClasses::shape);
        found.any = random.nextInt(3) == 0 ? null : random.nextBoolean() ? shape() : random.nextBoolean() ? found.main : list(WriteClasses::shape);
        return found;
    }

    static <T> Box<T> box(T value) {
        Box<T> found = new Box<>();
        found.value = value;
        found.n = random.nextInt(100);
        return found;
    }

    static Boxes boxes() {
        Boxes found = new Boxes();
        found.base = none() ? null : box(base());
        found.list = list(() -> box(base()));
        found.any = none() ? null : box(text());
        return found;
    }

    static Node node(int depth) {
        Node found = new Node();
        found.v = random.nextInt(99);
        found.next = depth == 0 || none() ? null : node(depth - 1);
        found.kids = depth == 0 ? null : list(() -> node(depth - 1));
        if (found.kids != null && !found.kids.isEmpty() && none()) found.next = found.kids.get(0);
        return found;
    }

    static String truth(Object value) throws Exception {
        if (value == null) return "null";
        if (value instanceof Optional) return truth(((Optional<?>) value).orElse(null));
        StringJoiner parts = new StringJoiner(", ", "[", "]");
        if (value instanceof Map) {
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) parts.add("[" + truth(each.getKey()) + ", " + truth(each.getValue()) + "]");
            return "{\"map\": " + parts + "}";
        }
        if (value instanceof Collection) {
            for (Object each : (Collection<?>) value) parts.add(truth(each));
            return parts.toString();
        }
        if (value.getClass().isArray() && !(value instanceof byte[])) {
            for (int i = 0; i < Array.getLength(value); i++) parts.add(truth(Array.get(value, i)));
            return parts.toString();
        }
        if (value instanceof Character) return WriteKryo.text(value.toString());
        if (value instanceof Enum || !value.getClass().getName().startsWith("Write")) return WriteKryo.truth(value);
        for (Class<?> each = value.getClass(); each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || Modifier.isTransient(field.getModifiers()) || field.isSynthetic()) continue;
                field.setAccessible(true);
                parts.add("[" + WriteKryo.text(field.getName()) + ", " + truth(field.get(value)) + "]");
            }
        }
        return "{\"object\": " + WriteKryo.text(value.getClass().getName()) + ", \"fields\": " + parts + "}";
    }

    static final Map<String, KryoSerializer<Object>> SERIALIZERS = new LinkedHashMap<>();

    @SuppressWarnings("unchecked")
    static KryoSerializer<Object> serializer(String name, Class<?> type, Class<?>... registered) {
        return SERIALIZERS.computeIfAbsent(name, each -> {
            SerializerConfigImpl config = new SerializerConfigImpl();
            for (Class<?> one : registered) config.registerKryoType(one);
            return new KryoSerializer<>((Class<Object>) type, config);
        });
    }

    static void write(String name, Object value, boolean isCycle) throws Exception {
        KryoSerializer<Object> serializer = SERIALIZERS.get(name);
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        serializer.serialize(value, new DataOutputViewStreamWrapper(bytes));
        String shown = isCycle ? "" : ", \"value\": " + truth(value);
        System.out.println("{\"class\": " + WriteKryo.text(name) + ", \"bytes\": \"" + WriteKryo.hex(bytes.toByteArray()) + "\"" + shown + "}");
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        serializer("Object", Object.class);
        serializer("List", List.class);
        serializer("Item", Item.class);
        serializer("registered", Object.class, Item.class, Point.class, Color.class, Circle.class);
        serializer("Tight", Object.class);
        serializer("Optional", Object.class);
        for (Map.Entry<String, KryoSerializer<Object>> each : SERIALIZERS.entrySet()) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            TypeSerializerSnapshot.writeVersionedSnapshot(new DataOutputViewStreamWrapper(bytes), each.getValue().snapshotConfiguration());
            System.out.println("{\"class\": " + WriteKryo.text(each.getKey()) + ", \"snapshot\": \"" + WriteKryo.hex(bytes.toByteArray()) + "\"}");
        }
        for (int i = 0; i < count; i++) {
            Item item = item(2);
            item.any = i % 3 == 0 ? item.name : item.any;
            write("Item", item, false);
            write("Object", open(), false);
            write("Object", poly(), false);
            write("Object", drawing(), false);
            write("Object", boxes(), false);
            write("Object", new Empty(), false);
            write("Object", node(3), false);
            Inner inner = new WriteClasses().new Inner();
            inner.v = i;
            inner.s = text();
            write("Object", inner, false);
            write("List", new ArrayList<>(Arrays.asList(somePoint(), somePoint(), somePoint())), false);
            Point same = somePoint();
            write("List", new ArrayList<>(Arrays.asList(same, same, null, base(), base())), false);
            write("Object", new HashMap<>(Map.of("a", item(0), "b", item(1))), false);
            write("Object", new TreeMap<>(Map.of("a", somePoint(), "b", somePoint())), false);
            write("Optional", Optional.of(somePoint()), false);
            write("Object", new Point[] {point(), point()}, false);
            write("Object", new Base[] {base(), base()}, false);
            write("Object", new Shape[] {shape(), null}, false);
            write("Object", new Color[] {Color.RED, null, Color.BLUE}, false);
            write("Object", new Size[] {Size.S, null, Size.M}, false);
            write("Object", Arrays.asList(somePoint(), same, same), false);
            write("registered", new ArrayList<>(Arrays.asList(item(1), point(), Color.RED, shape(), null)), false);
            write("registered", new Point[] {point(), same}, false);
        }
        Node loop = node(1);
        loop.next = loop;
        write("Object", loop, true);
        Node far = node(0);
        far.kids = new ArrayList<>(List.of(node(0)));
        far.kids.get(0).next = far;
        write("Object", far, true);
        Tight tight = new Tight();
        tight.text = box("first");
        tight.any = box("second");
        write("Tight", tight, false);
    }
}
