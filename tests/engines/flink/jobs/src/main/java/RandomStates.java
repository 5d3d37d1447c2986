import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.function.Function;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.BasicArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.BasicTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.EitherTypeInfo;
import org.apache.flink.api.java.typeutils.PojoTypeInfo;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.formats.avro.typeutils.AvroTypeInfo;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.runtime.util.EnvironmentInformation;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.Collector;
import shop.Animals;
import shop.GenericRecords;
import shop.Measurement;
import shop.Order;

/** State of random kinds and types, with random keys; the option seed says which. */
@SuppressWarnings({"unchecked", "rawtypes"})
public final class RandomStates implements Job {
    static final String[] NAMES = {"plain", "st/ate", "a.b", "sp ace", "q'uote\"", "\u00e9\u20ac", "$x", "UPPER", "upper",
        "semi;colon=1", "%41", "_and_behind"};

    static final boolean OLD = EnvironmentInformation.getVersion().startsWith("1.");
    static final class Kind {
        final TypeInformation type;
        final Function<Random, Object> make;
        Kind(TypeInformation type, Function<Random, Object> make) { this.type = type; this.make = make; }
    }

    public static class Box {
        public Object a, b, c;
        public Box() {}

        @Override public boolean equals(Object o) {
            if (!(o instanceof Box)) return false;
            Box other = (Box) o;
            return Objects.equals(a, other.a) && Objects.equals(b, other.b) && Objects.equals(c, other.c);
        }

        @Override public int hashCode() {
            return Objects.hash(a, b, c);
        }
    }

    static String text(Random r) {
        String[] some = {"", ",", "\u0000", "a", "\ud83d\ude00", "n,n", "\u20ac\u00e9", "line\nbreak"};
        int n = r.nextInt(30);
        if (n < some.length) return some[n];
        if (n == 29) return "x".repeat(r.nextInt(40_000));
        return "t" + r.nextInt(50);
    }
    static long number(Random r) {
        long[] some = {0, -1, 1, Long.MAX_VALUE, Long.MIN_VALUE, 0x2c2c2c2c2c2c2c2cL};
        return r.nextInt(4) == 0 ? some[r.nextInt(some.length)] : r.nextLong() >> r.nextInt(64);
    }
    static LocalDate day(Random r) { return LocalDate.of(1 + r.nextInt(9998), 1 + r.nextInt(12), 1 + r.nextInt(28)); }
    static LocalDate near(Random r) { return LocalDate.of(1700 + r.nextInt(500), 1 + r.nextInt(12), 1 + r.nextInt(28)); }
    static double real(Random r) {
        double[] some = {0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.MIN_VALUE, 0.1};
        return r.nextInt(3) == 0 ? some[r.nextInt(some.length)] : r.nextGaussian() * 1e6;
    }

    static Kind leaf(Random s, boolean key) {
        switch (s.nextInt(key ? 12 : 26)) {
            case 0: return new Kind(Types.STRING, RandomStates::text);
            case 1: return new Kind(Types.LONG, RandomStates::number);
            case 2: return new Kind(Types.INT, r -> (int) number(r));
            case 3: return new Kind(Types.SHORT, r -> (short) number(r));
            case 4: return new Kind(Types.BYTE, r -> (byte) number(r));
            case 5: return new Kind(Types.BOOLEAN, Random::nextBoolean);
            case 6: return new Kind(Types.CHAR, r -> (char) ("a\u0000\u20ac\uffff,z".charAt(r.nextInt(6))));
            case 7: return new Kind(Types.BIG_INT, r -> new BigInteger(r.nextInt(200), r).subtract(BigInteger.valueOf(r.nextInt(3))));
            case 8: return new Kind(Types.BIG_DEC, r -> new BigDecimal(new BigInteger(r.nextInt(120), r), r.nextInt(40) - 10));
            case 9: return new Kind(Types.LOCAL_DATE, RandomStates::day);
            case 10: return new Kind(Types.INSTANT, r -> Instant.ofEpochSecond(r.nextInt(), r.nextInt(1_000_000_000)));
            case 11: return new Kind(Types.SQL_TIMESTAMP, r -> {
                java.sql.Timestamp t = new java.sql.Timestamp(r.nextInt() * 1000L);
                t.setNanos(r.nextInt(1_000_000_000));
                return t;
            });
            case 12: return new Kind(Types.LOCAL_TIME, r -> LocalTime.ofNanoOfDay((r.nextLong() >>> 1) % 86_400_000_000_000L));
            case 13: return new Kind(Types.LOCAL_DATE_TIME, r -> near(r).atTime(LocalTime.ofNanoOfDay((r.nextLong() >>> 1) % 86_400_000_000_000L)));
            case 14: return new Kind(Types.SQL_DATE, r -> new java.sql.Date(r.nextInt() * 1000L));
            case 15: return new Kind(BasicTypeInfo.DATE_TYPE_INFO, r -> new Date(r.nextInt() * 1000L));
            case 16: return new Kind(Types.ENUM(Animals.Size.class), r -> Animals.Size.values()[r.nextInt(2)]);
            case 17: return new Kind(Types.PRIMITIVE_ARRAY(Types.BYTE), r -> { byte[] b = new byte[r.nextInt(6)]; r.nextBytes(b); return b; });
            case 18: return new Kind(Types.PRIMITIVE_ARRAY(Types.INT), r -> r.ints(r.nextInt(4)).toArray());
            case 19: return new Kind(BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO, 
                r -> new String[] {text(r), r.nextBoolean() ? null : text(r)});
            case 20: // the list of an order is Kryo's before Flink 2
                if (OLD) return new Kind(Types.STRING, RandomStates::text);
                return new Kind(TypeInformation.of(Order.class), r -> Order.of(r.nextInt(1000)));
            case 21: return new Kind(new AvroTypeInfo(Measurement.class), r -> Measurement.of(r.nextInt(1000)));
            case 22: return new Kind(new GenericRecordAvroTypeInfo(GenericRecords.schema(false)),
                r -> GenericRecords.of(GenericRecords.schema(false), r.nextInt(1000)));
            case 23: return new Kind(Types.DOUBLE, RandomStates::real);
            case 24: return new Kind(Types.FLOAT, r -> (float) real(r));
            default: return new Kind(TypeInformation.of(Animals.Animal.class), r -> {
                Animals.Animal a = Animals.animal(r.nextInt(1000), false);
                boolean odd = a instanceof Animals.Dog && ((Animals.Dog) a).tricks == null; // as if it were no dog, in the truth
                return a == null || odd || a instanceof Animals.Puppy ? new Animals.Animal() : a; // Kryo writes a puppy's mother
            });
        }
    }

