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
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Money;
import shop.Scaled;

/** Values whose serializers users wrote, beside values of Flink's own. */
public final class CustomSerializers implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        if (!options.getOrDefault("only", "").equals("body"))
            events.keyBy(id -> id % 19, Types.LONG).process(new Simple()).returns(Types.LONG).uid("simple").sinkTo(new DiscardingSink<>());
        if (!options.getOrDefault("only", "").equals("simple"))
            events.keyBy(id -> id % 19, Types.LONG).process(new Body()).returns(Types.LONG).uid("body").sinkTo(new DiscardingSink<>());
    }

    /** Serializers whose snapshots have no body. */
    static final class Simple extends KeyedProcessFunction<Long, Long, Long> {
        private transient ValueState<Long> first;
        private transient ValueState<Money> price;
        private transient ListState<Money> payments;
        private transient MapState<String, Money> accounts;
        private transient ValueState<Long> last;

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            first = runtime.getState(new ValueStateDescriptor<>("a-first", Types.LONG));
            price = runtime.getState(new ValueStateDescriptor<>("m-price", Money.MoneySerializer.INSTANCE));
            payments = runtime.getListState(new ListStateDescriptor<>("m-payments", Money.MoneySerializer.INSTANCE));
            accounts = runtime.getMapState(new MapStateDescriptor<>("m-accounts", StringSerializer.INSTANCE, Money.MoneySerializer.INSTANCE));
            last = runtime.getState(new ValueStateDescriptor<>("z-last", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            Long key = context.getCurrentKey();
            if (first.value() == null) first.update(id);
            Truth.put("simple", "a-first", "value", key, null, first.value());
            Money money = new Money(id * 101 - 50, id % 2 == 0 ? "EUR" : "\u20ac,");
            price.update(money);
            Truth.put("simple", "m-price", "value", key, null, money);
            payments.add(money);
            Truth.put("simple", "m-payments", "list", key, null, payments.get());
            accounts.put("a" + id % 3, id % 7 == 0 ? null : money);
            Truth.put("simple", "m-accounts", "map", key, null, JsonText.pairs(accounts.entries()));
            last.update(id);
            Truth.put("simple", "z-last", "value", key, null, id);
        }
    }

    /** Serializers whose snapshots have a body, which nobody without the class can skip. */
    static final class Body extends KeyedProcessFunction<Long, Long, Long> {
        private transient ValueState<Long> first;
        private transient ValueState<Scaled> ratio;
        private transient ListState<Scaled> ratios;
        private transient ValueState<Long> last;

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            first = runtime.getState(new ValueStateDescriptor<>("a-first", Types.LONG));
            ratio = runtime.getState(new ValueStateDescriptor<>("m-ratio", new Scaled.ScaledSerializer(100)));
            ratios = runtime.getListState(new ListStateDescriptor<>("m-ratios", new Scaled.ScaledSerializer(8)));
            last = runtime.getState(new ValueStateDescriptor<>("z-last", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            Long key = context.getCurrentKey();
            if (first.value() == null) first.update(id);
            Truth.put("body", "a-first", "value", key, null, first.value());
            ratio.update(new Scaled(id / 4.0 - 3));
            Truth.put("body", "m-ratio", "value", key, null, ratio.value());
            ratios.add(new Scaled(id / 8.0));
            Truth.put("body", "m-ratios", "list", key, null, ratios.get());
            last.update(id);
            Truth.put("body", "z-last", "value", key, null, id);
        }
    }
}
