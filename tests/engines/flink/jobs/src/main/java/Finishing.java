import java.util.Arrays;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Operators that have finished, wholly (uid short, keyed) or in one subtask (uid half), beside others that go on. */
public final class Finishing implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> going = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        going.keyBy(id -> id % 7, Types.LONG).process(new Last("keyed")).returns(Types.LONG).uid("keyed").sinkTo(new DiscardingSink<>()).uid("sink-keyed");
        env.fromSource(new GatedSource(1000, 20), WatermarkStrategy.noWatermarks(), "short", Types.LONG).setParallelism(1).uid("short")
            .keyBy(id -> id % 7, Types.LONG).process(new Last("short-keyed")).returns(Types.LONG).uid("short-keyed").sinkTo(new DiscardingSink<>()).uid("sink-short");
        DataStream<Long> half = env.fromSource(new GatedSource(1000, 20, Long.MAX_VALUE), WatermarkStrategy.noWatermarks(), "half", Types.LONG).uid("half");
        half.process(new Count()).returns(Types.LONG).uid("half-count").sinkTo(new DiscardingSink<>()).uid("sink-half");
    }

    static final class Last extends KeyedProcessFunction<Long, Long, Long> {
        private final String me;
        private transient ValueState<Long> last;

        Last(String me) {
            this.me = me;
        }

        @Override public void open(OpenContext context) {
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            last.update(id);
            if (!me.startsWith("short")) Truth.put(me, "last", "value", context.getCurrentKey(), null, id);
        }
    }

    /** Counts in operator state; a subtask that has finished has none. */
    static final class Count extends ProcessFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Long> counts;
        private transient long count;

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            counts = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("counts", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) {
            count++;
        }

        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            counts.update(Arrays.asList(count, -count));
            if (getRuntimeContext().getTaskInfo().getIndexOfThisSubtask() == 1)
                Truth.put("half-count", "counts", "operator-list", 1, null, Arrays.asList(count, -count));
        }
    }
}
