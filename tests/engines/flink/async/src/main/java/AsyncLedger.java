import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.v2.AggregatingState;
import org.apache.flink.api.common.state.v2.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.v2.ListState;
import org.apache.flink.api.common.state.v2.ListStateDescriptor;
import org.apache.flink.api.common.state.v2.MapState;
import org.apache.flink.api.common.state.v2.MapStateDescriptor;
import org.apache.flink.api.common.state.v2.ReducingState;
import org.apache.flink.api.common.state.v2.ReducingStateDescriptor;
import org.apache.flink.api.common.state.v2.ValueState;
import org.apache.flink.api.common.state.v2.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;
import shop.Order;

/** Each kind of state of the second API, with and without a time to live, timers and windows: asynchronous state. Means and timers are those of Ledger. */
public final class AsyncLedger implements Job {
    private static final long SIZE = 60_000;

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        long keys = Long.parseLong(options.getOrDefault("keys", "20"));
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        async(events.keyBy(id -> "account-" + id * 7 % keys, Types.STRING), options).process(new Accounts(false)).returns(Types.LONG).uid("accounts").sinkTo(new DiscardingSink<>());
        async(events.keyBy(id -> "account-" + id * 7 % keys, Types.STRING), options).process(new Accounts(true)).returns(Types.LONG).uid("expiring").sinkTo(new DiscardingSink<>());
        async(events.keyBy(id -> (int) (id * 11 % keys) - 5, Types.INT), options).process(new Ledger.Alarms()).returns(Types.LONG).uid("alarms").sinkTo(new DiscardingSink<>());
        KeyedStream<Long, String> keyed = async(events.keyBy(AsyncLedger::key, Types.STRING), options);
        keyed.window(TumblingEventTimeWindows.of(Duration.ofMillis(SIZE)))
            .reduce(Long::sum).uid("tumbling").sinkTo(new DiscardingSink<>());
    }

    private static <K> KeyedStream<Long, K> async(KeyedStream<Long, K> stream, Map<String, String> options) {
        return options.getOrDefault("async", "true").equals("true") ? stream.enableAsyncState() : stream;
    }

    static String key(Long id) {
        return "k" + id % 9;
    }

    @Override public void derive(long n) {
        Truth.forget("tumbling");
        long mark = (n - 1) * 1000;
        Map<Tuple2<String, Long>, Long> sums = new java.util.LinkedHashMap<>();
        for (long id = 0; id < n; id++)
            sums.merge(Tuple2.of(key(id), id * 1000 - id * 1000 % SIZE), id, Long::sum);
        sums.forEach((place, sum) -> {
            org.apache.flink.streaming.api.windowing.windows.TimeWindow window =
                new org.apache.flink.streaming.api.windowing.windows.TimeWindow(place.f1, place.f1 + SIZE);
            if (window.maxTimestamp() <= mark) return;
            Truth.put("tumbling", "window-contents", "reducing", place.f0, window, sum);
            Truth.timer("tumbling", "_timer_state/event_window-timers", place.f0, window, window.maxTimestamp(), true);
        });
    }

    /** The state of a key as it must be: requests of one key are carried out in their order. */
    static final class Expected {
        Double balance;
        Order order;
        final List<Long> history = new ArrayList<>();
        final List<Tuple2<String, Long>> notes = new ArrayList<>();
        final Map<String, Tuple2<Integer, Boolean>> limits = new TreeMap<>();
        Long sum;
        Tuple2<Long, Long> mean;
    }

    static final Map<String, Expected> EXPECTED = new ConcurrentHashMap<>();

    static final class Accounts extends KeyedProcessFunction<String, Long, Long> {
        private final boolean expires;
        private transient ValueState<Double> balance;
        private transient ValueState<Order> order;
        private transient ListState<Long> history;
        private transient ListState<Tuple2<String, Long>> notes;
        private transient MapState<String, Tuple2<Integer, Boolean>> limits;
        private transient ReducingState<Long> sum;
        private transient AggregatingState<Long, Double> mean;

        Accounts(boolean expires) {
            this.expires = expires;
        }

        private String me() {
            return expires ? "expiring" : "accounts";
        }

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            ValueStateDescriptor<Double> first = new ValueStateDescriptor<>("balance", Types.DOUBLE);
            ValueStateDescriptor<Order> second = new ValueStateDescriptor<>("order", TypeInformation.of(Order.class));
            ListStateDescriptor<Long> third = new ListStateDescriptor<>("history", Types.LONG);
            ListStateDescriptor<Tuple2<String, Long>> fourth = new ListStateDescriptor<>("notes", Types.TUPLE(Types.STRING, Types.LONG));
            MapStateDescriptor<String, Tuple2<Integer, Boolean>> fifth = new MapStateDescriptor<>("limits", Types.STRING, Types.TUPLE(Types.INT, Types.BOOLEAN));
            ReducingStateDescriptor<Long> sixth = new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG);
            AggregatingStateDescriptor<Long, Tuple2<Long, Long>, Double> seventh = new AggregatingStateDescriptor<>("mean", new Ledger.Mean(), Types.TUPLE(Types.LONG, Types.LONG));
            if (expires) {
                StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofDays(30)).build();
                first.enableTimeToLive(ttl);
                second.enableTimeToLive(ttl);
                third.enableTimeToLive(ttl);
                fourth.enableTimeToLive(ttl);
                fifth.enableTimeToLive(ttl);
                sixth.enableTimeToLive(ttl);
                seventh.enableTimeToLive(ttl);
            }
            balance = runtime.getState(first);
            order = runtime.getState(second);
            history = runtime.getListState(third);
            notes = runtime.getListState(fourth);
            limits = runtime.getMapState(fifth);
            sum = runtime.getReducingState(sixth);
            mean = runtime.getAggregatingState(seventh);
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) {
            String key = context.getCurrentKey();
            Expected now = EXPECTED.computeIfAbsent(me() + key, each -> new Expected());
            if (id % 13 == 7) {
                balance.asyncClear();
                order.asyncClear();
                limits.asyncClear();
                if (!expires) sum.asyncClear();
                mean.asyncClear();
                now.balance = null;
                now.order = null;
                now.limits.clear();
                now.sum = null;
                now.mean = null;
                if (id % 26 == 7) {
                    history.asyncClear();
                    now.history.clear();
                }
            } else {
                balance.asyncUpdate(now.balance = id * 0.75 - 20);
                order.asyncUpdate(now.order = Order.of(id));
                history.asyncAdd(id);
                now.history.add(id);
                List<Tuple2<String, Long>> some = id % 10 == 9 ? Arrays.asList(Tuple2.of("again,", id), Tuple2.of("", -id))
                    : Arrays.asList(Tuple2.of("n" + id, id), Tuple2.of(",", 0x2c2c2c2cL));
                if (id % 10 == 9) {
                    notes.asyncUpdate(some);
                    now.notes.clear();
                } else notes.asyncAddAll(some);
                now.notes.addAll(some);
                limits.asyncPut("l" + id % 5, Tuple2.of((int) (long) -id, id % 2 == 0));
                now.limits.put("l" + id % 5, Tuple2.of((int) (long) -id, id % 2 == 0));
                if (id % 4 == 0) {
                    limits.asyncRemove("l" + (id + 2) % 5);
                    now.limits.remove("l" + (id + 2) % 5);
                }
                if (!expires) sum.asyncAdd(id); // with a time to live, Flink 2.3 keeps the last element alone
                mean.asyncAdd(id);
                now.sum = now.sum == null ? id : now.sum + id;
                now.mean = now.mean == null ? Tuple2.of(id, 1L) : Tuple2.of(now.mean.f0 + id, now.mean.f1 + 1);
            }
            Truth.put(me(), "balance", "value", key, null, now.balance);
            Truth.put(me(), "order", "value", key, null, now.order);
            Truth.put(me(), "history", "list", key, null, now.history.isEmpty() ? null : now.history);
            Truth.put(me(), "notes", "list", key, null, now.notes.isEmpty() ? null : now.notes);
            Truth.put(me(), "limits", "map", key, null, now.limits.isEmpty() ? null : JsonText.pairs(now.limits.entrySet()));
            if (!expires) Truth.put(me(), "sum", "reducing", key, null, now.sum);
            Truth.put(me(), "mean", "aggregating", key, null, now.mean);
        }
    }
}
