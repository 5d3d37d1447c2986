import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.net.URL;
import java.util.*;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/**
 * Writes objects of its classes by Flink's KryoSerializer as WriteClasses does, with the snapshots of the serializers
 * that Flink has for these classes; and calendars, contexts of numbers, statistics and URLs as WriteKryo does.
 *
 * <p>A line with "described" is a snapshot of a POJO or an enum, beside two values by that serializer. Arguments: how
 * many random lists.
 */
public class WriteDescribed {
    public enum Color { RED, GREEN, BLUE }

    public enum Size {
        S,
        M {
            @Override
            public String toString() {
                return "not the name";
            }
        }
    }

    public static class Maker {
        public String name;
        public Integer since;
    }

    public static class Owner {
        public Integer age;
        public String mail = "m";
    }

    /** A final class: Kryo does not write its class in a field. */
    public static final class Place {
        public int row;
        public long shelf;
    }

    public static class Item extends Maker {
        public String sku;
        public int qty;
        public Long serial;
        public double price;
        public boolean fresh;
        public Color color;
        public Size size;
        public Owner owner;
        public Place place;
        public Place[] places;
        public int[] counts;
        public Integer[] boxes;
        public String[] labels;
        public BigDecimal amount;
        public Date day;
        public List<String> tags;
        public Map<String, Integer> numbers;
    }

    /** One of few fields. */
    public static class Line {
        public String sku;
        public int qty;
        public Long serial;
    }

    static final Random CHANCE = new Random(20260401);

    static String text() {
        return CHANCE.nextInt(6) == 0 ? null : "t" + CHANCE.nextInt(1000);
    }

    static <T> T orNull(T value) {
        return CHANCE.nextInt(5) == 0 ? null : value;
    }

    static Place place() {
        Place found = new Place();
        found.row = CHANCE.nextInt(300);
        found.shelf = CHANCE.nextLong() >>> CHANCE.nextInt(64);
        return found;
    }

    static Line line() {
        Line found = new Line();
        found.sku = text();
        found.qty = CHANCE.nextInt(1000) - 100;
        found.serial = orNull(CHANCE.nextLong() >> CHANCE.nextInt(64));
        return found;
    }

    static Item item() {
        Item found = new Item();
        found.name = text();
        found.since = orNull(CHANCE.nextInt(3000));
        found.sku = text();
        found.qty = CHANCE.nextInt(1000) - 100;
        found.serial = orNull(CHANCE.nextLong());
        found.price = CHANCE.nextInt(1000) / 4.0;
        found.fresh = CHANCE.nextBoolean();
        found.color = orNull(Color.values()[CHANCE.nextInt(3)]);
        found.size = orNull(Size.values()[CHANCE.nextInt(2)]);
        found.owner = orNull(new Owner());
        if (found.owner != null) found.owner.age = orNull(CHANCE.nextInt(90));
        found.place = orNull(place());
        found.places = orNull(new Place[] {place(), null});
        found.counts = orNull(new int[] {CHANCE.nextInt(9), -1});
        found.boxes = orNull(new Integer[] {CHANCE.nextInt(9), null});
        found.labels = orNull(new String[] {"a", null});
        found.amount = orNull(new BigDecimal("1.50"));
        found.day = orNull(new Date(CHANCE.nextInt()));
        found.tags = orNull(new ArrayList<>(Arrays.asList("x", text())));
        found.numbers = orNull(new HashMap<>(Map.of("k", CHANCE.nextInt(50))));
        return found;
    }

    static List<Object> others() throws Exception {
        List<Object> found = new ArrayList<>();
        for (String zone : new String[] {"UTC", "Europe/Berlin", "Asia/Kathmandu"}) {
            Calendar calendar = new GregorianCalendar(TimeZone.getTimeZone(zone), Locale.US);
            calendar.setTimeInMillis((CHANCE.nextInt(2) == 0 ? -1L : 1L) * (CHANCE.nextLong() >>> 22));
            found.add(calendar);
            Calendar other = (Calendar) calendar.clone();
            other.setLenient(false);
            other.setFirstDayOfWeek(Calendar.MONDAY);
            found.add(new ArrayList<>(Arrays.asList(calendar, null, calendar, other)));
            found.add(new HashMap<>(Map.of("at", other)));
        }
        found.add(Calendar.getInstance(TimeZone.getTimeZone("Asia/Bangkok"), new Locale("th", "TH", "TH")));
        found.add(Calendar.getInstance(TimeZone.getTimeZone("Asia/Tokyo"), new Locale("ja", "JP", "JP")));
        found.add(new Calendar[] {(Calendar) found.get(0), null});
        found.add(new MathContext(7, RoundingMode.HALF_UP));
        found.add(MathContext.UNLIMITED);
        found.add(new ArrayList<>(Arrays.asList(MathContext.DECIMAL32, MathContext.DECIMAL32, null, MathContext.DECIMAL128)));
        LongSummaryStatistics longs = new LongSummaryStatistics();
        IntSummaryStatistics ints = new IntSummaryStatistics();
        DoubleSummaryStatistics doubles = new DoubleSummaryStatistics();
        found.addAll(Arrays.asList(new LongSummaryStatistics(), new IntSummaryStatistics(), new DoubleSummaryStatistics()));
        for (int i = 0; i < 5; i++) {
            longs.accept(CHANCE.nextLong() >> 8);
            ints.accept(CHANCE.nextInt());
            doubles.accept(CHANCE.nextInt(1000) / 8.0);
        }
        found.addAll(Arrays.asList(longs, ints, doubles, new ArrayList<>(Arrays.asList(longs, ints, null, longs, doubles))));
        for (String url : new String[] {"http://example.org/a?b=1", "https://user@example.org:8443/a#top", "file:/data/a", "http://[::1]:80", "http://h#"})
            found.add(new URL(url));
        found.add(new ArrayList<>(Arrays.asList(new URL("http://a.b/c"), null, new URL("http://a.b/c"))));
        return found;
    }

