import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.net.URI;
import java.time.DayOfWeek;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.MonthDay;
import java.time.OffsetDateTime;
import java.time.OffsetTime;
import java.time.Period;
import java.time.Year;
import java.time.YearMonth;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.temporal.ChronoUnit;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/**
 * Writes values by Flink's KryoSerializer, one line of JSON each: the class of the serializer, the bytes, and the value.
 *
 * <p>Arguments: how many random values. In a truth, a map is {"map": [[key, value], ...]}; a number that is no integer
 * {"float"} or {"double": text}; a big number {"big": text}; bytes {"bytes": hex}; a time {its kind: text or numbers}; an object of
 * a class of this program {"own": its class}. The first lines are the snapshots of serializers, by class.
 */
public class WriteKryo {
    static class Own {
        int number = 3;
        String name = "own";
    }

    static class Holder {
        public Own own = new Own();
        public List<Integer> numbers = new ArrayList<>(List.of(1, 2));
    }

    enum Color {
        RED,
        GREEN {
            @Override
            public String toString() {
                return "not the name";
            }
        },
        BLUE
    }

    private static final String[] TEXTS = {
        "", "a", "abc", "Kryo", "caf\u00e9", "\u65e5\u672c\u8a9e", "\ud83d\ude00 x", "quote \" and \\ back", "line\nbreak\u0001",
        "a much longer text than thirty-two characters, and again than sixty-four characters of it, to be sure", "\u0000zero",
    };

    static Object leaf(Random random) {
        switch (random.nextInt(26)) {
            case 0: return random.nextInt();
            case 1: return random.nextInt(200) - 100;
            case 2: return random.nextLong();
            case 3: return (long) random.nextInt(300) - 150;
            case 4: return (short) random.nextInt();
            case 5: return (byte) random.nextInt();
            case 6: return random.nextBoolean();
            case 7: return random.nextFloat();
            case 8: return random.nextInt(9) == 0 ? Double.NaN : random.nextGaussian() * 1e6;
            case 9: return (char) ('A' + random.nextInt(26));
            case 10: return new BigInteger(random.nextInt(200), random).negate();
            case 11: return new BigDecimal(new BigInteger(random.nextInt(120), random), random.nextInt(30) - 5);
            case 12: return new Date(random.nextInt(10) == 0 ? -5L : random.nextLong() >>> 22);
            case 13: {
                java.sql.Timestamp found = new java.sql.Timestamp(random.nextLong() >>> 23);
                found.setNanos(random.nextInt(1000000000));
                return found;
            }
            case 14: return new UUID(random.nextLong(), random.nextLong());
            case 15: return LocalDate.ofEpochDay(random.nextInt(40000) - 10000);
            case 16: return LocalTime.ofNanoOfDay(random.nextInt(4) * 3600_000_000_000L + (random.nextBoolean() ? random.nextInt(1 << 30) : 0)
                        + (random.nextBoolean() ? random.nextInt(3600) * 1_000_000_000L : 0));
            case 17: return LocalDateTime.of(LocalDate.ofEpochDay(random.nextInt(20000)), LocalTime.ofSecondOfDay(random.nextInt(86400)));
            case 18: return Instant.ofEpochSecond(random.nextInt(), random.nextInt(1000000000));
            case 19: return Duration.ofSeconds(random.nextInt(), random.nextInt(1000000000));
            case 20: return random.nextBoolean() ? DayOfWeek.of(1 + random.nextInt(7)) : TimeUnit.values()[random.nextInt(7)];
            case 21: {
                byte[] found = new byte[random.nextInt(5)];
                random.nextBytes(found);
                return found;
            }
            case 22: return random.nextBoolean() ? URI.create("http://example.org/a?b=" + random.nextInt(9)) : new StringBuilder("built");
            default: return random.nextInt(3) > 0 ? TEXTS[random.nextInt(TEXTS.length)] : new String("id-" + random.nextInt(1000));
        }
    }

