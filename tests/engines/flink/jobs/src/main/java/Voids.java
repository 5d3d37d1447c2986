import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.typeutils.ValueTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.types.NullValue;
import org.apache.flink.util.Collector;

/** Values that say nothing: maps to Void that are sets, Flink's NullValue, and Void inside of other types. */
public final class Voids implements Job {
    static final TypeInformation<NullValue> NULL = ValueTypeInfo.NULL_VALUE_TYPE_INFO;
    static final MapStateDescriptor<String, Void> MEMBERS = new MapStateDescriptor<>("members", Types.STRING, Types.VOID);
    static final MapStateDescriptor<Integer, NullValue> NUMBERS = new MapStateDescriptor<>("numbers", Types.INT, NULL);

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG)
            .setParallelism(1).uid("src");
        events.keyBy(id -> id % 11, Types.LONG).process(new Sets()).returns(Types.LONG).uid("sets").sinkTo(new DiscardingSink<>());
        events.connect(events.broadcast(MEMBERS, NUMBERS)).process(new Everywhere()).returns(Types.LONG).uid("everywhere")
            .sinkTo(new DiscardingSink<>());
    }

    public static final class Visitor {
        public String name;
        public Void nothing;
        public long at;
    }

    static final Map<String, TreeMap<Object, Object>> MAPS = new ConcurrentHashMap<>();

    static final class Sets extends KeyedProcessFunction<Long, Long, Long> {
        private transient MapState<String, Void> tags;
        private transient MapState<Long, NullValue> numbers;
        private transient MapState<String, Void> expiring;
        private transient ValueState<NullValue> flag;
        private transient ValueState<NullValue> lapsing;
        private transient ListState<NullValue> marks;
        private transient ValueState<Map<String, Void>> set;
        private transient ValueState<List<Void>> many;
        private transient ValueState<Tuple3<Long, Void, String>> tuple;
        private transient ValueState<Visitor> visitor;
        private transient ValueState<Long> last;

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofDays(30)).build();
            MapStateDescriptor<String, Void> third = new MapStateDescriptor<>("expiring", Types.STRING, Types.VOID);
            ValueStateDescriptor<NullValue> fifth = new ValueStateDescriptor<>("lapsing", NULL);
            third.enableTimeToLive(ttl);
            fifth.enableTimeToLive(ttl);
            tags = runtime.getMapState(new MapStateDescriptor<>("tags", Types.STRING, Types.VOID));
            numbers = runtime.getMapState(new MapStateDescriptor<>("numbers", Types.LONG, NULL));
            expiring = runtime.getMapState(third);
            flag = runtime.getState(new ValueStateDescriptor<>("flag", NULL));
            lapsing = runtime.getState(fifth);
            marks = runtime.getListState(new ListStateDescriptor<>("marks", NULL));
            set = runtime.getState(new ValueStateDescriptor<>("set", Types.MAP(Types.STRING, Types.VOID)));
            many = runtime.getState(new ValueStateDescriptor<>("many", Types.LIST(Types.VOID)));
            tuple = runtime.getState(new ValueStateDescriptor<>("tuple", Types.TUPLE(Types.LONG, Types.VOID, Types.STRING)));
            visitor = runtime.getState(new ValueStateDescriptor<>("visitor", Types.POJO(Visitor.class)));
            last = runtime.getState(new ValueStateDescriptor<>("last", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            Long key = context.getCurrentKey();
            tags.put("t" + id, null);
            mirror("tags", key, "t" + id, true);
            if (id % 4 == 3) {
                tags.remove("t" + (id - 11));
                mirror("tags", key, "t" + (id - 11), false);
            }
            numbers.put(-id, NullValue.getInstance());
            mirror("numbers", key, -id, true);
            expiring.put("e" + id % 3, null);
            mirror("expiring", key, "e" + id % 3, true);
            boolean set = id % 3 != 0;
            nothing(flag, "flag", key, set);
            nothing(lapsing, "lapsing", key, set);
            marks.add(NullValue.getInstance());
            int held = 0;
            for (NullValue each : marks.get()) held++;
            Truth.put("sets", "marks", "list", key, null, Collections.nCopies(held, null));
            nested(id, key);
            last.update(id);
            Truth.put("sets", "last", "value", key, null, id);
        }

        private void nested(Long id, Long key) throws Exception {
            Map<String, Void> names = new LinkedHashMap<>();
            for (int i = 0; i < id % 4; i++) names.put("n" + i, null);
            set.update(names);
            Truth.put("sets", "set", "value", key, null, names);
            List<Void> several = Arrays.asList(new Void[(int) (id % 3)]);
            many.update(several);
            Truth.put("sets", "many", "value", key, null, several);
            Tuple3<Long, Void, String> three = Tuple3.of(id, null, "s" + id);
            tuple.update(three);
            Truth.put("sets", "tuple", "value", key, null, three);
            Visitor one = new Visitor();
            one.name = id % 2 == 0 ? null : "v" + id;
            one.at = id;
            visitor.update(one);
            Truth.put("sets", "visitor", "value", key, null, one);
        }

        private static void nothing(ValueState<NullValue> state, String name, Long key, boolean set) throws Exception {
            if (set) {
                state.update(NullValue.getInstance());
                Truth.putNull("sets", name, "value", key, null);
            } else {
                state.clear();
                Truth.put("sets", name, "value", key, null, null);
            }
        }

        private static void mirror(String state, Long key, Object entry, boolean added) {
            TreeMap<Object, Object> entries = MAPS.computeIfAbsent(state + key, each -> new TreeMap<>());
            if (added) entries.put(entry, null);
            else entries.remove(entry);
            Truth.put("sets", state, "map", key, null, JsonText.pairs(entries.entrySet()));
        }
    }

    static final class Everywhere extends BroadcastProcessFunction<Long, Long, Long> implements CheckpointedFunction {
        private transient ListState<NullValue> signs;

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            signs = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("signs", NULL));
        }

        @Override public void processElement(Long id, ReadOnlyContext context, Collector<Long> out) throws Exception {
            signs.add(NullValue.getInstance());
        }

        @Override public void processBroadcastElement(Long id, Context context, Collector<Long> out) throws Exception {
            BroadcastState<String, Void> members = context.getBroadcastState(MEMBERS);
            members.put("m" + id % 9, null);
            if (id % 5 == 4) members.remove("m" + (id + 4) % 9);
            context.getBroadcastState(NUMBERS).put((int) (id % 6) - 2, NullValue.getInstance());
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            Truth.put("everywhere", "members", "broadcast", subtask, null, JsonText.pairs(members.entries()));
            TreeMap<Object, Object> plain = new TreeMap<>();
            for (Map.Entry<Integer, NullValue> each : context.getBroadcastState(NUMBERS).entries()) plain.put(each.getKey(), null);
            Truth.put("everywhere", "numbers", "broadcast", subtask, null, JsonText.pairs(plain.entrySet()));
        }

        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            int held = 0;
            for (NullValue each : signs.get()) held++;
            Truth.put("everywhere", "signs", "operator-list", getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), null,
                held == 0 ? null : Collections.nCopies(held, null));
        }
    }
}
