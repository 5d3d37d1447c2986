import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Customer;

/**
 * Reads the state of the job Customers with Flink's State Processor API in this process, as one subtask.
 *
 * Usage: ReadWithFlink SNAPSHOT STATE..., where STATE is balance, customer, orders or limits. Prints, for each state, its
 * name, its rows (a list and a map have a row for each element), and the seconds since the process started or since the
 * state before was read.
 */
public final class ReadWithFlink {
    static final AtomicLong ROWS = new AtomicLong();

    private ReadWithFlink() {}

    public static void main(String[] arguments) throws Exception {
        long before = java.lang.management.ManagementFactory.getRuntimeMXBean().getStartTime();
        for (String state : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            ROWS.set(0);
            Configuration settings = new Configuration();
            settings.setString("taskmanager.memory.managed.size", "512mb");
            settings.setString("rest.port", "0");
            settings.setString("execution.runtime-mode", "BATCH");
            settings.setString("pipeline.object-reuse", "true");
            StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
            SavepointReader reader = SavepointReader.read(env, arguments[0], new EmbeddedRocksDBStateBackend());
            TypeInformation<Long> rows = Types.LONG;
            reader.readKeyedState(OperatorIdentifier.forUid("customers"), new Rows(state), Types.LONG, rows).sinkTo(new DiscardingSink<>());
            env.execute();
            long now = System.currentTimeMillis();
            System.out.printf("%s %d %.2f%n", state, ROWS.get(), (now - before) / 1000.0);
            before = now;
        }
        System.exit(0);
    }

    /** Emits each row's key after it has read the row's value. */
    static final class Rows extends KeyedStateReaderFunction<Long, Long> {
        private final String name;
        private transient ValueState<Double> balance;
        private transient ValueState<Customer> customer;
        private transient ListState<Long> orders;
        private transient MapState<String, Tuple2<Integer, Boolean>> limits;

        Rows(String name) {
            this.name = name;
        }

        @Override public void open(OpenContext context) {
            if (name.equals("balance")) balance = getRuntimeContext().getState(new ValueStateDescriptor<>(name, Types.DOUBLE));
            if (name.equals("customer")) customer = getRuntimeContext().getState(new ValueStateDescriptor<>(name, TypeInformation.of(Customer.class)));
            if (name.equals("orders")) orders = getRuntimeContext().getListState(new ListStateDescriptor<>(name, Types.LONG));
            if (name.equals("limits"))
                limits = getRuntimeContext().getMapState(new MapStateDescriptor<>(name, Types.STRING, Types.TUPLE(Types.INT, Types.BOOLEAN)));
        }

        @Override public void readKey(Long key, Context context, Collector<Long> out) throws Exception {
            List<Object> values = new ArrayList<>();
            if (balance != null) values.add(balance.value());
            if (customer != null) values.add(customer.value());
            if (orders != null) orders.get().forEach(values::add);
            if (limits != null) limits.entries().forEach(values::add);
            for (Object each : values) if (each != null) out.collect(key);
            ROWS.addAndGet(values.size());
        }
    }
}
