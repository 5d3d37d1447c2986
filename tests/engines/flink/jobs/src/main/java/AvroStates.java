import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericRecord;
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
import org.apache.flink.formats.avro.typeutils.AvroTypeInfo;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import shop.GenericRecords;
import shop.Measurement;

/** Avro records, specific and generic, as values, elements of lists, values of maps and parts of tuples. */
public final class AvroStates implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        DataStream<Long> events = env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG).setParallelism(1).uid("src");
        events.keyBy(id -> "k" + id % 23, Types.STRING).process(new Records()).returns(Types.LONG).uid("avro").sinkTo(new DiscardingSink<>());
        events.keyBy(id -> "k" + id % 23, Types.STRING).process(new Recursive()).returns(Types.LONG).uid("avro-recursive").sinkTo(new DiscardingSink<>());
    }

    static final class Records extends KeyedProcessFunction<String, Long, Long> {
        private static final String ME = "avro";
        private transient Schema schema;
        private transient ValueState<Measurement> specific;
        private transient ListState<Measurement> specifics;
        private transient MapState<String, Measurement> specificMap;
        private transient ValueState<GenericRecord> generic;
        private transient ListState<GenericRecord> generics;
        private transient MapState<Long, GenericRecord> genericMap;
        private transient ValueState<Tuple2<GenericRecord, Long>> pair;
        private transient ValueState<Long> last;

        @Override public void open(OpenContext context) {
            schema = GenericRecords.schema(false);
            RuntimeContext runtime = getRuntimeContext();
            TypeInformation<Measurement> measurement = new AvroTypeInfo<>(Measurement.class);
            TypeInformation<GenericRecord> record = new GenericRecordAvroTypeInfo(schema);
            specific = runtime.getState(new ValueStateDescriptor<>("specific", measurement));
            specifics = runtime.getListState(new ListStateDescriptor<>("specifics", measurement));
            specificMap = runtime.getMapState(new MapStateDescriptor<>("specific-map", Types.STRING, measurement));
            generic = runtime.getState(new ValueStateDescriptor<>("generic", record));
            generics = runtime.getListState(new ListStateDescriptor<>("generics", record));
            genericMap = runtime.getMapState(new MapStateDescriptor<>("generic-map", Types.LONG, record));
            pair = runtime.getState(new ValueStateDescriptor<>("pair", Types.TUPLE(record, Types.LONG)));
            last = runtime.getState(new ValueStateDescriptor<>("z-last", Types.LONG));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            String key = context.getCurrentKey();
            specific.update(Measurement.of(id));
            Truth.put(ME, "specific", "value", key, null, Measurement.of(id));
            specifics.add(Measurement.of(id));
            Truth.put(ME, "specifics", "list", key, null, specifics.get());
            specificMap.put("m" + id % 3, id % 5 == 4 ? null : Measurement.of(id));
            Truth.put(ME, "specific-map", "map", key, null, JsonText.pairs(specificMap.entries()));
            GenericRecord record = GenericRecords.of(schema, id);
            generic.update(record);
            Truth.put(ME, "generic", "value", key, null, record);
            if (id % 2 == 0) {
                generics.add(record);
                Truth.put(ME, "generics", "list", key, null, generics.get());
                genericMap.put(id % 4, record);
                Truth.put(ME, "generic-map", "map", key, null, JsonText.pairs(genericMap.entries()));
            }
            pair.update(Tuple2.of(record, id));
            Truth.put(ME, "pair", "value", key, null, Tuple2.of(record, id));
            last.update(id);
            Truth.put(ME, "z-last", "value", key, null, id);
        }
    }

    /** A record that contains records of its own type. */
    static final class Recursive extends KeyedProcessFunction<String, Long, Long> {
        private transient Schema schema;
        private transient ValueState<GenericRecord> recursive;

        @Override public void open(OpenContext context) {
            schema = GenericRecords.schema(true);
            recursive = getRuntimeContext().getState(new ValueStateDescriptor<>("recursive", new GenericRecordAvroTypeInfo(schema)));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            recursive.update(GenericRecords.of(schema, id));
            Truth.put("avro-recursive", "recursive", "value", context.getCurrentKey(), null, GenericRecords.of(schema, id));
        }
    }
}
