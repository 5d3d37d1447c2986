import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
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
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A value, a list and a map of each key, which follow from the numbers of the events alone.
 *
 * The state of a checkpoint is that of all events before the number that the source has stored in it, which `RunJob`
 * writes. Each key has its number; the events after the first of each key change some of them. At the event of the option
 * fail the job fails, once.
 */
public final class Followed implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        long keys = Long.parseLong(options.getOrDefault("keys", "1000"));
        env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src")
            .keyBy(id -> id < keys ? id : id * 7919 % keys, Types.LONG).process(new Keep(Long.parseLong(options.getOrDefault("fail", "-1")))).returns(Types.LONG).uid("followed").sinkTo(new DiscardingSink<>());
    }

    private static final AtomicBoolean FAILED = new AtomicBoolean();

    static final class Keep extends KeyedProcessFunction<Long, Long, Long> {
        private final long fails;
        private transient ValueState<Double> last;
        private transient ListState<Long> events;
        private transient MapState<String, Long> kinds;

        Keep(long fails) {
            this.fails = fails;
        }

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            last = runtime.getState(new ValueStateDescriptor<>("last", Types.DOUBLE));
            events = runtime.getListState(new ListStateDescriptor<>("events", Types.LONG));
            kinds = runtime.getMapState(new MapStateDescriptor<>("kinds", Types.STRING, Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            if (id == fails && !FAILED.getAndSet(true)) throw new IllegalStateException("fails once");
            if (id % 17 == 3) {
                last.clear();
                events.clear();
                kinds.clear();
                return;
            }
            last.update(id * 0.5);
            if (id % 7 == 5) events.update(Arrays.asList(id, -id));
            else events.add(id);
            kinds.put("kind " + id % 5, id);
            if (id % 4 == 1) kinds.remove("kind " + id % 3);
        }
    }
}
