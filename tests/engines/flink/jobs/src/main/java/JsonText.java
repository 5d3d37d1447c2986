import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.LocalDateTime;
import java.time.Period;
import java.time.ZoneOffset;
import java.time.temporal.Temporal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericEnumSymbol;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;

/** JSON text of values, in the form that the fixtures' truth has. */
final class JsonText {
    private JsonText() {}

    static String of(Object value) {
        if (value == null) return "null";
        if (value instanceof Boolean || value instanceof Byte || value instanceof Short || value instanceof Integer
                || value instanceof Long) return value.toString();
        if (value instanceof Float || value instanceof Double) return number(((Number) value).doubleValue());
        if (value instanceof Enum) return quoted(((Enum<?>) value).name());
        if (value instanceof Character || value instanceof CharSequence || value instanceof Temporal
                || value instanceof BigDecimal || value instanceof BigInteger || value instanceof Duration
                || value instanceof Period || value instanceof java.util.UUID
                || value instanceof GenericEnumSymbol) return quoted(value.toString());
        if (value instanceof java.sql.Timestamp) {
            java.sql.Timestamp time = (java.sql.Timestamp) value;
            return "{\"$millis\":" + time.getTime() + ",\"$nanos\":" + time.getNanos() + "}";
        }
        if (value instanceof Date) return "{\"$millis\":" + ((Date) value).getTime() + "}";
        if (value instanceof byte[]) return bytes((byte[]) value);
        if (value instanceof ByteBuffer) return bytes(content((ByteBuffer) value));
        if (value instanceof GenericFixed) return bytes(((GenericFixed) value).bytes());
        if (value instanceof TimeWindow) {
            TimeWindow window = (TimeWindow) value;
            return "{\"start\":" + window.getStart() + ",\"end\":" + window.getEnd() + "}";
        }
        if (value instanceof IndexedRecord) return record((IndexedRecord) value);
        if (value instanceof Tuple) return tuple((Tuple) value);
        if (value instanceof Row) return row((Row) value);
        if (value instanceof Either) {
            Either<?, ?> either = (Either<?, ?>) value;
            return either.isLeft() ? "{\"left\":" + of(either.left()) + "}" : "{\"right\":" + of(either.right()) + "}";
        }
        if (value.getClass().isArray()) {
            List<Object> elements = new ArrayList<>();
            for (int i = 0; i < Array.getLength(value); i++) elements.add(Array.get(value, i));
            return of(elements);
        }
        if (value instanceof Map) return "{\"$map\":" + of(pairs(((Map<?, ?>) value).entrySet())) + "}";
        if (value instanceof Set) {
            TreeSet<String> texts = new TreeSet<>();
            for (Object element : (Set<?>) value) texts.add(of(element));
            return "{\"$set\":[" + String.join(",", texts) + "]}";
        }
        if (value instanceof Iterable) {
            List<String> texts = new ArrayList<>();
            for (Object element : (Iterable<?>) value) texts.add(of(element));
            return "[" + String.join(",", texts) + "]";
        }
        return object(value);
    }

    /** Entries of a map as pairs, in the order of the keys' JSON texts. */
    static List<Object> pairs(Iterable<? extends Map.Entry<?, ?>> entries) {
        TreeMap<String, Object> sorted = new TreeMap<>();
        for (Map.Entry<?, ?> each : entries) sorted.put(of(each.getKey()), Arrays.asList(each.getKey(), each.getValue()));
        return new ArrayList<>(sorted.values());
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 0x20 || c > 0x7e) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    private static String number(double value) {
        return Double.isFinite(value) ? Double.toString(value) : quoted(Double.toString(value));
    }

    private static String bytes(byte[] value) {
        StringBuilder out = new StringBuilder("{\"$bytes\":\"");
        for (byte b : value) out.append(String.format("%02x", b));
        return out.append("\"}").toString();
    }

    private static byte[] content(ByteBuffer buffer) {
        byte[] content = new byte[buffer.remaining()];
        buffer.duplicate().get(content);
        return content;
    }

    private static String tuple(Tuple value) {
        List<Object> fields = new ArrayList<>();
        for (int i = 0; i < value.getArity(); i++) fields.add(value.getField(i));
        return of(fields);
    }

