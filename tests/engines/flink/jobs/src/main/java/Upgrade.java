import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Subscriber;

/** A POJO that gains two fields while the job is down: restart with upgraded=true. */
public final class Upgrade implements Job {
    private long until = Long.MAX_VALUE;
    private boolean upgraded;

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        upgraded = options.getOrDefault("upgraded", "false").equals("true");
        if (upgraded) until = GatedSource.GATE.get();
        env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src")
            .keyBy(id -> id % 31, Types.LONG).process(new Keep(upgraded)).returns(Types.LONG).uid("subscribers").sinkTo(new DiscardingSink<>());
    }

    @Override public void derive(long events) {
        Map<Long, List<Object>> lists = new TreeMap<>();
        Map<Long, TreeMap<String, Object>> maps = new TreeMap<>();
        for (long id = 0; id < events; id++) {
            long key = id % 31;
            if (upgraded && id >= until && key % 2 == 0) continue; // only others are touched after the upgrade
            Object shape = shape(id);
            Truth.put("subscribers", "one", "value", key, null, shape);
            lists.computeIfAbsent(key, each -> new ArrayList<>()).add(shape);
            Truth.put("subscribers", "many", "list", key, null, lists.get(key));
            maps.computeIfAbsent(key, each -> new TreeMap<>()).put("m" + id % 3, Arrays.asList("m" + id % 3, shape));
            Truth.put("subscribers", "by-name", "map", key, null, new ArrayList<>(maps.get(key).values()));
        }
    }

    private Object shape(long id) {
        Subscriber value = Subscriber.of(id);
        if (!upgraded) return new Before(value.id, value.kept, value.note);
        return id < until ? new After(value.id, value.kept, value.note, null, 0) : new After(value.id, value.kept, value.note, value.added, value.plus);
    }

    static final class Before {
        public final long id;
        public final Integer kept;
        public final String note;

        Before(long id, Integer kept, String note) {
            this.id = id;
            this.kept = kept;
            this.note = note;
        }
    }

    static final class After {
        public final long id;
        public final Integer kept;
        public final String note;
        public final String added;
        public final double plus;

        After(long id, Integer kept, String note, String added, double plus) {
            this.id = id;
            this.note = note;
            this.kept = kept;
            this.added = added;
            this.plus = plus;
        }
    }

    static final class Keep extends KeyedProcessFunction<Long, Long, Long> {
        private final boolean upgraded;
        private transient ValueState<Subscriber> one;
        private transient ListState<Subscriber> many;
        private transient MapState<String, Subscriber> named;

        Keep(boolean upgraded) {
            this.upgraded = upgraded;
        }

        @Override public void open(OpenContext context) {
            TypeInformation<Subscriber> type = Subscriber.type(upgraded);
            one = getRuntimeContext().getState(new ValueStateDescriptor<>("one", type));
            many = getRuntimeContext().getListState(new ListStateDescriptor<>("many", type));
            named = getRuntimeContext().getMapState(new MapStateDescriptor<>("by-name", Types.STRING, type));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            if (upgraded && context.getCurrentKey() % 2 == 0) return;
            one.update(Subscriber.of(id));
            many.add(Subscriber.of(id));
            named.put("m" + id % 3, Subscriber.of(id));
        }
    }
}
