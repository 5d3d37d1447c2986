import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.connectors.kinesis.model.SentinelSequenceNumber;
import org.apache.flink.streaming.connectors.kinesis.model.SequenceNumber;
import org.apache.flink.streaming.connectors.kinesis.model.StreamShardMetadata;
import org.apache.flink.util.Collector;

/** Keeps shards as {@code FlinkKinesisConsumer} does, in a state of the same name and type. */
public final class KinesisShards implements Job {
    @Override public void build(StreamExecutionEnvironment env, Map<String, String> options) {
        env.fromSource(new GatedSource(1000), WatermarkStrategy.noWatermarks(), "src", Types.LONG)
            .setParallelism(1).uid("src").process(new Shards()).returns(Types.LONG).uid("shards")
            .sinkTo(new DiscardingSink<>());
    }

    static final class Shards extends ProcessFunction<Long, Long> implements CheckpointedFunction {
        private transient ListState<Tuple2<StreamShardMetadata, SequenceNumber>> shards;

        @Override public void initializeState(FunctionInitializationContext context) throws Exception {
            shards = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>(
                "Kinesis-Stream-Shard-State", new TupleTypeInfo<Tuple2<StreamShardMetadata, SequenceNumber>>(
                    TypeInformation.of(StreamShardMetadata.class), TypeInformation.of(SequenceNumber.class))));
        }

        @Override public void processElement(Long id, Context context, Collector<Long> out) throws Exception {
            if (id > 5) {
                return;
            }
            StreamShardMetadata shard = new StreamShardMetadata();
            shard.setStreamName("orders");
            shard.setShardId("shardId-00000000000" + id);
            if (id % 2 == 0) {
                shard.setParentShardId("shardId-parent");
                shard.setStartingHashKey("0");
                shard.setEndingHashKey("340282366920938463463374607431768211455");
                shard.setStartingSequenceNumber("4959");
            }
            SequenceNumber number = new SequenceNumber("49545986683" + id);
            if (id == 3) {
                number = SentinelSequenceNumber.SENTINEL_LATEST_SEQUENCE_NUM.get();
            } else if (id == 4) {
                number = new SequenceNumber("4954598", 7);
            }
            shards.add(Tuple2.of(shard, number));
        }

        @Override public void snapshotState(FunctionSnapshotContext context) {}
    }
}
