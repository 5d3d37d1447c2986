import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.BroadcastStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Order;

/** Operator state: lists that are split, lists of all subtasks and broadcast state; also beside keyed state. */
public final class OperatorStates implements Job {
    static final MapStateDescriptor<String, Tuple2<Integer, Boolean>> RULES =
        new MapStateDescriptor<>("rules", Types.STRING, Types.TUPLE(Types.INT, Types.BOOLEAN));
    static final MapStateDescriptor<Integer, Order> PRICES =
        new MapStateDescriptor<>("pri\u00e7es", Types.INT, TypeInformation.of(Order.class));

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG)
            .setParallelism(1).uid("src");
        events.rebalance().process(new Buffers()).returns(Types.LONG).uid("buffers").sinkTo(new DiscardingSink<>());
        BroadcastStream<Long> broadcast = events.broadcast(RULES, PRICES);
        events.keyBy(id -> id % 17, Types.LONG).connect(broadcast).process(new Rules()).returns(Types.LONG).uid("rules")
            .sinkTo(new DiscardingSink<>());
    }

    /** Keeps the events of each subtask. */
    static final class Buffers extends ProcessFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Long> split;
        private transient ListState<String> union;
        private transient ListState<Order> orders;
        private transient ListState<Long> empty;

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            split = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("split", Types.LONG));
            union = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
            orders = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("orders", TypeInformation.of(Order.class)));
            empty = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("empty", Types.LONG));
            if (context.isRestored()) {
                // Each subtask got the elements of all; keep what it would have written itself.
                List<String> mine = new ArrayList<>();
                int i = 0;
                for (String each : union.get()) {
                    if (i % getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks() == getRuntimeContext().getTaskInfo().getIndexOfThisSubtask()) mine.add(each);
                    i++;
                }
                union.update(mine);
            }
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            split.add(id * 1_000_003L);
            if (id % 3 == 0) union.add("caf\u00e9-" + id);
            if (id % 5 == 0) orders.add(Order.of(id));
        }

        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            put("split", "operator-list", subtask, split);
            put("union", "operator-union", subtask, union);
            put("orders", "operator-list", subtask, orders);
        }

        private static void put(String state, String kind, int subtask, ListState<?> list) throws Exception {
            List<Object> elements = new ArrayList<>();
            for (Object each : list.get()) elements.add(each);
            Truth.put("buffers", state, kind, subtask, null, elements.isEmpty() ? null : elements);
        }
    }

    /** Broadcast state, keyed state and a list in one operator. */
    static final class Rules extends KeyedBroadcastProcessFunction<Long, Long, Long, Long> implements CheckpointedFunction {
        private transient ValueState<Long> seen;
        private transient ListState<Long> counts;
        private transient BroadcastState<String, Tuple2<Integer, Boolean>> rules;
        private transient BroadcastState<Integer, Order> prices;
        private transient long count;

        @Override public void open(OpenContext context) {
            seen = getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.LONG));
        }

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            counts = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("counts", Types.LONG));
            rules = context.getOperatorStateStore().getBroadcastState(RULES);
            prices = context.getOperatorStateStore().getBroadcastState(PRICES);
            for (long each : counts.get()) count += each;
        }

        @Override public void processElement(Long id, ReadOnlyContext context, Collector<Long> out) throws Exception {
            seen.update(id);
            count++;
            Truth.put("rules", "seen", "value", context.getCurrentKey(), null, id);
        }

        @Override public void processBroadcastElement(Long id, Context context, Collector<Long> out) throws Exception {
            BroadcastState<String, Tuple2<Integer, Boolean>> state = context.getBroadcastState(RULES);
            state.put("rule-" + id % 9, Tuple2.of((int) -id, id % 2 == 0));
            if (id % 10 == 7) state.remove("rule-" + (id + 4) % 9);
            if (id % 4 == 0) context.getBroadcastState(PRICES).put((int) (id % 6) - 2, id % 8 == 0 ? Order.of(id) : null);
        }

        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            counts.update(Arrays.asList(count));
            Truth.put("rules", "counts", "operator-list", subtask, null, Arrays.asList(count));
            Map<String, Tuple2<Integer, Boolean>> first = new HashMap<>();
            rules.entries().forEach(each -> first.put(each.getKey(), each.getValue()));
            Truth.put("rules", "rules", "broadcast", subtask, null, JsonText.pairs(first.entrySet()));
            Truth.put("rules", "pri\u00e7es", "broadcast", subtask, null, JsonText.pairs(prices.entries()));
        }
    }
}