    /** The truth: objects as WriteClasses has them, and all others as texts of their own. */
    static String truth(Object value) throws Exception {
        if (value instanceof Calendar) return "{\"millis\": \"" + ((Calendar) value).getTimeInMillis() + "\"}";
        if (value instanceof MathContext || value instanceof URL) return WriteKryo.text(value.toString());
        if (value instanceof LongSummaryStatistics) {
            LongSummaryStatistics one = (LongSummaryStatistics) value;
            return statistics(value, one.getCount(), one.getSum(), one.getMin(), one.getMax());
        }
        if (value instanceof IntSummaryStatistics) {
            IntSummaryStatistics one = (IntSummaryStatistics) value;
            return statistics(value, one.getCount(), one.getSum(), one.getMin(), one.getMax());
        }
        if (value instanceof DoubleSummaryStatistics) {
            DoubleSummaryStatistics one = (DoubleSummaryStatistics) value;
            return statistics(value, one.getCount(), one.getSum(), one.getMin(), one.getMax());
        }
        if (value instanceof Map) {
            StringJoiner parts = new StringJoiner(", ", "{\"map\": [", "]}");
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) parts.add("[" + truth(each.getKey()) + ", " + truth(each.getValue()) + "]");
            return parts.toString();
        }
        if (value instanceof List || value instanceof Calendar[]) {
            StringJoiner parts = new StringJoiner(", ", "[", "]");
            for (Object each : value instanceof List ? (List<?>) value : Arrays.asList((Object[]) value)) parts.add(truth(each));
            return parts.toString();
        }
        if (value == null || !value.getClass().getName().startsWith("WriteDescribed") || value instanceof Enum) return WriteClasses.truth(value);
        StringJoiner parts = new StringJoiner(", ", "[", "]");
        for (Class<?> each = value.getClass(); each != Object.class; each = each.getSuperclass())
            for (java.lang.reflect.Field field : each.getDeclaredFields()) {
                Object found = field.get(value);
                parts.add("[" + WriteKryo.text(field.getName()) + ", " + (found instanceof Object[] && !(found instanceof String[])
                        ? truth(Arrays.asList((Object[]) found)) : truth(found)) + "]");
            }
        return "{\"object\": " + WriteKryo.text(value.getClass().getName()) + ", \"fields\": " + parts + "}";
    }

    static String statistics(Object value, Object count, Object sum, Object min, Object max) {
        return "{\"statistics\": [" + WriteKryo.text(count.toString()) + ", " + WriteKryo.text(sum.toString()) + ", "
                + WriteKryo.text(min.toString()) + ", " + WriteKryo.text(max.toString()) + "]}";
    }

    static <T> TypeSerializer<T> serializer(Class<T> type) {
        return TypeInformation.of(type).createSerializer(new SerializerConfigImpl());
    }

    static <T> void describe(Class<T> type, TypeSerializer<T> serializer, T[] values) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        TypeSerializerSnapshot.writeVersionedSnapshot(new DataOutputViewStreamWrapper(bytes), serializer.snapshotConfiguration());
        StringJoiner written = new StringJoiner(", ", "[", "]");
        for (T each : values) {
            ByteArrayOutputStream one = new ByteArrayOutputStream();
            serializer.serialize(each, new DataOutputViewStreamWrapper(one));
            written.add("\"" + WriteKryo.hex(one.toByteArray()) + "\"");
        }
        System.out.println("{\"class\": " + WriteKryo.text(type.getName()) + ", \"described\": \"" + WriteKryo.hex(bytes.toByteArray())
                + "\", \"values\": " + written + "}");
    }

    public static void main(String[] arguments) throws Exception {
        for (Class<?> type : new Class<?>[] {Object.class, List.class, Line.class}) WriteKryo.snapshot(type);
        describe(Item.class, serializer(Item.class), new Item[] {item(), item()});
        describe(Line.class, serializer(Line.class), new Line[] {line(), line()});
        describe(Color.class, serializer(Color.class), Color.values());
        int count = Integer.parseInt(arguments[0]);
        for (int i = 0; i < count; i++) {
            Line same = line();
            write(List.class, new ArrayList<>(Arrays.asList(line(), null, same, line(), same)));
            write(Line.class, same);
            write(List.class, new ArrayList<>(Arrays.asList(item(), item())));
            write(List.class, new ArrayList<>(Arrays.asList(Color.RED, Color.BLUE, Color.RED)));
        }
        for (Object each : others()) write(Object.class, each);
    }

    static void write(Class<?> type, Object value) throws Exception {
        WriteKryo.write(type, value, truth(value));
    }
}
