import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;

/**
 * Prints the state of the job Edited as Flink's State Processor API reads it, a line for each key and state.
 *
 * Usage: ReadEdited SNAPSHOT BACKEND TIMERS UID, where BACKEND is rocksdb or hashmap, and TIMERS is ROCKSDB or HEAP. A line
 * has the form of a job's truth; the timers of a key are a list.
 */
public final class ReadEdited {
    private ReadEdited() {}

    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("taskmanager.memory.managed.size", "64mb");
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-port", "0");
        settings.setString("execution.runtime-mode", "BATCH");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        SavepointReader reader = SavepointReader.read(env, arguments[0], backend(arguments[1], arguments[2]));
        DataStream<String> lines = reader.readKeyedState(OperatorIdentifier.forUid(arguments[3]), new Lines(), Types.STRING, Types.STRING);
        List<String> found = new ArrayList<>();
        try (CloseableIterator<String> all = lines.executeAndCollect()) {
            all.forEachRemaining(found::add);
        }
        found.forEach(System.out::println);
        System.exit(0); // threads of Flink may still run
    }

    private static StateBackend backend(String name, String timers) {
        if (name.equals("hashmap")) return new HashMapStateBackend();
        EmbeddedRocksDBStateBackend found = new EmbeddedRocksDBStateBackend();
        found.setPriorityQueueStateType(EmbeddedRocksDBStateBackend.PriorityQueueStateType.valueOf(timers));
        return found;
    }

    static final class Lines extends KeyedStateReaderFunction<String, String> {
        private transient ValueState<Long> count;
        private transient MapState<String, Tuple2<Long, Boolean>> parts;
        private transient ListState<Long> ids;

        @Override public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            parts = getRuntimeContext().getMapState(new MapStateDescriptor<>("parts", Types.STRING, Types.TUPLE(Types.LONG, Types.BOOLEAN)));
            ids = getRuntimeContext().getListState(new ListStateDescriptor<>("ids", Types.LONG));
        }

        @Override public void readKey(String key, Context context, Collector<String> out) throws Exception {
            Map<String, Tuple2<Long, Boolean>> entries = new TreeMap<>();
            for (Map.Entry<String, Tuple2<Long, Boolean>> each : parts.entries()) entries.put(each.getKey(), each.getValue());
            List<Long> elements = new ArrayList<>();
            for (Long each : ids.get()) elements.add(each);
            line(out, key, "count", count.value());
            line(out, key, "parts", entries);
            line(out, key, "ids", elements);
            line(out, key, "timers", new ArrayList<>(new TreeSet<>(context.registeredEventTimeTimers())));
        }

        private static void line(Collector<String> out, String key, String state, Object value) {
            out.collect("{\"state\":\"" + state + "\",\"key\":" + JsonText.of(key) + ",\"value\":" + JsonText.of(value) + "}");
        }
    }
}