    /** Elements of one kind (most lists have such) or of any. */
    static List<Object> elements(Random random, int depth, boolean nulls) {
        List<Object> found = new ArrayList<>();
        int size = random.nextInt(5);
        Object like = value(random, depth - 1);
        boolean same = random.nextInt(3) > 0;
        for (int i = 0; i < size; i++) {
            Object next = same ? like : value(random, depth - 1);
            if (same && like instanceof Integer) next = random.nextInt();
            if (same && like instanceof String) next = TEXTS[1 + random.nextInt(TEXTS.length - 1)];
            if (same && like instanceof Long) next = random.nextLong() >> random.nextInt(64);
            found.add(nulls && random.nextInt(8) == 0 ? null : next);
        }
        if (!nulls) found.removeIf(Objects::isNull);
        return found;
    }

    static Object value(Random random, int depth) {
        if (depth <= 0 || random.nextInt(3) == 0) return random.nextInt(20) == 0 ? null : leaf(random);
        switch (random.nextInt(24)) {
            case 0: case 1: case 2: return elements(random, depth, true);
            case 3: return new LinkedList<>(elements(random, depth, true));
            case 4: return Arrays.asList(elements(random, depth, true).toArray());
            case 5: return Arrays.asList("x", "y", null);
            case 6: return new HashSet<>(elements(random, depth, true));
            case 7: return new LinkedHashSet<>(elements(random, depth, true));
            case 8: return new TreeSet<>(Arrays.asList(random.nextInt(9), 3, 4));
            case 9: {
                TreeMap<String, Object> found = new TreeMap<>(random.nextBoolean() ? Collections.reverseOrder() : null);
                for (Object each : elements(random, depth, true)) found.put("k" + found.size(), each);
                return found;
            }
            case 10: case 11: case 12: case 13: {
                Map<Object, Object> found = random.nextBoolean() ? new HashMap<>() : new LinkedHashMap<>();
                boolean numbers = random.nextBoolean();
                for (Object each : elements(random, depth, true)) found.put(numbers ? (Object) random.nextInt(50) : "k" + random.nextInt(50), each);
                return found;
            }
            case 14: return Collections.singletonList(value(random, depth - 1));
            case 15: return Collections.singletonMap(leaf(random), value(random, depth - 1));
            case 16: return random.nextBoolean() ? Collections.emptyList() : random.nextBoolean() ? Collections.emptyMap() : Collections.emptySet();
            case 17: return Optional.ofNullable(value(random, depth - 1));
            case 18: {
                BitSet found = new BitSet();
                for (int i = random.nextInt(5); i > 0; i--) found.set(random.nextInt(150));
                return found;
            }
            case 19: return random.nextBoolean() ? (Object) new int[] {1, -2, random.nextInt()} : new long[] {random.nextLong()};
            case 20: return random.nextBoolean() ? (Object) new String[] {"a", null, "b", "a"} : new Object[] {1, "z", null, leaf(random)};
            case 21: return List.copyOf(elements(random, depth, false));
            case 22: {
                List<Object> shared = elements(random, depth, true);
                return new ArrayList<>(Arrays.asList(shared, shared, "s", "s"));
            }
            default: return random.nextBoolean()
                    ? Collections.unmodifiableList(elements(random, depth, true))
                    : new PriorityQueue<>(Arrays.asList(5, 2, random.nextInt(8)));
        }
    }

