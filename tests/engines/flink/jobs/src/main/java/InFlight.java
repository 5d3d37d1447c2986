import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A slow operator, which has many records before it when a snapshot is taken. Where checkpoints are unaligned, these
 * records are part of the checkpoint; the truth is what the state held at that moment.
 */
public final class InFlight implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src")
            .keyBy(id -> id % 13, Types.LONG).process(new Slow()).returns(Types.LONG).uid("slow").sinkTo(new DiscardingSink<>());
    }

    static final class Slow extends KeyedProcessFunction<Long, Long, Long> implements CheckpointedFunction {
        private transient ListState<Long> seen;
        private transient Map<Long, Iterable<Long>> mirror;

        @Override public void open(OpenContext context) {
            seen = getRuntimeContext().getListState(new ListStateDescriptor<>("seen", Types.LONG));
        }

        @Override public void initializeState(FunctionInitializationContext context) {
            mirror = new HashMap<>();
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            Thread.sleep(20);
            seen.add(id);
            java.util.List<Long> copy = new java.util.ArrayList<>();
            seen.get().forEach(copy::add);
            mirror.put(context.getCurrentKey(), copy);
        }

        @Override public void snapshotState(FunctionSnapshotContext context) {
            mirror.forEach((key, ids) -> Truth.put("slow", "seen", "list", key, null, ids));
        }
    }
}
