import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
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
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.Animals;

/** POJOs of subclasses that are not registered, which the heap backend and operator state write without their snapshots. */
public final class Pets implements Job {
    private static final TypeInformation<Animals.Animal> ANIMAL = TypeInformation.of(Animals.Animal.class);

    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        events.keyBy(id -> "p" + id % 23, Types.STRING).process(new Keep()).returns(Types.LONG).uid("pets").sinkTo(new DiscardingSink<>());
        events.rebalance().process(new Crowd()).returns(Types.LONG).uid("crowd").sinkTo(new DiscardingSink<>());
    }

    static Animals.Animal animal(long id) {
        Animals.Animal made;
        if (id % 4 == 0) {
            Animals.Cat cat = new Animals.Cat();
            cat.mice = new HashMap<>(Map.of("m,", (int) id, "", -1));
            made = cat;
        } else if (id % 4 == 1) {
            Animals.Dog dog = new Animals.Dog();
            dog.barks = id % 3 == 0;
            dog.tricks = new ArrayList<>(List.of("sit", "t" + id));
            made = dog;
        } else {
            made = new Animals.Animal();
        }
        made.name = id % 6 == 1 ? null : "n" + id;
        made.legs = (int) (id % 5);
        made.size = Animals.Size.values()[(int) (id % 2)];
        return made;
    }

    static final class Keep extends KeyedProcessFunction<String, Long, Long> {
        private transient ValueState<Long> first;
        private transient ValueState<Animals.Animal> one;
        private transient ListState<Animals.Animal> many;
        private transient MapState<Integer, Animals.Animal> named;
        private transient ValueState<Tuple2<Animals.Animal, Long>> pair;
        private transient ValueState<Long> last;

        @Override public void open(OpenContext context) {
            RuntimeContext runtime = getRuntimeContext();
            first = runtime.getState(new ValueStateDescriptor<>("a-first", Types.LONG));
            one = runtime.getState(new ValueStateDescriptor<>("one", ANIMAL));
            many = runtime.getListState(new ListStateDescriptor<>("many", ANIMAL));
            named = runtime.getMapState(new MapStateDescriptor<>("named", Types.INT, ANIMAL));
            pair = runtime.getState(new ValueStateDescriptor<>("pair", Types.TUPLE(ANIMAL, Types.LONG)));
            last = runtime.getState(new ValueStateDescriptor<>("z-last", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            String key = context.getCurrentKey();
            if (first.value() == null) first.update(id);
            Truth.put("pets", "a-first", "value", key, null, first.value());
            Animals.Animal animal = animal(id);
            one.update(animal);
            Truth.put("pets", "one", "value", key, null, animal);
            many.addAll(Arrays.asList(animal, animal(id + 1)));
            Truth.put("pets", "many", "list", key, null, many.get());
            named.put((int) (id % 3), animal);
            Truth.put("pets", "named", "map", key, null, JsonText.pairs(named.entries()));
            pair.update(Tuple2.of(animal, id));
            Truth.put("pets", "pair", "value", key, null, Tuple2.of(animal, id));
            last.update(id);
            Truth.put("pets", "z-last", "value", key, null, id);
        }
    }

    static final class Crowd extends ProcessFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Animals.Animal> animals;

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            animals = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("animals", ANIMAL));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            animals.add(animal(id));
        }

        @Override public void snapshotState(FunctionSnapshotContext context) throws Exception {
            List<Object> held = new ArrayList<>();
            for (Animals.Animal each : animals.get()) held.add(each);
            Truth.put("crowd", "animals", "operator-list", getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), null, held);
        }
    }
}