    static String text(String value) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c < 32 || c > 126 || c == '"' || c == '\\') out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    static String hex(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte each : bytes) out.append(String.format("%02x", each & 0xFF));
        return out.toString();
    }

    static String tagged(String tag, Object value) {
        return "{" + text(tag) + ": " + text(String.valueOf(value)) + "}";
    }

    static String truth(Object value) {
        if (value == null) return "null";
        if (value instanceof Enum) return text(((Enum<?>) value).name());
        if (value instanceof AtomicLong || value instanceof AtomicInteger || value instanceof AtomicBoolean) return value.toString();
        if (value instanceof AtomicReference) return truth(((AtomicReference<?>) value).get());
        if (value instanceof OptionalInt) return ((OptionalInt) value).isPresent() ? truth(((OptionalInt) value).getAsInt()) : "null";
        if (value instanceof OptionalLong) return ((OptionalLong) value).isPresent() ? truth(((OptionalLong) value).getAsLong()) : "null";
        if (value instanceof OptionalDouble) return ((OptionalDouble) value).isPresent() ? truth(((OptionalDouble) value).getAsDouble()) : "null";
        if (value instanceof Map.Entry) {
            Map.Entry<?, ?> entry = (Map.Entry<?, ?>) value;
            return "{\"map\": [[" + truth(entry.getKey()) + ", " + truth(entry.getValue()) + "]]}";
        }
        if (value instanceof TimeZone) return text(((TimeZone) value).getID());
        if (value instanceof Optional) return truth(((Optional<?>) value).orElse(null));
        if (value instanceof Boolean || value instanceof Integer || value instanceof Long || value instanceof Short || value instanceof Byte)
            return value.toString();
        if (value instanceof Float) return tagged("float", value);
        if (value instanceof Double) return tagged("double", value);
        if (value instanceof BigInteger || value instanceof BigDecimal) return tagged("big", value);
        if (value instanceof java.sql.Timestamp) {
            java.sql.Timestamp found = (java.sql.Timestamp) value;
            return tagged("timestamp", Math.floorDiv(found.getTime(), 1000L) * 1000000000L + found.getNanos());
        }
        if (value instanceof Date) return tagged("millis", ((Date) value).getTime());
        if (value instanceof Instant) return tagged("instant", ((Instant) value).getEpochSecond() * 1000000000L + ((Instant) value).getNano());
        if (value instanceof Duration) return tagged("duration", ((Duration) value).getSeconds() * 1000000000L + ((Duration) value).getNano());
        if (value instanceof LocalDate) return tagged("date", ((LocalDate) value).toEpochDay());
        if (value instanceof LocalTime) return tagged("time", ((LocalTime) value).toNanoOfDay());
        if (value instanceof LocalDateTime) {
            LocalDateTime found = (LocalDateTime) value;
            return tagged("local", found.toLocalDate().toEpochDay() * 86400000000000L + found.toLocalTime().toNanoOfDay());
        }
        if (value instanceof byte[]) return tagged("bytes", hex((byte[]) value));
        if (value instanceof int[]) return Arrays.toString((int[]) value);
        if (value instanceof long[]) return Arrays.toString((long[]) value);
        if (value instanceof Own || value instanceof Holder) return tagged("own", value.getClass().getName());
        if (value instanceof BitSet) return Arrays.toString(((BitSet) value).stream().toArray());
        if (value instanceof Object[]) return truth(Arrays.asList((Object[]) value));
        StringJoiner parts = new StringJoiner(", ", "[", "]");
        if (value instanceof Map) {
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) parts.add("[" + truth(each.getKey()) + ", " + truth(each.getValue()) + "]");
            return "{\"map\": " + parts + "}";
        }
        if (value instanceof Collection) {
            for (Object each : (Collection<?>) value) parts.add(truth(each));
            return parts.toString();
        }
        return text(value.toString());
    }

    static final Map<Class<?>, KryoSerializer<Object>> SERIALIZERS = new LinkedHashMap<>();

    static void write(Class<?> type, Object value) throws Exception {
        write(type, value, truth(value));
    }

    @SuppressWarnings("unchecked")
    static void write(Class<?> type, Object value, String truth) throws Exception {
        KryoSerializer<Object> serializer = SERIALIZERS.computeIfAbsent(
                type, each -> new KryoSerializer<>((Class<Object>) each, new SerializerConfigImpl()));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try {
            serializer.serialize(value, new DataOutputViewStreamWrapper(bytes));
        } catch (Exception error) {
            throw new RuntimeException(type + " " + truth, error);
        }
        System.out.println("{\"class\": " + text(type.getName()) + ", \"bytes\": \"" + hex(bytes.toByteArray()) + "\", \"value\": " + truth + "}");
    }

    static void snapshot(Class<?> type) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        TypeSerializerSnapshot.writeVersionedSnapshot(
                new DataOutputViewStreamWrapper(bytes), new KryoSerializer<>(type, new SerializerConfigImpl()).snapshotConfiguration());
        System.out.println("{\"class\": " + text(type.getName()) + ", \"snapshot\": \"" + hex(bytes.toByteArray()) + "\"}");
    }

    /** Values of classes that the random ones do not have. */
    static List<Object> others() {
        List<String> texts = new ArrayList<>(List.of("a", "caf\u00e9", "c"));
        SortedMap<String, Integer> sorted = new TreeMap<>(Map.of("a", 1, "b", 2, "c", 3));
        TreeMap<String, Integer> natural = new TreeMap<>(Comparator.<String>naturalOrder());
        TreeMap<String, Integer> anyCase = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        for (Map<String, Integer> each : List.of(natural, anyCase)) each.putAll(sorted);
        PriorityQueue<Integer> queue = new PriorityQueue<>(Comparator.<Integer>naturalOrder());
        queue.addAll(List.of(3, 1, 2));
        Properties properties = new Properties();
        properties.setProperty("a", "b");
        Set<String> backed = Collections.newSetFromMap(new HashMap<>());
        backed.add("a");
        Set<String> concurrent = ConcurrentHashMap.newKeySet();
        concurrent.add("a");
        return Arrays.asList(
                ChronoUnit.HALF_DAYS, RoundingMode.HALF_EVEN, EnumSet.of(DayOfWeek.MONDAY, DayOfWeek.SUNDAY), EnumSet.noneOf(TimeUnit.class),
                new EnumMap<>(Map.of(DayOfWeek.FRIDAY, 1L)), new ArrayList<>(List.of(EnumSet.allOf(TimeUnit.class), TimeUnit.DAYS, "z")),
                OptionalInt.of(-5), OptionalInt.empty(), OptionalLong.of(1L << 40), OptionalLong.empty(), OptionalDouble.of(5.5), OptionalDouble.empty(),
                new AtomicInteger(-7), new AtomicLong(1L << 50), new AtomicBoolean(true), new AtomicBoolean(false), new AtomicReference<>("r"),
                new AtomicReference<>(texts), new ArrayList<>(Arrays.asList(OptionalInt.of(3), null, new AtomicLong(4), "z")),
                Collections.unmodifiableSortedSet(new TreeSet<>(texts)), Collections.unmodifiableNavigableSet(new TreeSet<>(texts)),
                Collections.unmodifiableSortedMap(sorted), Collections.unmodifiableNavigableMap(new TreeMap<>(sorted)), Collections.synchronizedSortedMap(sorted),
                Collections.synchronizedSortedSet(new TreeSet<>(texts)), Collections.checkedList(texts, String.class), Collections.emptySortedSet(),
                Collections.emptySortedMap(), backed, concurrent, natural, anyCase, queue, properties, new TreeMap<>(sorted).values(),
                sorted.headMap("c"), new TreeMap<>(sorted).descendingMap(), new ConcurrentSkipListSet<>(texts), new CopyOnWriteArraySet<>(texts),
                new PriorityBlockingQueue<>(texts), new ArrayBlockingQueue<>(4, false, texts), new AbstractMap.SimpleEntry<>("a", 1),
                new AbstractMap.SimpleImmutableEntry<>("a", 1), Map.entry("a", 1), TimeZone.getTimeZone("Europe/Berlin"),
                new int[][] {{1}, {2, 3}, null}, new String[][] {{"a"}, {"b", null}}, new List[] {texts, null}, new Number[] {1, 2L, null},
                new UUID[] {new UUID(1, 2), null}, new BigDecimal[] {BigDecimal.ONE, null, new BigDecimal("-0.0000001"), new BigDecimal("12.50")},
                new LocalDate[] {LocalDate.of(2024, 1, 2), null}, new Instant[] {Instant.ofEpochSecond(-5, 7), null},
                new ArrayList<>(Arrays.asList(1.5, -2.5, null, 3.0)), new ArrayList<>(Arrays.asList("a", "caf\u00e9", "", null, "a", "z".repeat(70))));
    }

    static final ZoneId[] ZONES = {
        ZoneOffset.UTC, ZoneOffset.ofHours(2), ZoneOffset.ofHoursMinutes(-3, -30), ZoneOffset.ofHoursMinutesSeconds(1, 2, 3),
        ZoneOffset.ofTotalSeconds(-7), ZoneOffset.MAX, ZoneOffset.MIN, ZoneId.of("Europe/Berlin"), ZoneId.of("America/New_York"),
        ZoneId.of("UTC"), ZoneId.of("GMT+2"), ZoneId.of("Asia/Kathmandu"),
    };

    static ZoneId zone(Random random) {
        return ZONES[random.nextInt(ZONES.length)];
    }

    static LocalDateTime dateTime(Random random) {
        LocalDate date = random.nextInt(8) == 0
                ? LocalDate.of(new int[] {-12, 0, 9999, 10000, -123456, 999999999, -999999999, 1}[random.nextInt(8)], 2, 28)
                : LocalDate.ofEpochDay(random.nextInt(40000) - 10000);
        int[] nanos = {0, 0, 1, 120_000_000, 120_450_000, 999_999_999};
        return LocalDateTime.of(date, LocalTime.of(random.nextInt(24), random.nextInt(2) * random.nextInt(60), random.nextInt(2) * random.nextInt(60),
                nanos[random.nextInt(nanos.length)]));
    }

    /** Times with zones, and parts of dates. Their truth is what toString says. */
    static Object zoned(Random random) {
        switch (random.nextInt(8)) {
            case 0: return ZonedDateTime.of(dateTime(random), zone(random));
            case 1: return OffsetDateTime.of(dateTime(random), (ZoneOffset) ZONES[random.nextInt(7)]);
            case 2: return OffsetTime.of(dateTime(random).toLocalTime(), (ZoneOffset) ZONES[random.nextInt(7)]);
            case 3: return zone(random);
            case 4: return random.nextInt(6) == 0 ? Period.ZERO
                    : Period.of(random.nextInt(3) - 1, random.nextInt(2) * (random.nextInt(40) - 20), random.nextInt(2) * random.nextInt());
            case 5: return Year.of(random.nextInt(3) == 0 ? new int[] {-12, 0, 10000, 999999999, -999999999, 7}[random.nextInt(6)] : 1900 + random.nextInt(200));
            case 6: return YearMonth.of(random.nextInt(3) == 0 ? new int[] {-12, 0, 10000, 999999999, -999999999, 7}[random.nextInt(6)] : 2024, 1 + random.nextInt(12));
            default: return MonthDay.of(1 + random.nextInt(12), 1 + random.nextInt(28));
        }
    }

    /** Values of times with zones, alone and in others, in which some objects come twice. */
    static List<Object> times() {
        Random random = new Random(20260202);
        List<Object> found = new ArrayList<>();
        for (int i = 0; i < 120; i++) found.add(zoned(random));
        for (int i = 0; i < 12; i++) {
            List<Object> each = new ArrayList<>(Arrays.asList(zoned(random), "a", null, zoned(random), zoned(random), i));
            each.add(each.get(0));
            found.add(each);
            found.add(new LinkedHashMap<>(Map.of(zoned(random), each)));
        }
        OffsetDateTime one = OffsetDateTime.of(2024, 1, 2, 3, 4, 0, 0, ZoneOffset.ofHours(2));
        ZonedDateTime other = ZonedDateTime.of(LocalDateTime.of(2024, 7, 2, 3, 4, 5, 600), ZoneId.of("Europe/Berlin"));
        found.add(new ArrayList<>(Arrays.asList(one, OffsetDateTime.of(2025, 1, 2, 3, 4, 5, 0, one.getOffset()), null, one)));
        found.add(new ArrayList<>(Arrays.asList(other, ZonedDateTime.of(LocalDateTime.of(2025, 1, 2, 3, 4), other.getZone()), other, other.getZone(), other.getOffset())));
        found.add(new ArrayList<>(Arrays.asList(other.getOffset(), OffsetTime.of(LocalTime.of(5, 6), one.getOffset()), one, OffsetTime.of(LocalTime.of(7, 8, 9), other.getOffset()))));
        found.add(Optional.of(other));
        found.add(new TreeMap<>(Map.of("a", Year.of(2024), "b", Year.of(-5))));
        found.add(new OffsetDateTime[] {one, null});
        found.add(new ZoneId[] {other.getZone(), null, ZoneOffset.UTC});
        return found;
    }

    static List<Object> locales() {
        return Arrays.asList(Locale.US, Locale.GERMAN, Locale.ROOT, new Locale("", "DE"), new Locale("de", "DE", "POSIX"), new Locale("es", "", "x"),
                new ArrayList<>(Arrays.asList(Locale.US, Locale.US, null, Locale.JAPAN)));
    }

    /** Values with an enum of this program. */
    static List<Object> enums() {
        List<Object> all = new ArrayList<>(Arrays.asList(Color.BLUE, Color.GREEN, null, Color.RED, Color.GREEN));
        EnumMap<Color, Long> map = new EnumMap<>(Color.class);
        map.put(Color.GREEN, 5L);
        map.put(Color.BLUE, null);
        return Arrays.asList(
                Color.RED, Color.GREEN, all, new ArrayList<>(List.of(Color.RED, Color.BLUE)), new ArrayList<>(List.of(Color.GREEN, Color.GREEN)),
                new LinkedHashSet<>(List.of(Color.BLUE, Color.GREEN)), new TreeMap<>(Map.of(Color.RED, 1L, Color.GREEN, 2L)), map,
                EnumSet.of(Color.GREEN, Color.BLUE), EnumSet.noneOf(Color.class), Optional.of(Color.BLUE),
                new ArrayList<>(Arrays.asList(DayOfWeek.MONDAY, Color.GREEN, "z")), new HashMap<>(Map.of("k", new ArrayList<>(List.of(Color.BLUE)))),
                Arrays.asList(Color.RED, Color.GREEN), new TreeMap<>(Map.of(1, EnumSet.allOf(Color.class))));
    }

    public static void main(String[] arguments) throws Exception {
        Class<?>[] more = {Serializable.class, Cloneable.class, Comparable.class, Color.class};
        Class<?>[] types = {Object.class, List.class, Map.class, Set.class, UUID.class, Optional.class, Date.class, BitSet.class, Holder.class};
        for (Class<?> type : types) snapshot(type);
        for (Class<?> type : more) snapshot(type);
        Random random = new Random(20260101);
        for (int i = 0; i < 6; i++) {
            write(UUID.class, new UUID(random.nextLong(), random.nextLong()));
            write(Date.class, new Date(random.nextLong() >>> 20));
            write(Optional.class, Optional.of(leaf(random)));
        }
        write(Object.class, null);
        write(List.class, new ArrayList<>(Arrays.asList("a", "b", "a", null)));
        write(Set.class, new HashSet<>(List.of(1L, 2L)));
        write(Map.class, new HashMap<>(Map.of("a", 1)));
        write(Map.class, Map.of("a", 1));
        write(Set.class, Set.of(7, 8, 9));
        write(List.class, new ArrayList<>(Arrays.asList(null, null)));
        write(Holder.class, new Holder());
        write(List.class, new ArrayList<>(List.of(new Own(), new Own())));
        List<Object> twice = new ArrayList<>(List.of(new java.sql.Date(5), new java.sql.Time(7), new Date(9)));
        write(List.class, twice);
        int count = Integer.parseInt(arguments[0]);
        for (int i = 0; i < count; i++) write(Object.class, value(random, 4));
        for (Object each : others()) write(Object.class, each);
        for (Object each : times()) write(Serializable.class, each);
        for (Object each : locales()) write(Cloneable.class, each);
        for (Object each : enums()) write(Comparable.class, each);
        for (Object each : enums()) write(Color.class, each);
    }
}