    static Kind kind(Random s, int depth, boolean key) {
        if (depth == 0 || s.nextInt(3) == 0) {
            return leaf(s, key);
        }
        switch (s.nextInt(key ? 3 : 9)) {
            case 0: {
                Kind[] parts = kinds(s, 1 + s.nextInt(4), depth, key);
                return new Kind(new TupleTypeInfo(types(parts)), r -> {
                    Tuple t = Tuple.newInstance(parts.length);
                    for (int i = 0; i < parts.length; i++) t.setField(parts[i].make.apply(r), i);
                    return t;
                });
            }
            case 1: {
                Kind[] parts = kinds(s, 1 + s.nextInt(9), depth, key);
                return new Kind(Types.ROW(types(parts)), r -> {
                    Row t = new Row(parts.length);
                    for (int i = 0; i < parts.length; i++) t.setField(i, r.nextInt(4) == 0 ? null : parts[i].make.apply(r));
                    if (!key) t.setKind(RowKind.values()[r.nextInt(4)]);
                    return t;
                });
            }
            case 2: {
                Kind[] parts = kinds(s, 3, depth, key);
                Map<String, TypeInformation<?>> fields = new HashMap<>();
                fields.put("a", parts[0].type); fields.put("b", parts[1].type); fields.put("c", parts[2].type);
                return new Kind(Types.POJO(Box.class, fields), r -> {
                    Box b = new Box();
                    b.a = r.nextInt(4) == 0 ? null : parts[0].make.apply(r);
                    b.b = r.nextInt(4) == 0 ? null : parts[1].make.apply(r);
                    b.c = r.nextInt(4) == 0 ? null : parts[2].make.apply(r);
                    return b;
                });
            }
            case 3: case 4: {
                Kind part = kind(s, depth - 1, false);
                return new Kind(Types.LIST(part.type), r -> {
                    List l = new ArrayList();
                    for (int n = r.nextInt(4); n > 0; n--) l.add(part.make.apply(r));
                    return l;
                });
            }
            case 5: {
                Kind key2 = kind(s, 1, true), part = kind(s, depth - 1, false);
                return new Kind(Types.MAP(key2.type, part.type), r -> {
                    Map l = new HashMap();
                    for (int n = r.nextInt(4); n > 0; n--) l.put(key2.make.apply(r), r.nextInt(4) == 0 ? null : part.make.apply(r));
                    return l;
                });
            }
            case 6: {
                Kind part = kind(s, depth - 1, false);
                while (part.type instanceof PrimitiveArrayTypeInfo || part.type instanceof BasicArrayTypeInfo) part = kind(s, depth - 1, false);
                Kind p = part;
                return new Kind(Types.OBJECT_ARRAY(p.type), r -> {
                    Object[] l = (Object[]) Array.newInstance(p.type.getTypeClass(), r.nextInt(4));
                    for (int i = 0; i < l.length; i++) l[i] = r.nextInt(4) == 0 ? null : p.make.apply(r);
                    return l;
                });
            }
            case 7: {
                Kind one = kind(s, depth - 1, false), two = kind(s, depth - 1, false);
                return new Kind(new EitherTypeInfo(one.type, two.type),
                    r -> r.nextBoolean() ? Either.Left(one.make.apply(r)) : Either.Right(two.make.apply(r)));
            }
            default:
                return kind(s, depth, key);
        }
    }

