import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Customer;

/**
 * State of many keys without truth, for benchmarks.
 *
 * Each key comes once; then every second event is for one of a hundred keys in ten thousand, and one in twenty clears a key.
 */
public final class Customers implements Job {
    static final ValueStateDescriptor<Double> BALANCE = new ValueStateDescriptor<>("balance", Types.DOUBLE);
    static final ValueStateDescriptor<Customer> CUSTOMER = new ValueStateDescriptor<>("customer", TypeInformation.of(Customer.class));
    static final ListStateDescriptor<Long> ORDERS = new ListStateDescriptor<>("orders", Types.LONG);
    static final MapStateDescriptor<String, Tuple2<Integer, Boolean>> LIMITS =
        new MapStateDescriptor<>("limits", Types.STRING, Types.TUPLE(Types.INT, Types.BOOLEAN));

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        long keys = Long.parseLong(options.get("keys"));
        env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src")
            .keyBy(id -> key(id, keys), Types.LONG).process(new Update(keys)).returns(Types.LONG).uid("customers").sinkTo(new DiscardingSink<>());
    }

    static long key(long id, long keys) {
        long mixed = id;
        if (id >= keys) {
            mixed = (id ^ id >>> 7) * 0x9E3779B97F4A7C15L >>> 20;
            if (id % 2 == 0) mixed = mixed % (keys / 100) * 100;
        }
        return 100_000_000L + mixed % keys * 1_000_003L % keys;
    }

    static final class Update extends KeyedProcessFunction<Long, Long, Long> {
        private final long keys;
        private transient ValueState<Double> balance;
        private transient ValueState<Customer> customer;
        private transient ListState<Long> orders;
        private transient MapState<String, Tuple2<Integer, Boolean>> limits;

        Update(long keys) {
            this.keys = keys;
        }

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            balance = runtime.getState(BALANCE);
            customer = runtime.getState(CUSTOMER);
            orders = runtime.getListState(ORDERS);
            limits = runtime.getMapState(LIMITS);
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            if (id >= keys && id % 20 == 19) {
                balance.clear();
                customer.clear();
                orders.clear();
                limits.clear();
                return;
            }
            balance.update(id * 0.5);
            customer.update(Customer.of(id));
            orders.add(id);
            limits.put("limit-" + id % 5, Tuple2.of((int) (long) id, id % 3 == 0));
        }
    }
}