    private static String row(Row value) {
        List<Object> fields = new ArrayList<>();
        for (int i = 0; i < value.getArity(); i++) fields.add(value.getField(i));
        return of(fields);
    }

    private static String object(Object value) {
        TreeMap<String, String> fields = new TreeMap<>();
        for (Class<?> c = value.getClass(); c != Object.class; c = c.getSuperclass())
            for (Field field : c.getDeclaredFields())
                if (Modifier.isPublic(field.getModifiers()) && !Modifier.isStatic(field.getModifiers()))
                    try {
                        fields.put(quoted(field.getName()), of(field.get(value)));
                    } catch (IllegalAccessException e) {
                        throw new IllegalStateException(e);
                    }
        return braces(fields);
    }

    private static String braces(Map<String, String> fields) {
        List<String> parts = new ArrayList<>();
        fields.forEach((name, text) -> parts.add(name + ":" + text));
        return "{" + String.join(",", parts) + "}";
    }

    // Avro: generic values are shown as their logical types say, so that specific and generic records look alike.

    private static String record(IndexedRecord value) {
        TreeMap<String, String> fields = new TreeMap<>();
        for (Schema.Field field : value.getSchema().getFields())
            fields.put(quoted(field.name()), avro(field.schema(), value.get(field.pos())));
        return braces(fields);
    }

    private static String avro(Schema schema, Object value) {
        if (value == null) return "null";
        if (schema.getType() == Schema.Type.UNION)
            return avro(schema.getTypes().get(GenericData.get().resolveUnion(schema, plain(value))), value);
        if (schema.getType() == Schema.Type.ARRAY) {
            List<String> texts = new ArrayList<>();
            for (Object element : (Collection<?>) value) texts.add(avro(schema.getElementType(), element));
            return "[" + String.join(",", texts) + "]";
        }
        if (schema.getType() == Schema.Type.MAP) {
            TreeMap<String, String> entries = new TreeMap<>();
            ((Map<?, ?>) value).forEach((k, v) -> entries.put(quoted(k.toString()), avro(schema.getValueType(), v)));
            List<String> texts = new ArrayList<>();
            entries.forEach((k, v) -> texts.add("[" + k + "," + v + "]"));
            return "{\"$map\":[" + String.join(",", texts) + "]}";
        }
        return of(logical(schema, value));
    }


    /** The value of a union's branch without its logical type. */
    private static Object plain(Object value) {
        if (value instanceof Instant) return ((Instant) value).toEpochMilli();
        if (value instanceof LocalDate) return (int) ((LocalDate) value).toEpochDay();
        if (value instanceof BigDecimal) return ByteBuffer.wrap(((BigDecimal) value).unscaledValue().toByteArray());
        return value;
    }

    private static Object logical(Schema schema, Object value) {
        LogicalType type = schema.getLogicalType();
        if (type == null || value instanceof Temporal || value instanceof BigDecimal) return value;
        if (type instanceof LogicalTypes.Decimal) {
            byte[] unscaled = value instanceof GenericFixed ? ((GenericFixed) value).bytes() : content((ByteBuffer) value);
            return new BigDecimal(new BigInteger(unscaled), ((LogicalTypes.Decimal) type).getScale());
        }
        switch (type.getName()) {
            case "date": return LocalDate.ofEpochDay((Integer) value);
            case "time-millis": return LocalTime.ofNanoOfDay((Integer) value * 1_000_000L);
            case "time-micros": return LocalTime.ofNanoOfDay((Long) value * 1_000L);
            case "timestamp-millis": return Instant.ofEpochMilli((Long) value);
            case "timestamp-micros": return micros((Long) value);
            case "local-timestamp-millis": return LocalDateTime.ofInstant(Instant.ofEpochMilli((Long) value), ZoneOffset.UTC);
            case "local-timestamp-micros": return LocalDateTime.ofInstant(micros((Long) value), ZoneOffset.UTC);
            default: return value;
        }
    }

    private static Instant micros(long value) {
        return Instant.ofEpochSecond(Math.floorDiv(value, 1_000_000L), Math.floorMod(value, 1_000_000L) * 1_000L);
    }
}
