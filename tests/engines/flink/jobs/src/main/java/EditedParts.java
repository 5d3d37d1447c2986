import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReadOnlyBroadcastState;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Windows and operator state that somebody else may change between two runs.
 *
 * The truth has the windows that ended, with their events, and what operators found when they were restored.
 */
public final class EditedParts implements Job {
    static final MapStateDescriptor<String, Long> RULES = new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        events.keyBy(EditedParts::key, Types.STRING).window(TumblingEventTimeWindows.of(Duration.ofMinutes(1)))
            .process(new Ended("tumbling"), Types.LONG).uid("tumbling").sinkTo(new DiscardingSink<>());
        events.filter(id -> id < 45 || id >= 75).setParallelism(1).uid("pause").keyBy(EditedParts::key, Types.STRING)
            .window(EventTimeSessionWindows.withGap(Duration.ofSeconds(15))).process(new Ended("sessions"), Types.LONG).uid("sessions")
            .sinkTo(new DiscardingSink<>());
        events.rebalance().process(new Buffers()).returns(Types.LONG).uid("buffers").sinkTo(new DiscardingSink<>());
        events.keyBy(EditedParts::key, Types.STRING).connect(events.broadcast(RULES)).process(new Rules()).returns(Types.LONG).uid("rules")
            .sinkTo(new DiscardingSink<>());
    }

    static String key(Long id) {
        return "k" + id % 10;
    }

    /** Tells the events of each window that ends. */
    static final class Ended extends ProcessWindowFunction<Long, Long, String, TimeWindow> {
        private final String operator;

        Ended(String operator) {
            this.operator = operator;
        }

        @Override public void process(String key, Context context, Iterable<Long> events, Collector<Long> out) {
            List<Long> ids = new ArrayList<>();
            events.forEach(ids::add);
            Truth.put(operator, "ended-" + context.window().getStart() + "-" + context.window().getEnd(), "value", key, null, ids);
        }
    }

    /** Keeps events, and tells those that it was restored with. */
    static final class Buffers extends ProcessFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Long> split;
        private transient ListState<String> union;

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            split = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("split", Types.LONG));
            union = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
            if (!context.isRestored()) return;
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            List<Object> elements = new ArrayList<>(), texts = new ArrayList<>();
            split.get().forEach(elements::add);
            union.get().forEach(texts::add);
            Truth.put("buffers", "restored-split", "value", subtask, null, elements);
            Truth.put("buffers", "restored-union", "value", subtask, null, texts);
            union.clear();
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            split.add(id);
            if (id % 3 == 0) union.add("t" + id);
        }

        @Override public void snapshotState(FunctionSnapshotContext context) {}
    }

    /** Has rules in broadcast state, and tells them whenever an event of a key comes. */
    static final class Rules extends KeyedBroadcastProcessFunction<String, Long, Long, Long> {
        @Override public void processElement(Long id, ReadOnlyContext context, Collector<Long> out) throws Exception {
            ReadOnlyBroadcastState<String, Long> rules = context.getBroadcastState(RULES);
            Map<String, Long> entries = new TreeMap<>();
            for (Map.Entry<String, Long> each : rules.immutableEntries()) entries.put(each.getKey(), each.getValue());
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            Truth.put("rules", "seen", "value", subtask, null, entries);
        }

        @Override public void processBroadcastElement(Long id, Context context, Collector<Long> out) throws Exception {
            if (id < 9) context.getBroadcastState(RULES).put("rule-" + id, id);
        }
    }
}
