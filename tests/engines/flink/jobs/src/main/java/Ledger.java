import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Order;

/**
 * Keyed state of each kind with much churn: updates, removed keys, cleared maps, long lists; with and without a time to live.
 *
 * Runs with restarts at another parallelism, so that databases hold key groups of other subtasks.
 */
public final class Ledger implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        long keys = Long.parseLong(options.getOrDefault("keys", "60"));
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        events.keyBy(id -> "account-" + id * 7 % keys, Types.STRING).process(new Accounts(false)).returns(Types.LONG).uid("accounts").sinkTo(new DiscardingSink<>());
        if (options.getOrDefault("ttl", "true").equals("true"))
            events.keyBy(id -> "account-" + id * 7 % keys, Types.STRING).process(new Accounts(true)).returns(Types.LONG).uid("expiring").sinkTo(new DiscardingSink<>());
        events.keyBy(id -> (int) (id * 11 % keys) - 5, Types.INT).process(new Alarms()).returns(Types.LONG).uid("alarms").sinkTo(new DiscardingSink<>());
        events.keyBy(id -> id % 3, Types.LONG).process(new Never()).returns(Types.LONG).uid("never").sinkTo(new DiscardingSink<>());
    }

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
            AggregatingStateDescriptor<Long, Tuple2<Long, Long>, Double> seventh = new AggregatingStateDescriptor<>("mean", new Mean(), Types.TUPLE(Types.LONG, Types.LONG));
            if (expires) {
                StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofDays(30)).build();
                Arrays.asList(first, second, third, fourth, fifth, sixth, seventh).forEach(each -> each.enableTimeToLive(ttl));
            }
            balance = runtime.getState(first);
            order = runtime.getState(second);
            history = runtime.getListState(third);
            notes = runtime.getListState(fourth);
            limits = runtime.getMapState(fifth);
            sum = runtime.getReducingState(sixth);
            mean = runtime.getAggregatingState(seventh);
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            String key = context.getCurrentKey();
            if (id % 13 == 7) {
                balance.clear();
                order.clear();
                limits.clear();
                sum.clear();
                mean.clear();
                if (id % 26 == 7) history.clear();
            } else {
                balance.update(id * 0.75 - 20);
                order.update(Order.of(id));
                history.add(id);
                if (id % 10 == 9) notes.update(Arrays.asList(Tuple2.of("again,", id), Tuple2.of("", -id)));
                else notes.addAll(Arrays.asList(Tuple2.of("n" + id, id), Tuple2.of(",", 0x2c2c2c2cL)));
                limits.put("l" + id % 5, Tuple2.of((int) -id, id % 2 == 0));
                if (id % 4 == 0) limits.remove("l" + (id + 2) % 5);
                sum.add(id);
                mean.add(id);
            }
            Truth.put(me(), "balance", "value", key, null, balance.value());
            Truth.put(me(), "order", "value", key, null, order.value());
            Truth.put(me(), "history", "list", key, null, filled(history.get()));
            Truth.put(me(), "notes", "list", key, null, filled(notes.get()));
            Truth.put(me(), "limits", "map", key, null, limits.isEmpty() ? null : JsonText.pairs(limits.entries()));
            Truth.put(me(), "sum", "reducing", key, null, sum.get());
            mirror(key, id);
            Truth.put(me(), "mean", "aggregating", key, null, MEANS.get(me() + key));
        }

        /** The accumulator cannot be asked for. */
        private void mirror(String key, long id) {
            if (id % 13 == 7) MEANS.remove(me() + key);
            else MEANS.merge(me() + key, Tuple2.of(id, 1L), (a, b) -> Tuple2.of(a.f0 + b.f0, a.f1 + b.f1));
        }

        private static Iterable<?> filled(Iterable<?> elements) {
            return elements != null && elements.iterator().hasNext() ? elements : null;
        }
    }

    static final Map<String, Tuple2<Long, Long>> MEANS = new java.util.concurrent.ConcurrentHashMap<>(new HashMap<>());

    static final class Mean implements org.apache.flink.api.common.functions.AggregateFunction<Long, Tuple2<Long, Long>, Double> {
        @Override public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override public Tuple2<Long, Long> add(Long value, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + value, sum.f1 + 1);
        }

        @Override public Double getResult(Tuple2<Long, Long> sum) {
            return (double) sum.f0 / sum.f1;
        }

        @Override public Tuple2<Long, Long> merge(Tuple2<Long, Long> one, Tuple2<Long, Long> other) {
            return Tuple2.of(one.f0 + other.f0, one.f1 + other.f1);
        }
    }

    /** Timers, also of times before 1970, and timers that are deleted. */
    static final class Alarms extends KeyedProcessFunction<Integer, Long, Long> {
        private static final String EVENT = "_timer_state/event_user-timers";
        private static final String PROCESSING = "_timer_state/processing_user-timers";

        @Override public void processElement(Long id, Context context, Collector<Long> out) {
            Integer key = context.getCurrentKey();
            long at = 4_000_000_000_000L + id / 3 * 10;
            if (id % 3 == 0) {
                context.timerService().registerEventTimeTimer(at);
                Truth.timer("alarms", EVENT, key, null, at, true);
            } else if (id % 3 == 1) {
                context.timerService().registerProcessingTimeTimer(at);
                Truth.timer("alarms", PROCESSING, key, null, at, true);
            } else if (id % 2 == 0) {
                Truth.LINES.keySet().stream().filter(line -> line.startsWith("alarms|" + EVENT + "|" + key + "|null|")).findFirst().ifPresent(line -> {
                    long old = Long.parseLong(line.substring(line.lastIndexOf('|') + 1));
                    context.timerService().deleteEventTimeTimer(old);
                    Truth.timer("alarms", EVENT, key, null, old, false);
                });
            }
        }
    }

    /** Declares states that stay empty, and one that is emptied. */
    static final class Never extends KeyedProcessFunction<Long, Long, Long> {
        private transient ValueState<Long> emptied;

        @Override public void open(OpenContext context) {
            getRuntimeContext().getListState(new ListStateDescriptor<>("list", Types.LONG));
            getRuntimeContext().getMapState(new MapStateDescriptor<>("map", Types.LONG, Types.STRING));
            emptied = getRuntimeContext().getState(new ValueStateDescriptor<>("emptied", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            emptied.update(id);
            emptied.clear();
        }
    }
}