    static Kind[] kinds(Random s, int n, int depth, boolean key) {
        Kind[] out = new Kind[n];
        for (int i = 0; i < n; i++) out[i] = kind(s, depth - 1, key);
        return out;
    }

    static TypeInformation<?>[] types(Kind[] parts) {
        return Arrays.stream(parts).map(p -> p.type).toArray(TypeInformation[]::new);
    }

    static Kind keyKind(long seed) { return kind(new Random(seed), 2, true); }
    static Object keyAt(long seed, long id) { return keyKind(seed).make.apply(new Random(seed * 31 + id % 23)); }

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        SerializerConfigImpl serializers = (SerializerConfigImpl) env.getConfig().getSerializerConfig();
        serializers.registerPojoType(Animals.Dog.class);
        serializers.registerPojoType(Animals.Puppy.class);
        long seed = Long.parseLong(options.getOrDefault("seed", "1"));
        boolean expires = options.getOrDefault("ttl", "false").equals("true");
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG)
            .setParallelism(1).uid("src");
        int n = Integer.parseInt(options.getOrDefault("operators", "3"));
        for (int i = 0; i < n; i++) {
            long own = seed * 100 + i;
            events.keyBy((Long id) -> keyAt(own, id), (TypeInformation) keyKind(own).type).process(new Keyed(own, "k" + i, expires))
                .returns(Types.LONG).uid("k" + i).sinkTo(new DiscardingSink<>());
        }
        if (options.getOrDefault("lists", "true").equals("true")) {
            long own = seed * 100 + 50;
            MapStateDescriptor<?, ?> d = broadcast(own);
            events.rebalance().connect(events.broadcast(d)).process(new Lists(own)).returns(Types.LONG).uid("lists")
                .sinkTo(new DiscardingSink<>());
        }
    }
    static MapStateDescriptor broadcast(long seed) {
        Random s = new Random(seed + 7);
        return new MapStateDescriptor("bro/adcast", kind(s, 2, true).type, kind(s, 2, false).type);
    }

    static final class Last implements AggregateFunction<Object, Object, Object> {
        final long seed; final int number;
        Last(long seed, int number) { this.seed = seed; this.number = number; }
        @Override public Object createAccumulator() { return kindOf(seed, number).make.apply(new Random(0)); }
        @Override public Object add(Object v, Object acc) { return v; }
        @Override public Object getResult(Object acc) { return acc; }
        @Override public Object merge(Object a, Object b) { return b; }
    }
    static Kind kindOf(long seed, int number) { return kind(new Random(seed * 17 + number), 3, false); }
    static Kind mapKeyOf(long seed, int number) { return kind(new Random(seed * 19 + number), 2, true); }

    static final class Keyed extends KeyedProcessFunction<Object, Long, Long> {
        final long seed; final String me; final boolean ttl;
        transient State[] states; transient Kind[] kinds, mapKeys; transient String[] names;
        Keyed(long seed, String me, boolean ttl) { this.seed = seed; this.me = me; this.ttl = ttl; }
        @Override public void open(OpenContext context) {
            Random s = new Random(seed);
            int n = 6;
            states = new State[n]; kinds = new Kind[n]; mapKeys = new Kind[n]; names = new String[n];
            for (int i = 0; i < n; i++) {
                kinds[i] = kindOf(seed, i);
                mapKeys[i] = mapKeyOf(seed, i);
                names[i] = NAMES[(int) ((seed + i * 5) % NAMES.length)];
                StateDescriptor d;
                switch (i % 5) {
                    case 0: d = new ValueStateDescriptor(names[i], kinds[i].type); break;
                    case 1: d = new ListStateDescriptor(names[i], kinds[i].type); break;
                    case 2: d = new MapStateDescriptor(names[i], mapKeys[i].type, kinds[i].type); break;
                    case 3: d = new ReducingStateDescriptor(names[i], (a, b) -> b, kinds[i].type); break;
                    default: d = new AggregatingStateDescriptor(names[i], new Last(seed, i), kinds[i].type); break;
                }
                if (ttl && (seed + i) % 2 == 0) d.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(30)).build());
                switch (i % 5) {
                    case 0: states[i] = getRuntimeContext().getState((ValueStateDescriptor) d); break;
                    case 1: states[i] = getRuntimeContext().getListState((ListStateDescriptor) d); break;
                    case 2: states[i] = getRuntimeContext().getMapState((MapStateDescriptor) d); break;
                    case 3: states[i] = getRuntimeContext().getReducingState((ReducingStateDescriptor) d); break;
                    default: states[i] = getRuntimeContext().getAggregatingState((AggregatingStateDescriptor) d);
                }
            }
        }
        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            Random r = new Random(seed * 1_000_003 + id);
            Object key = context.getCurrentKey();
            for (int i = 0; i < states.length; i++) {
                if (r.nextInt(5) == 0) continue;
                boolean clear = r.nextInt(12) == 0;
                State st = states[i];
                if (clear) st.clear();
                Object v = kinds[i].make.apply(r);
                String kind; Object now;
                switch (i % 5) {
                    case 0: if (!clear) ((ValueState) st).update(v); kind = "value"; now = ((ValueState) st).value(); break;
                    case 1: {
                        ListState l = (ListState) st;
                        if (!clear) {
                            for (int j = r.nextInt(3); j >= 0; j--) l.add(kinds[i].make.apply(r));
                            if (r.nextInt(6) == 0) l.update(Arrays.asList(v, v));
                        }
                        kind = "list";
                        now = l.get();
                        if (now == null || !((Iterable) now).iterator().hasNext()) now = null;
                        break;
                    }
                    case 2: {
                        MapState m = (MapState) st;
                        for (int j = 0; j < 2 && !clear; j++) {
                            Object k = mapKeys[i].make.apply(r);
                            boolean empty = r.nextInt(6) == 0 && (kinds[i].type.equals(Types.STRING) || kinds[i].type instanceof PojoTypeInfo);
                            m.put(k, empty ? null : kinds[i].make.apply(r));
                            if (r.nextInt(4) == 0) m.remove(k);
                        }
                        kind = "map";
                        now = m.isEmpty() ? null : JsonText.pairs(m.entries());
                        break;
                    }
                    case 3: if (!clear) ((ReducingState) st).add(v); kind = "reducing"; now = ((ReducingState) st).get(); break;
                    default: if (!clear) ((AggregatingState) st).add(v); kind = "aggregating"; now = ((AggregatingState) st).get();
                }
                Truth.put(me, names[i], kind, key, null, now);
            }
            if (r.nextInt(3) == 0) {
                long at = 4_000_000_000_000L + r.nextInt(50);
                context.timerService().registerEventTimeTimer(at);
                Truth.timer(me, "_timer_state/event_user-timers", key, null, at, true);
            }
        }
    }

    static final class Lists extends BroadcastProcessFunction<Long, Long, Long> implements CheckpointedFunction {
        final long seed;
        transient ListState split, union, other;
        Lists(long seed) { this.seed = seed; }
        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            split = context.getOperatorStateStore().getListState(new ListStateDescriptor("split;x", kindOf(seed, 1).type));
            union = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor("uni on", kindOf(seed, 2).type));
            other = context.getOperatorStateStore().getListState(new ListStateDescriptor("other", kindOf(seed, 3).type));
            if (context.isRestored()) {
                List mine = new ArrayList();
                int i = 0, count = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
                for (Object each : (Iterable) union.get())
                    if (i++ % count == getRuntimeContext().getTaskInfo().getIndexOfThisSubtask()) mine.add(each);
                union.update(mine);
            }
        }
        @Override public void processElement(Long id, ReadOnlyContext context, Collector<Long> out) throws Exception {
            Random r = new Random(seed * 7 + id);
            split.add(kindOf(seed, 1).make.apply(r));
            if (id % 2 == 0) union.add(kindOf(seed, 2).make.apply(r));
            if (id % 3 == 0) other.add(kindOf(seed, 3).make.apply(r));
        }
        @Override public void processBroadcastElement(Long id, Context context, Collector<Long> out) throws Exception {
            Random r = new Random(seed * 9 + id);
            Random s = new Random(seed + 7);
            Kind k = kind(s, 2, true), v = kind(s, 2, false);
            BroadcastState b = context.getBroadcastState(broadcast(seed));
            Object key = k.make.apply(new Random(id % 15));
            if (id % 11 == 10) b.remove(key); else b.put(key, v.make.apply(r));
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            Truth.put("lists", "bro/adcast", "broadcast", subtask, null, JsonText.pairs(b.entries()));
        }
        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            put("split;x", "operator-list", subtask, split);
            put("uni on", "operator-union", subtask, union);
            put("other", "operator-list", subtask, other);
        }
        static void put(String state, String kind, int subtask, ListState list) throws Exception {
            List<Object> elements = new ArrayList<>();
            for (Object each : (Iterable) list.get()) elements.add(each);
            Truth.put("lists", state, kind, subtask, null, elements.isEmpty() ? null : elements);
        }
    }
}
