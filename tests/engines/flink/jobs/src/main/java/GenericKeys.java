import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Keys that Kryo writes, which Flink takes for types that it does not know. Those of doubles have no truth. */
public final class GenericKeys implements Job {
    static final long[] WIDE = {1L << 40, -1, Long.MIN_VALUE, Long.MAX_VALUE, -(1L << 33), 0};

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG)
            .setParallelism(1).uid("src");
        counted(events, "longs", id -> id % 3 == 0 ? WIDE[(int) (id / 3 % WIDE.length)] : (Object) (id % 50));
        counted(events, "ints", id -> (int) (id % 40) * 70_001 - 1_000_000);
        counted(events, "texts", id -> id % 5 == 0 ? "h\u00e4user " + id % 35 : "x".repeat((int) (id % 9)));
        counted(events, "doubles", id -> id % 30 * 0.5);
    }

    private static void counted(DataStream<Long> events, String uid, KeySelector<Long, Object> selector) {
        events.keyBy(selector, new GenericTypeInfo<>(Object.class)).process(new Count(uid)).returns(Types.LONG).uid(uid)
            .sinkTo(new DiscardingSink<>());
    }

    static final Map<String, Long> COUNTS = new ConcurrentHashMap<>();

    static final class Count extends KeyedProcessFunction<Object, Long, Long> {
        private final String uid;
        private transient ValueState<Long> count;

        Count(String uid) {
            this.uid = uid;
        }

        @Override public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            Object key = context.getCurrentKey();
            count.update(COUNTS.merge(uid + key.getClass() + key, 1L, Long::sum));
            if (!uid.equals("doubles")) Truth.put(uid, "count", "value", key, null, count.value());
        }
    }
}
