import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.BasicTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.EitherTypeInfo;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.BooleanValue;
import org.apache.flink.types.Either;
import org.apache.flink.types.IntValue;
import org.apache.flink.types.LongValue;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.types.StringValue;
import org.apache.flink.util.Collector;
import shop.Animals;

/** A value state for each type that is not an everyday one, with the extremes and nulls that the type allows. */
public final class Shapes implements Job {
    private static final LinkedHashMap<String, TypeInformation<?>> TYPES = new LinkedHashMap<>();

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        SerializerConfigImpl serializers = (SerializerConfigImpl) env.getConfig().getSerializerConfig();
        serializers.registerPojoType(Animals.Dog.class);
        serializers.registerPojoType(Animals.Puppy.class);
        types();
        boolean unregistered = options.getOrDefault("unregistered", "false").equals("true");
        env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src")
            .keyBy(id -> LocalDate.of(2000, 1, 1).plusDays(id % 29 * 40), Types.LOCAL_DATE).process(new Values(unregistered)).returns(Types.LONG)
            .uid("shapes").sinkTo(new DiscardingSink<>());
    }

    private static void types() {
        TYPES.put("animal", TypeInformation.of(Animals.Animal.class));
        TYPES.put("visit", TypeInformation.of(Animals.Visit.class));
        TYPES.put("either", new EitherTypeInfo<>(Types.STRING, Types.TUPLE(Types.LONG, Types.BOOLEAN)));
        TYPES.put("nested", Types.LIST(Types.MAP(Types.STRING, Types.TUPLE(Types.LIST(Types.LONG), new EitherTypeInfo<>(Types.INT, Types.STRING)))));
        TYPES.put("rows", Types.ROW_NAMED(new String[] {"a", "b", "c"}, Types.LONG, Types.ROW(Types.STRING, Types.BOOLEAN), Types.LIST(Types.ROW(Types.INT))));
        TYPES.put("wide-row", Types.ROW(Types.INT, Types.INT, Types.INT, Types.INT, Types.INT, Types.INT, Types.INT, Types.INT, Types.STRING));
        TYPES.put("local-date", Types.LOCAL_DATE);
        TYPES.put("local-time", Types.LOCAL_TIME);
        TYPES.put("local-date-time", Types.LOCAL_DATE_TIME);
        TYPES.put("instant", Types.INSTANT);
        TYPES.put("sql-date", Types.SQL_DATE);
        TYPES.put("sql-time", Types.SQL_TIME);
        TYPES.put("sql-timestamp", Types.SQL_TIMESTAMP);
        TYPES.put("date", BasicTypeInfo.DATE_TYPE_INFO);
        TYPES.put("big-integer", Types.BIG_INT);
        TYPES.put("big-decimal", Types.BIG_DEC);
        TYPES.put("double", Types.DOUBLE);
        TYPES.put("float", Types.FLOAT);
        TYPES.put("string", Types.STRING);
        TYPES.put("shorts", PrimitiveArrayTypeInfo.SHORT_PRIMITIVE_ARRAY_TYPE_INFO);
        TYPES.put("floats", PrimitiveArrayTypeInfo.FLOAT_PRIMITIVE_ARRAY_TYPE_INFO);
        TYPES.put("booleans", PrimitiveArrayTypeInfo.BOOLEAN_PRIMITIVE_ARRAY_TYPE_INFO);
        TYPES.put("chars", PrimitiveArrayTypeInfo.CHAR_PRIMITIVE_ARRAY_TYPE_INFO);
        TYPES.put("boxed", Types.OBJECT_ARRAY(Types.LONG));
        TYPES.put("dates-in-map", Types.MAP(Types.LOCAL_DATE, Types.INSTANT));
        TYPES.put("enum-in-map", Types.MAP(Types.ENUM(Animals.Size.class), Types.LIST(Types.ENUM(Animals.Size.class))));
        TYPES.put("int-value", ValueTypeInfo.INT_VALUE_TYPE_INFO);
        TYPES.put("long-value", ValueTypeInfo.LONG_VALUE_TYPE_INFO);
        TYPES.put("string-value", ValueTypeInfo.STRING_VALUE_TYPE_INFO);
        TYPES.put("boolean-value", ValueTypeInfo.BOOLEAN_VALUE_TYPE_INFO);
        try { // Flink 2 only
            TYPES.put("set", (TypeInformation<?>) Types.class.getMethod("SET", TypeInformation.class).invoke(null, Types.STRING));
        } catch (ReflectiveOperationException e) {
            TYPES.remove("set");
        }
    }

    private static Map<String, Object> values(long id, boolean unregistered) {
        int i = (int) id;
        Map<String, Object> v = new LinkedHashMap<>();
        v.put("animal", Animals.animal(id, unregistered));
        v.put("visit", new Animals.Visit(i % 4 == 0 ? null : "p" + i, id, i % 3 == 0 ? null : Animals.Size.LARGE, i % 2 == 0 ? null : i));
        v.put("either", i % 2 == 0 ? Either.Left("l" + i) : Either.Right(Tuple2.of(id, i % 3 == 0)));
        Map<String, Object> inner = new HashMap<>();
        inner.put("a", Tuple2.of(Arrays.asList(id, -id), Either.Left(i)));
        inner.put("none", null);
        inner.put("b", Tuple2.of(Arrays.asList(), Either.Right("r")));
        v.put("nested", i % 5 == 0 ? Arrays.asList() : Arrays.asList(inner, new HashMap<>()));
        Row row = Row.of(i % 2 == 0 ? null : id, i % 3 == 0 ? null : Row.of(null, true), Arrays.asList(Row.of(i), Row.of((Object) null)));
        row.setKind(RowKind.values()[i % 4]);
        v.put("rows", row);
        v.put("wide-row", Row.of(1, null, i, null, null, 6, 7, i % 2 == 0 ? null : 8, i % 3 == 0 ? null : "last"));
        LocalDate[] days = {LocalDate.of(1970, 1, 1), LocalDate.of(1, 1, 1), LocalDate.of(9999, 12, 31), LocalDate.of(-44, 3, 15), LocalDate.of(1582, 10, 14), null};
        v.put("local-date", days[i % 6]);
        LocalTime[] times = {LocalTime.MIDNIGHT, LocalTime.MAX, LocalTime.of(12, 34, 56, 789_012_345), null};
        v.put("local-time", times[i % 4]);
        v.put("local-date-time", days[i % 6] == null ? null : LocalDateTime.of(days[i % 6], times[i % 3]));
        Instant[] instants = {Instant.EPOCH, Instant.ofEpochSecond(-1, 999_999_999), Instant.parse("9999-12-31T23:59:59.999999999Z"), Instant.parse("0001-01-01T00:00:00Z"), null};
        v.put("instant", instants[i % 5]);
        v.put("sql-date", i % 4 == 0 ? null : new java.sql.Date(-86_400_000L * i));
        v.put("sql-time", i % 4 == 1 ? null : new java.sql.Time(3_600_000L * i));
        java.sql.Timestamp stamp = new java.sql.Timestamp(-1_000L * i);
        stamp.setNanos(999_999_999 - i);
        v.put("sql-timestamp", i % 4 == 2 ? null : stamp);
        v.put("date", i % 4 == 3 ? null : new Date(-1L - i));
        BigInteger[] whole = {BigInteger.ZERO, BigInteger.ONE, BigInteger.TEN, BigInteger.ONE.negate(), BigInteger.ONE.shiftLeft(200), BigInteger.ONE.shiftLeft(127).negate(), null};
        v.put("big-integer", whole[i % 7]);
        BigDecimal[] exact = {BigDecimal.ZERO, BigDecimal.ONE, BigDecimal.TEN, new BigDecimal("0.000"), new BigDecimal("-1E+20"), new BigDecimal("12345678901234567890123456789.0123456789"), new BigDecimal("1e-40"), null};
        v.put("big-decimal", exact[i % 8]);
        double[] doubles = {0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Double.MIN_VALUE, Double.MAX_VALUE};
        v.put("double", doubles[i % 7]);
        float[] floats = {0.1f, -0.0f, Float.NaN, Float.POSITIVE_INFINITY, Float.MIN_VALUE, Float.MAX_VALUE};
        v.put("float", floats[i % 6]);
        String[] texts = {"", "\u0000", "\u007f\u0080\u00ff\u3fff\u4000", "\ud83d\ude00 \ud800 alone", "x".repeat(20_000), null};
        v.put("string", texts[i % 6]);
        v.put("shorts", i % 3 == 0 ? new short[0] : new short[] {Short.MIN_VALUE, (short) i});
        v.put("floats", new float[] {i / 4f, -1f});
        v.put("booleans", new boolean[] {true, i % 2 == 0, false});
        v.put("chars", new char[] {'a', '\u20ac', (char) i});
        v.put("boxed", new Long[] {id, null, Long.MIN_VALUE});
        Map<LocalDate, Instant> dates = new HashMap<>();
        dates.put(LocalDate.of(2024, 2, 29), Instant.ofEpochSecond(id));
        dates.put(LocalDate.of(1999, 1, 1), null);
        v.put("dates-in-map", dates);
        Map<Animals.Size, List<Animals.Size>> sizes = new HashMap<>();
        sizes.put(Animals.Size.LARGE, Arrays.asList(Animals.Size.SMALL, Animals.Size.LARGE));
        v.put("enum-in-map", sizes);
        v.put("int-value", new IntValue(-i));
        v.put("long-value", new LongValue(id << 40));
        v.put("string-value", new StringValue("s\u00e4\u20ac" + i));
        v.put("boolean-value", new BooleanValue(i % 2 == 0));
        Set<String> set = new HashSet<>(Arrays.asList("a", "", "s" + i % 3));
        v.put("set", set);
        return v;
    }

    /** A value type's plain value, for the truth. */
    private static Object plain(Object value) {
        if (value instanceof IntValue) return ((IntValue) value).getValue();
        if (value instanceof LongValue) return ((LongValue) value).getValue();
        if (value instanceof StringValue) return ((StringValue) value).getValue();
        if (value instanceof BooleanValue) return ((BooleanValue) value).getValue();
        if (value instanceof Animals.Visit) {
            Animals.Visit visit = (Animals.Visit) value;
            return new VisitText(visit.place(), visit.at(), visit.size(), visit.guests());
        }
        return value;
    }

    /** The fields of a record, which are not public. */
    static final class VisitText {
        public final String place;
        public final long at;
        public final Animals.Size size;
        public final Integer guests;

        VisitText(String place, long at, Animals.Size size, Integer guests) {
            this.place = place;
            this.at = at;
            this.size = size;
            this.guests = guests;
        }
    }

    static final class Values extends KeyedProcessFunction<LocalDate, Long, Long> {
        private final boolean unregistered;
        private transient Map<String, ValueState<Object>> states;

        Values(boolean unregistered) {
            this.unregistered = unregistered;
        }

        @SuppressWarnings({"unchecked", "rawtypes"})
        @Override public void open(OpenContext context) {
            states = new LinkedHashMap<>();
            TYPES.forEach((name, type) -> states.put(name, (ValueState) getRuntimeContext().getState(new ValueStateDescriptor(name, type))));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            for (Map.Entry<String, Object> each : values(id, unregistered).entrySet()) {
                if (!states.containsKey(each.getKey())) continue;
                states.get(each.getKey()).update(each.getValue());
                Truth.put("shapes", each.getKey(), "value", context.getCurrentKey(), null, plain(each.getValue()));
            }
        }
    }
}
