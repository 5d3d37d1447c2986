import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.streaming.api.functions.source.SourceFunction;
import org.apache.flink.streaming.api.windowing.time.Time;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;

/** What is written in another way before Flink 2. */
final class Release {
    private Release() {}

    interface Source extends SourceFunction<Long> {}

    static StateTtlConfig ttl() {
        return StateTtlConfig.newBuilder(org.apache.flink.api.common.time.Time.days(30000)).build();
    }

    static TumblingEventTimeWindows windows() {
        return TumblingEventTimeWindows.of(Time.seconds(50));
    }
}
