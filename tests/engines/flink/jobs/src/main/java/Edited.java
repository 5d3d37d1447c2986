import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Ten keys with a count, a map, a list and one timer each, which was set by the first event of the key.
 *
 * The truth has what the job sees of a key when an event or a timer comes, so it also tells what the job found in a snapshot
 * that somebody else has changed. Option uid names the operator with the keys; with spare there is another one, which sums numbers.
 */
public final class Edited implements Job {
    static final int KEYS = 10;
    static final long FIRST_TIMER = 60_000;

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> ids = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG)
            .setParallelism(1).uid("src");
        ids.keyBy(id -> "k" + id % KEYS, Types.STRING).process(new Update()).returns(Types.LONG)
            .uid(options.getOrDefault("uid", "edited")).sinkTo(new DiscardingSink<>());
        if (options.containsKey("spare"))
            ids.keyBy(id -> id % KEYS, Types.LONG).reduce(Long::sum).returns(Types.LONG).uid("spare").sinkTo(new DiscardingSink<>());
    }

    static final class Update extends KeyedProcessFunction<String, Long, Long> {
        private transient ValueState<Long> count;
        private transient MapState<String, Tuple2<Long, Boolean>> parts;
        private transient ListState<Long> ids;

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            count = runtime.getState(new ValueStateDescriptor<>("count", Types.LONG));
            parts = runtime.getMapState(new MapStateDescriptor<>("parts", Types.STRING, Types.TUPLE(Types.LONG, Types.BOOLEAN)));
            ids = runtime.getListState(new ListStateDescriptor<>("ids", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            String key = context.getCurrentKey();
            if (count.value() == null) context.timerService().registerEventTimeTimer(FIRST_TIMER + 10 * id);
            count.update(count.value() == null ? 1 : count.value() + 1);
            String part = "p" + id % 3;
            Tuple2<Long, Boolean> old = parts.get(part);
            parts.put(part, Tuple2.of(old == null ? 1 : old.f0 + 1, id % 2 == 0));
            ids.add(id);
            tell(key);
        }

        @Override public void onTimer(long time, OnTimerContext context, Collector<Long> out) throws Exception {
            String key = context.getCurrentKey();
            Truth.put("edited", "fired-" + time, "value", key, null, count.value() == null ? -1 : count.value());
            tell(key);
        }

        private void tell(String key) throws Exception {
            Map<String, Tuple2<Long, Boolean>> entries = new TreeMap<>();
            for (Map.Entry<String, Tuple2<Long, Boolean>> each : parts.entries()) entries.put(each.getKey(), each.getValue());
            List<Long> elements = new ArrayList<>();
            for (Long each : ids.get()) elements.add(each);
            Truth.put("edited", "count", "value", key, null, count.value());
            Truth.put("edited", "parts", "map", key, null, entries);
            Truth.put("edited", "ids", "list", key, null, elements);
        }
    }
}
